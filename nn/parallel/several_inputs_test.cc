// Workers given MultiDataSets: networks of several inputs and outputs, sequences of variable
// length.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/merge.h"
#include "tidepool/nn/layers/recurrent.h"
#include "tidepool/nn/layers/sequence.h"
#include "tidepool/nn/parallel/parallel_testing.h"
#include "tidepool/nn/parallel/parallel_wrapper.h"

namespace tidepool::nn {
namespace {

using absl::StatusCode;
using ::testing::ElementsAre;

constexpr WorkspaceMode kModes[] = {WorkspaceMode::kEnabled, WorkspaceMode::kSingle,
                                    WorkspaceMode::kSeparate, WorkspaceMode::kNone};
constexpr int64_t kLength = 5;

// A sequence with a mask and a vector; a number for each step, with a mask, and one for all.
Network TwoByTwo(DType dtype, WorkspaceMode mode = WorkspaceMode::kEnabled) {
  NetworkConfig config;
  config.AddInput("words", {kLength, 3});
  config.AddInput("author", {2});
  config.Add(Lstm(4), {"words"}, "read");
  config.Add(TimeDistributed(Dense(1)), {"read"}, "tags");
  config.Add(Lstm(4, {.output = RecurrentOutput::kLast}), {"read"}, "whole");
  config.Add(Dense(4, Activation::kTanh), {"author"}, "known");
  config.Add(Merge(MergeKind::kAdd), {"whole", "known"}, "both");
  config.Add(Dense(2), {"both"}, "price");
  config.outputs = {"tags", "price"};
  NetworkOptions options;
  options.seed = 5;
  options.mode = mode;
  options.dtype = dtype;
  Network network(std::move(config), options);
  const Loss tags({.kind = LossKind::kSquaredError}), price({.kind = LossKind::kSquaredError});
  network.set_loss([=](absl::Span<const NDArray> outputs, const NetworkInputs& inputs) {
    return tags.Of(outputs[0], inputs.labels[0], &inputs.labels_masks[0]) +
           price.Of(outputs[1], inputs.labels[1]) * 0.5;
  });
  return network;
}

// Examples [begin, end) of a stream: each has 1 to 5 steps, and NaN behind its last.
MultiDataSet SetOf(int64_t begin, int64_t end, DType dtype = DType::kFloat64) {
  const int64_t count = end - begin;
  std::vector<double> words, authors, tags, prices, mask, labels_mask;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t length = 1 + i * 7 % kLength;
    for (int64_t t = 0; t < kLength; ++t) {
      const bool is_there = t < length;
      for (int w = 0; w < 3; ++w)
        words.push_back(is_there ? std::sin(static_cast<double>(i * 31 + t * 5 + w))
                                 : std::numeric_limits<double>::quiet_NaN());
      mask.push_back(is_there);
      labels_mask.push_back(is_there && (t + i) % 3 != 0);
      tags.push_back(is_there ? std::cos(static_cast<double>(i + t)) : 0);
    }
    for (int a = 0; a < 2; ++a) authors.push_back(std::sin(static_cast<double>(i * 3 + a)));
    for (int p = 0; p < 2; ++p) prices.push_back(std::cos(static_cast<double>(i * 2 + p)));
  }
  const auto array = [&](const std::vector<double>& values, const Shape& shape) {
    return Cast(FromValues(values, shape), dtype);
  };
  MultiDataSet set({array(words, {count, kLength, 3}), array(authors, {count, 2})},
                   {array(tags, {count, kLength, 1}), array(prices, {count, 2})});
  set.features_masks = {array(mask, {count, kLength}), NDArray()};
  set.labels_masks = {array(labels_mask, {count, kLength})};
  return set;
}

// The same sequences for a network of one input, by masks of a Batch.
Batch BatchOf(int64_t begin, int64_t end) {
  MultiDataSet set = SetOf(begin, end);
  Batch batch(set.features[0], set.labels[1]);
  batch.features_mask = set.features_masks[0];
  return batch;
}
Network Reader(WorkspaceMode mode) {
  NetworkOptions options;
  options.seed = 5;
  options.mode = mode;
  options.dtype = DType::kFloat64;
  Network network(NetworkConfig::Sequential(
                      {kLength, 3}, {Bidirectional(Lstm(4)),
                                     Lstm(3, {.output = RecurrentOutput::kLast}), Dense(2)}),
                  options);
  network.set_loss(Loss({.kind = LossKind::kSquaredError}));
  return network;
}

UpdaterConfig Adam() { return UpdaterConfig::Of(UpdaterKind::kAdam); }

TEST(SeveralInputs, WorkersEqualOneWorkerWithALargerBatchInEveryMode) {
  constexpr int kSteps = 12;
  for (const int workers : {1, 2, 3}) {
    std::vector<double> bits;
    for (const WorkspaceMode mode : kModes) {
      Network one = TwoByTwo(DType::kFloat64, mode), many = TwoByTwo(DType::kFloat64, mode);
      Trainer alone(one, Adam()), trainer(many, Adam());
      ParallelWrapper parallel(trainer, {.workers = workers});
      double loss = 0;
      for (int64_t i = 0; i < kSteps; ++i)
        loss += alone.Step([&] { return SetOf(i * 4 * workers, (i + 1) * 4 * workers); });
      const ParallelPass pass =
          FitOver(parallel, kSteps * workers, [](int64_t i) { return SetOf(4 * i, 4 * i + 4); });
      EXPECT_EQ(pass.rounds, kSteps);
      EXPECT_EQ(pass.examples, kSteps * workers * 4);
      EXPECT_NEAR(pass.loss, loss / kSteps, 1e-12);
      EXPECT_EQ(trainer.steps(), kSteps);
      EXPECT_LT(LargestDifference(one.parameters(), many.parameters()), 1e-12) << workers;
      const std::vector<double> parameters = many.parameters().ToVector<double>();
      if (bits.empty()) bits = parameters;
      EXPECT_EQ(parameters, bits) << static_cast<int>(mode);
    }
  }
}

TEST(SeveralInputs, SequencesOfABatchToo) {
  for (const WorkspaceMode mode : kModes) {
    Network one = Reader(mode), many = Reader(mode);
    Trainer alone(one, Adam()), trainer(many, Adam());
    ParallelWrapper parallel(trainer, {.workers = 3});
    for (int64_t i = 0; i < 8; ++i) alone.Step([&] { return BatchOf(9 * i, 9 * i + 9); });
    FitOver(parallel, 24, [](int64_t i) { return BatchOf(3 * i, 3 * i + 3); });
    EXPECT_LT(LargestDifference(one.parameters(), many.parameters()), 1e-12);
  }
}

TEST(SeveralInputs, AveragesAreThoseByHandInEveryMode) {
  for (const WorkspaceMode mode : kModes) {
    Network first = TwoByTwo(DType::kFloat64, mode), second = TwoByTwo(DType::kFloat64, mode),
            many = TwoByTwo(DType::kFloat64, mode);
    Trainer a(first, Adam()), b(second, Adam()), trainer(many, Adam());
    ParallelWrapper parallel(trainer, {.workers = 2,
                                       .training = ParallelTraining::kParameterAveraging,
                                       .averaging_frequency = 2});
    const auto mean = [](NDArray x, NDArray y) {
      const NDArray half = (x + y) * 0.5;
      CopyInto(half, x);
      CopyInto(half, y);
    };
    for (int64_t round = 0; round < 4; ++round) {
      a.Step([&] { return SetOf(round * 8, round * 8 + 4); });
      b.Step([&] { return SetOf(round * 8 + 4, round * 8 + 8); });
      if (round % 2 == 0) continue;
      mean(first.parameters(), second.parameters());
      for (size_t i = 0; i < 2; ++i) mean(*a.updater().state()[i], *b.updater().state()[i]);
    }
    FitOver(parallel, 8, [](int64_t i) { return SetOf(4 * i, 4 * i + 4); });
    EXPECT_EQ(many.parameters().ToVector<double>(), first.parameters().ToVector<double>());
    EXPECT_EQ(parallel.network(1).parameters().ToVector<double>(),
              first.parameters().ToVector<double>());
  }
}

TEST(SeveralInputs, EveryExampleCountsAlikeInSetsOfDifferentSizes) {
  Network one = TwoByTwo(DType::kFloat64), many = TwoByTwo(DType::kFloat64);
  Trainer alone(one, Adam()), trainer(many, Adam());
  ParallelWrapper parallel(trainer, {.workers = 3});
  // The last round has one worker.
  const int64_t ends[] = {0, 7, 8, 12, 15};
  alone.Step([] { return SetOf(0, 12); });
  alone.Step([] { return SetOf(12, 15); });
  const ParallelPass pass =
      FitHere(parallel, 4, [&](int64_t i) { return SetOf(ends[i], ends[i + 1]); });
  EXPECT_EQ(pass.examples, 15);
  EXPECT_EQ(pass.rounds, 2);
  EXPECT_LT(LargestDifference(one.parameters(), many.parameters()), 1e-12);
}

TEST(SeveralInputs, AnIteratorThatEndsInTheMiddleOfARoundGivesWhatItHas) {
  for (const ParallelTraining training :
       {ParallelTraining::kGradientSharing, ParallelTraining::kParameterAveraging}) {
    Network network = TwoByTwo(DType::kFloat64), expected = TwoByTwo(DType::kFloat64);
    Trainer trainer(network, Adam()), reference(expected, Adam());
    ParallelWrapper parallel(trainer, {.workers = 3, .training = training}),
        by(reference, {.workers = 3, .training = training});
    FunctionIterator<MultiDataSet> sets(5, [](int64_t i) { return SetOf(3 * i, 3 * i + 3); });
    ShieldedIterator<MultiDataSet> shielded(sets);
    std::vector<int64_t> batches;
    parallel.set_listener([&](const ParallelRound& round) { batches.push_back(round.batches); });
    parallel.Fit(sets);
    EXPECT_THAT(batches, ElementsAre(3, 2));
    sets.Reset();
    by.Fit(shielded);  // made on the calling thread
    EXPECT_EQ(network.parameters().ToVector<double>(), expected.parameters().ToVector<double>());
  }
}

TEST(SeveralInputs, WhatCannotBeIsRefusedAndTheNextPassWorks) {
  Network network = TwoByTwo(DType::kFloat64);
  Trainer trainer(network, Adam());
  ParallelWrapper parallel(trainer, {.workers = 2});
  const std::vector<double> before = network.parameters().ToVector<double>();
  const auto error_of = [&](std::function<MultiDataSet()> second) {
    const Error error = ErrorOf(
        [&] { FitOver(parallel, 2, [&](int64_t i) { return i == 0 ? SetOf(0, 4) : second(); }); });
    EXPECT_EQ(network.parameters().ToVector<double>(), before);
    EXPECT_EQ(trainer.steps(), 0);
    return error;
  };
  EXPECT_THAT(error_of([] { return MultiDataSet(); }),
              IsError(StatusCode::kInvalidArgument, {"batch 1 has no features"}));
  EXPECT_THAT(error_of([] { return SetOf(4, 4); }),
              IsError(StatusCode::kInvalidArgument,
                      {"batch 1 has features [0, 5, 3]", "at least one example"}));
  EXPECT_THAT(error_of([] {
                MultiDataSet set = SetOf(0, 4);
                set.features.pop_back();
                return set;
              }),
              IsError(StatusCode::kInvalidArgument, {"worker 1", "1 inputs, expected 2"}));
  EXPECT_THAT(error_of([] {
                MultiDataSet set = SetOf(0, 4);
                set.features[1] = Ones({3, 2}, DType::kFloat64);
                return set;
              }),
              IsError(StatusCode::kInvalidArgument, {"worker 1", "4 and 3 examples"}));
  EXPECT_THROW(FitOver(parallel, 4,
                       [](int64_t i) {
                         if (i == 3) throw std::out_of_range("no more");
                         return SetOf(4 * i, 4 * i + 4);
                       }),
               std::out_of_range);
  EXPECT_EQ(trainer.steps(), 1);
  EXPECT_EQ(FitOver(parallel, 2, [](int64_t i) { return SetOf(4 * i, 4 * i + 4); }).rounds, 1);
}

TEST(SeveralInputs, PassesTakeNothingFromTheSystem) {
  Network network = TwoByTwo(DType::kFloat32);
  Trainer trainer(network, Adam());
  ParallelWrapper parallel(trainer, {.workers = 2});
  const MultiDataSet kept[] = {SetOf(0, 6, DType::kFloat32), SetOf(6, 12, DType::kFloat32)};
  int64_t asked = 0;
  for (int pass = 0; pass < 30; ++pass) {
    FitHere(parallel, 6, [&](int64_t i) {
      const MultiDataSet& of = kept[i % 2];
      MultiDataSet set(of.features, of.labels);
      set.features_masks = of.features_masks;
      set.labels_masks = of.labels_masks;
      return set;
    });
    if (pass == 4) {
      for (int w = 0; w < 2; ++w) parallel.network(w).training_workspace().FinishPlanSearch();
    }
    if (pass == 9) asked = MemoryTracker::Global().system_allocations();
  }
  EXPECT_EQ(MemoryTracker::Global().system_allocations(), asked);
}

}  // namespace
}  // namespace tidepool::nn
