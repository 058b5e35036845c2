// Epochs of iterators: the bits of steps one by one, places to go on from, errors with their place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/memory/testing/allocation_counter.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/nn/data/async_iterator.h"
#include "tidepool/nn/data/example_iterator.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/model.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/training/checkpoint.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kExamples = 90, kBatch = 16;  // five batches of 16 and one of 10

UpdaterConfig Adam() { return UpdaterConfig::Of(UpdaterKind::kAdam); }

std::shared_ptr<const Examples<DataSet>> SomeExamples() {
  return std::make_shared<ArrayExamples>(RandomUniform({kExamples, 6}, -1, 1, 3),
                                         RandomIntegers({kExamples}, 0, 3, 4));
}

ExampleIterator<DataSet> Shuffled(uint64_t epoch = 0) {
  return ExampleIterator<DataSet>(SomeExamples(),
                                  {.batch_size = kBatch, .seed = 7, .epoch = epoch});
}

Network NewNetwork(WorkspaceMode mode = WorkspaceMode::kEnabled) {
  NetworkOptions options;
  options.seed = 5;
  options.mode = mode;
  return Network(NetworkConfig::Sequential({6}, {Dense(8, Activation::kTanh), Dense(3)}), options);
}

// The same batches one behind the other, as a stream has them.
class Stream final : public DataSetIterator {
 public:
  explicit Stream(DataSetIterator& base) : base_(base) {}
  void Reset() override { base_.Reset(); }

 protected:
  std::optional<DataSet> NextBatch(const std::stop_token& stop) override {
    return base_.Next(stop);
  }

 private:
  DataSetIterator& base_;
};

std::vector<float> ValuesOf(const Network& network) { return network.arrays().ToVector<float>(); }

// Two hundred and four steps in each way of having batches, by a network and by a model.
TEST(TrainerFit, HasTheBitsOfStepsOneByOneHoweverBatchesAreMade) {
  constexpr int kEpochs = 34;
  for (const WorkspaceMode mode : {WorkspaceMode::kEnabled, WorkspaceMode::kSingle,
                                   WorkspaceMode::kSeparate, WorkspaceMode::kNone}) {
    Network by_hand = NewNetwork(mode);
    Trainer reference(by_hand, Adam());
    ExampleIterator<DataSet> numbered = Shuffled();
    std::vector<double> losses;
    for (int epoch = 0; epoch < kEpochs; ++epoch, numbered.Reset()) {
      for (int64_t i = 0; i < numbered.size(); ++i)
        losses.push_back(reference.Step([&] { return numbered.Make(i); }));
    }
    for (const std::string way : {"plain", "stream", "ahead", "shielded", "model"}) {
      std::optional<Model> model;
      std::optional<Network> network;
      std::optional<Trainer> trainer;
      if (way == "model") {
        model.emplace("model", 3, std::make_unique<Network>(NewNetwork(mode)));
        trainer.emplace(*model, Adam());
      } else {
        network.emplace(NewNetwork(mode));
        trainer.emplace(*network, Adam());
      }
      ExampleIterator<DataSet> plain = Shuffled();
      Stream stream(plain);
      ShieldedIterator<DataSet> shield(plain);
      std::optional<AsyncDataSetIterator> ahead;
      if (way == "ahead") ahead.emplace(plain, AsyncOptions{.prefetch = 3, .producers = 2});
      if (way == "shielded") ahead.emplace(shield);
      DataSetIterator* batches = &plain;
      if (way == "stream") batches = &stream;
      if (ahead.has_value()) batches = &*ahead;
      std::vector<double> told;
      trainer->set_listener([&](const TrainedStep& step) { told.push_back(step.loss); });
      for (int epoch = 0; epoch < kEpochs; ++epoch, batches->Reset()) {
        const TrainingPass pass = trainer->Fit(*batches);
        ASSERT_EQ(pass.batches, 6);
        ASSERT_EQ(pass.examples, kExamples);
        double sum = 0;
        for (size_t i = told.size() - 6; i < told.size(); ++i)
          sum += told[i] * (i + 1 < told.size() ? 16 : 10);
        EXPECT_DOUBLE_EQ(pass.loss, sum / kExamples);
      }
      EXPECT_EQ(trainer->steps(), 6 * kEpochs);
      EXPECT_EQ(told, losses) << way;
      EXPECT_EQ(ValuesOf(trainer->network()), ValuesOf(by_hand)) << way;
      EXPECT_EQ(trainer->network().training_workspace().stats().leaked_arrays, 0u) << way;
    }
  }
}

struct Stopped {};

// Whichever step a run is stopped behind, also where later batches are made already.
TEST(TrainerFit, GoesOnFromAnyBatchToTheSameBits) {
  constexpr int64_t kEpochs = 2;
  const auto run = [](Network& network, CheckpointFolder* folder, int64_t stop_at, bool ahead) {
    Trainer trainer(network, Adam());
    uint64_t epoch = 0;
    int64_t first = 0;
    if (folder != nullptr && folder->Latest().has_value()) {
      const CheckpointNotes notes = LoadCheckpoint(*folder->Latest(), trainer);
      epoch = std::stoull(notes.at("epoch_of_data"));
      first = std::stoll(notes.at("batch"));
    }
    ExampleIterator<DataSet> batches = Shuffled(epoch);
    batches.Seek(first);
    trainer.set_listener([&](const TrainedStep& step) {
      if (trainer.steps() != stop_at) return;
      folder->Save(trainer, {{"epoch_of_data", std::to_string(epoch)},
                             {"batch", std::to_string(first + step.batches)}});
      throw Stopped();
    });
    std::optional<AsyncDataSetIterator> made;
    if (ahead) made.emplace(batches, AsyncOptions{.prefetch = 4, .producers = 2});
    DataSetIterator& from = ahead ? static_cast<DataSetIterator&>(*made) : batches;
    for (; epoch < kEpochs; ++epoch, first = 0, from.Reset()) trainer.Fit(from);
  };
  Network whole = NewNetwork();
  run(whole, nullptr, -1, false);
  for (const bool ahead : {false, true}) {
    for (int64_t stop_at = 1; stop_at <= kEpochs * 6; ++stop_at) {
      const std::string path = testing::TempDir() + "/fit";
      std::filesystem::remove_all(path);
      CheckpointFolder folder(path);
      Network begun = NewNetwork(), resumed = NewNetwork();
      EXPECT_THROW(run(begun, &folder, stop_at, ahead), Stopped);
      run(resumed, &folder, -1, ahead);
      EXPECT_EQ(ValuesOf(resumed), ValuesOf(whole)) << stop_at << " " << ahead;
    }
  }
}

TEST(TrainerFit, SteadyEpochsAllocateNothing) {
  Network network = NewNetwork();
  Trainer trainer(network, Adam());
  ExampleIterator<DataSet> batches = Shuffled();
  int64_t told = 0;
  trainer.set_listener([&](const TrainedStep& step) { told += step.examples; });
  const auto epochs = [&](int count) {
    for (int i = 0; i < count; ++i, batches.Reset()) trainer.Fit(batches);
  };
  // Batches of two sizes are two plans.
  epochs(20);
  network.training_workspace().FinishPlanSearch();
  epochs(20);
  const int64_t before = AllocationCount();
  epochs(10);
  EXPECT_EQ(AllocationCount() - before, 0);
  EXPECT_EQ(told, 50 * kExamples);
}

TEST(TrainerFit, EpochsMadeAheadTakeNothingFromTheSystem) {
  Network network = NewNetwork();
  Trainer trainer(network, Adam());
  ExampleIterator<DataSet> batches = Shuffled();
  AsyncDataSetIterator ahead(batches, {.prefetch = 2});
  const auto epochs = [&](int count) {
    for (int i = 0; i < count; ++i, ahead.Reset()) trainer.Fit(ahead);
  };
  {
    // Each slot has had a whole batch then.
    std::vector<DataSet> kept;
    for (int i = 0; i < 3; ++i) kept.push_back(*ahead.Next());
  }
  ahead.Reset();
  epochs(20);
  network.training_workspace().FinishPlanSearch();
  epochs(20);
  const int64_t before = MemoryTracker::Global().system_allocations();
  // A slot beyond those was taken where a batch was made while all three were kept.
  const auto temporary = ahead.ring_stats().temporary;
  epochs(20);
  EXPECT_EQ(MemoryTracker::Global().system_allocations() - before, 0);
  EXPECT_EQ(ahead.ring_stats().temporary, temporary);
}

TEST(TrainerFit, WhatIsThrownSaysWhichBatchItWasAndTheNextPassWorks) {
  Network network = NewNetwork(), expected = NewNetwork();
  Trainer trainer(network, Adam()), reference(expected, Adam());
  ExampleIterator<DataSet> good = Shuffled();
  enum class Bad { kError, kForeign, kShape, kLabel, kNothing };
  const auto batches_with = [&](Bad bad) {
    return FunctionIterator<DataSet>(5, [&good, bad](int64_t i) {
      if (i != 3) return good.Make(i);
      if (bad == Bad::kError) throw Error(absl::StatusCode::kUnavailable, "disk");
      if (bad == Bad::kForeign) throw std::out_of_range("no more");
      if (bad == Bad::kShape) return DataSet(Zeros({4, 5}), Zeros({4}, DType::kInt64));
      if (bad == Bad::kNothing) return DataSet();
      return DataSet(Zeros({4, 6}), Full({4}, 12, DType::kInt64));
    });
  };
  const auto error_of = [&](Bad bad, bool ahead) {
    FunctionIterator<DataSet> batches = batches_with(bad);
    std::optional<AsyncDataSetIterator> made;
    if (ahead) made.emplace(batches, AsyncOptions{.prefetch = 3, .first_epoch = 9});
    DataSetIterator& from = ahead ? static_cast<DataSetIterator&>(*made) : batches;
    const int64_t steps = trainer.steps();
    const Error error = ErrorOf([&] { trainer.Fit(from); });
    EXPECT_EQ(trainer.steps(), steps + 3);
    for (int64_t i = 0; i < 3; ++i) reference.Step([&] { return good.Make(i); });
    EXPECT_EQ(ValuesOf(network), ValuesOf(expected));
    return error;
  };
  for (const bool ahead : {false, true}) {
    EXPECT_THAT(error_of(Bad::kError, ahead),
                IsError(absl::StatusCode::kUnavailable,
                        {ahead ? "trainer: batch 3: batches: batch 3 of epoch 9: disk"
                               : "trainer: batch 3: disk"}));
    EXPECT_THAT(error_of(Bad::kShape, ahead),
                IsError(absl::StatusCode::kInvalidArgument, {"trainer: batch 3: ", "[4, 5]"}));
    EXPECT_THAT(error_of(Bad::kLabel, ahead),
                IsError(absl::StatusCode::kInvalidArgument, {"trainer: batch 3: ", "12"}));
    EXPECT_THAT(error_of(Bad::kNothing, ahead).message(), HasSubstr("trainer: batch 3: "));
  }
  FunctionIterator<DataSet> foreign = batches_with(Bad::kForeign);
  EXPECT_THROW(trainer.Fit(foreign), std::out_of_range);
  // A pass within a pass.
  trainer.set_listener([&](const TrainedStep&) { trainer.Fit(good); });
  EXPECT_THAT(ErrorOf([&] { trainer.Fit(good); }),
              IsError(absl::StatusCode::kFailedPrecondition, {"Fit while a pass is under way"}));
  trainer.set_listener(nullptr);
  good.Reset();
  EXPECT_EQ(trainer.Fit(good).batches, 6);
  EXPECT_EQ(trainer.Fit(good).batches, 0);  // nobody has reset it
}

TEST(TrainerFit, StepsThatALossScaleSkipsAreTold) {
  Network network = NewNetwork();
  Trainer trainer(network, Adam());
  trainer.set_loss_scale({.first = 0x1p20});
  const float infinity = std::numeric_limits<float>::infinity();
  FunctionIterator<DataSet> batches(3, [&](int64_t i) {
    return DataSet(Full({4, 6}, i == 1 ? infinity : 0.5), Zeros({4}, DType::kInt64));
  });
  std::vector<bool> updated;
  std::vector<int64_t> places;
  trainer.set_listener([&](const TrainedStep& step) {
    updated.push_back(step.updated);
    places.push_back(step.batches);
  });
  const TrainingPass pass = trainer.Fit(batches);
  EXPECT_THAT(updated, ElementsAre(true, false, true));
  EXPECT_THAT(places, ElementsAre(1, 2, 3));
  EXPECT_EQ(pass.batches, 3);
  EXPECT_EQ(trainer.steps(), 2);
}

}  // namespace
}  // namespace tidepool::nn
