// What both ways of training have in common: memory, errors, life.
#include "tidepool/nn/parallel/parallel_wrapper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <climits>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/memory/spill/spill_file.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/network/activation_pass.h"
#include "tidepool/nn/parallel/parallel_testing.h"
#include "tidepool/nn/parallel/worker_group.h"

namespace tidepool::nn {
namespace {

int64_t LiveBytes() { return MemoryTracker::Global().Snapshot()[Host()].total.current_bytes; }

TEST(ParallelWrapperTest, PassesTakeNothingFromTheSystemAndHoldNoMore) {
  for (const ParallelTraining training :
       {ParallelTraining::kGradientSharing, ParallelTraining::kParameterAveraging}) {
    Network network = NetworkOf("residual");
    Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
    ParallelWrapper parallel(trainer, {.workers = 2, .training = training});
    Batches small(kUnderThreadSanitizer ? 2 : 8);
    const Batch kept[] = {small(0), small(1)};
    int64_t asked = 0, live = 0;
    for (int pass = 0; pass < (kUnderThreadSanitizer ? 14 : 40); ++pass) {
      FitHere(parallel, 6, [&](int64_t i) {
        const Batch& batch = kept[i % 2];
        return Batch(batch.features, batch.labels);
      });
      if (pass == 4) {
        for (int w = 0; w < 2; ++w) parallel.network(w).training_workspace().FinishPlanSearch();
      }
      if (pass == 9) asked = MemoryTracker::Global().system_allocations(), live = LiveBytes();
    }
    EXPECT_EQ(MemoryTracker::Global().system_allocations(), asked);
    EXPECT_EQ(LiveBytes(), live);
  }
}

// A step budget is one of each worker's step: who keeps everything takes what there may be no room for.
TEST(ParallelWrapperTest, WorkersFollowThePlanOfActivations) {
  for (const ParallelTraining training :
       {ParallelTraining::kGradientSharing, ParallelTraining::kParameterAveraging}) {
    for (const char* const name : {"mlp", "residual"}) {
      Network keeping = NetworkOf(name), planned = NetworkOf(name);
      Trainer first(keeping, UpdaterConfig::Of(UpdaterKind::kAdam)),
          second(planned, UpdaterConfig::Of(UpdaterKind::kAdam));
      ParallelWrapper kept(first, {.workers = 3, .training = training}),
          parallel(second, {.workers = 3, .training = training});
      Batches small(kUnderThreadSanitizer ? 2 : 8);
      const auto fit = [&](ParallelWrapper& wrapper) {
        FitHere(wrapper, kUnderThreadSanitizer ? 3 : 6, [&](int64_t i) { return small(i); });
      };
      fit(kept), fit(parallel);
      // Between two passes, and another one later.
      for (const Retention retention :
           {Retention::kRecompute, Retention::kSpill, Retention::kKeep}) {
        const auto layers = static_cast<size_t>(std::ssize(planned.config()->nodes));
        const ActivationPlan plan{.segments = std::vector<ActivationSegment>(
                                      layers, {.layers = 1, .retention = retention})};
        planned.SetActivationPlan(plan, std::make_shared<SpillFile>());
        fit(kept), fit(parallel);
        for (int w = 0; w < 3; ++w) {
          ASSERT_NE(parallel.network(w).activations(), nullptr) << name << w;
          EXPECT_EQ(parallel.network(w).activations()->plan, plan) << name << w;
        }
        EXPECT_EQ(planned.parameters().ToVector<float>(), keeping.parameters().ToVector<float>());
      }
      planned.SetActivationPlan({});
      fit(kept), fit(parallel);
      for (int w = 0; w < 3; ++w) EXPECT_EQ(parallel.network(w).activations(), nullptr);
      EXPECT_EQ(planned.parameters().ToVector<float>(), keeping.parameters().ToVector<float>());
    }
  }
}

TEST(ParallelWrapperTest, TheRingOfBatchesStaysFromPassToPass) {
  Network network = NetworkOf("mlp");
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
  constexpr int kSlots = 6;
  ParallelWrapper parallel(trainer, {.workers = 2, .prefetch = 2});
  Batches small(8);
  int64_t asked = 0;
  for (int pass = 0; pass < (kUnderThreadSanitizer ? 20 : 60); ++pass) {
    FitOver(parallel, 6, [&](int64_t i) { return small(i); });
    if (pass == 4) {
      for (int w = 0; w < 2; ++w) parallel.network(w).training_workspace().FinishPlanSearch();
    }
    if (pass == 9) asked = MemoryTracker::Global().system_allocations();
  }
  // Those of slots that had no batch yet; a ring of its own for each pass would be several in each.
  EXPECT_LE(MemoryTracker::Global().system_allocations() - asked, 2 * kSlots);
}

TEST(ParallelWrapperTest, SharingTakesGradientsForEachWorkerAndNoParameters) {
  Network network = NetworkOf("lenet");
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
  const int64_t before = LiveBytes();
  const int64_t gradients = static_cast<int64_t>(network.gradients().NumElements() * sizeof(float));
  const ParallelWrapper sharing(trainer, {.workers = 3});
  EXPECT_NEAR(static_cast<double>(LiveBytes() - before), 2.0 * gradients, 4096);
}

TEST(ParallelWrapperTest, RefusesWhatCannotBe) {
  Network network = NetworkOf("mlp");
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
  EXPECT_THAT(ErrorOf([&] { ParallelWrapper(trainer, {.workers = 0}); }),
              IsError(absl::StatusCode::kInvalidArgument, {"parallel wrapper", "0 workers"}));
  EXPECT_THAT(
      ErrorOf([&] { ParallelWrapper(trainer, {.workers = 100000}); }),
      IsError(absl::StatusCode::kInvalidArgument, {"100000 workers, expected at most 4096"}));
  EXPECT_THAT(ErrorOf([&] { ParallelWrapper(trainer, {.threads_of_worker = 0}); }),
              IsError(absl::StatusCode::kInvalidArgument, {"0 threads"}));
  EXPECT_THAT(ErrorOf([&] { ParallelWrapper(trainer, {.averaging_frequency = 0}); }),
              IsError(absl::StatusCode::kInvalidArgument, {"averaging_frequency 0"}));
  EXPECT_THAT(ErrorOf([&] { ParallelWrapper(trainer, {.prefetch = 0}); }),
              IsError(absl::StatusCode::kInvalidArgument, {"prefetch 0"}));
  for (const int prefetch : {40000, INT_MAX}) {
    EXPECT_THAT(ErrorOf([&] { ParallelWrapper(trainer, {.workers = 2, .prefetch = prefetch}); }),
                IsError(absl::StatusCode::kInvalidArgument,
                        {"prefetch " + std::to_string(prefetch) + " for 2 workers"}));
  }
  ParallelWrapper parallel(trainer);
  EXPECT_THAT(ErrorOf([&] { parallel.network(2); }),
              IsError(absl::StatusCode::kInvalidArgument, {"worker 2"}));
  EXPECT_THAT(ErrorOf([&] { FitOver(parallel, 1, [](int64_t) { return Batch(); }); }),
              IsError(absl::StatusCode::kInvalidArgument, {"batch 0 has no features"}));
  EXPECT_THAT(ErrorOf([&] { parallel.network(1).SetFrozen({{"0.dense"}}); }),
              IsError(absl::StatusCode::kFailedPrecondition, {"replica"}));
  const ParallelPass none = FitOver(parallel, 0, [](int64_t) { return Batch(); });
  EXPECT_EQ(none.rounds, 0);
  EXPECT_EQ(none.loss, 0);
  parallel.set_listener(
      [&](const ParallelRound&) { FitOver(parallel, 0, [](int64_t) { return Batch(); }); });
  Batches small(8);
  EXPECT_THAT(ErrorOf([&] { FitOver(parallel, 2, [&](int64_t i) { return small(i); }); }),
              IsError(absl::StatusCode::kFailedPrecondition, {"under way"}));
  network.SetFrozen({{"0.*"}});
  EXPECT_THAT(ErrorOf([&] { FitOver(parallel, 0, [](int64_t) { return Batch(); }); }),
              IsError(absl::StatusCode::kFailedPrecondition, {"frozen"}));
}

TEST(ParallelWrapperTest, AWorkersErrorLeavesTheRoundUndoneAndTheNextPassWorks) {
  Network network = NetworkOf("residual"), expected = NetworkOf("residual");
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam)),
      reference(expected, UpdaterConfig::Of(UpdaterKind::kAdam));
  ParallelWrapper parallel(trainer, {.workers = 3}), by(reference, {.workers = 3});
  Batches small(4);
  for (const int bad : {0, 1, 2}) {
    const std::vector<float> before = network.arrays().ToVector<float>();
    const Error error = ErrorOf([&] {
      FitOver(parallel, 3, [&](int64_t i) {
        return i == bad ? Batch(Zeros({4, 5}), Zeros({4}, DType::kInt64)) : small(i);
      });
    });
    EXPECT_THAT(error, IsError(absl::StatusCode::kInvalidArgument,
                               {"worker " + std::to_string(bad), "[4, 5]"}));
    EXPECT_EQ(network.arrays().ToVector<float>(), before);
    EXPECT_EQ(trainer.steps(), bad);
    // Numbers that layers draw are as if the round had not been.
    FitOver(parallel, 3, [&](int64_t i) { return small(i); });
    FitOver(by, 3, [&](int64_t i) { return small(i); });
    EXPECT_EQ(network.arrays().ToVector<float>(), expected.arrays().ToVector<float>());
  }
}

TEST(ParallelWrapperTest, ErrorsSayWhichBatchOfThePassTheyAreOf) {
  for (const ParallelTraining training :
       {ParallelTraining::kGradientSharing, ParallelTraining::kParameterAveraging}) {
    Network network = NetworkOf("mlp");
    Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
    ParallelWrapper parallel(trainer, {.workers = 2, .training = training});
    Batches small(4);
    const auto bad = [&](int64_t i) {
      return i == 5 ? Batch(Zeros({4, 5}), Zeros({4}, DType::kInt64)) : small(i);
    };
    const auto broken = [&](int64_t i) {
      if (i == 5) ThrowDataLoss("broken");
      return small(i);
    };
    const auto is_of_batch_5 = [](const char* what) {
      return ::testing::ResultOf(
          [](const Error& error) { return std::string(error.message()); },
          ::testing::AllOf(::testing::HasSubstr("batch 5"), ::testing::HasSubstr(what)));
    };
    EXPECT_THAT(ErrorOf([&] { FitOver(parallel, 8, bad); }),
                is_of_batch_5("parallel wrapper: worker 1: batch 5: "));
    EXPECT_THAT(ErrorOf([&] { FitHere(parallel, 8, bad); }),
                is_of_batch_5("parallel wrapper: worker 1: batch 5: "));
    EXPECT_THAT(ErrorOf([&] { FitOver(parallel, 8, broken); }), is_of_batch_5(": broken"));
    EXPECT_EQ(ErrorOf([&] { FitHere(parallel, 8, broken); }).message(),
              "parallel wrapper: batch 5: broken");
  }
}

TEST(ParallelWrapperTest, AnErrorThatWorkersShareIsNotWrittenTo) {
  const std::exception_ptr kept =
      std::make_exception_ptr(Error(absl::StatusCode::kUnavailable, "disk"));
  WorkerGroup group("group", 4, 1);
  for (int round = 0; round < 50; ++round) {
    EXPECT_EQ(ErrorOf([&] { group.Run(4, [&](int) { std::rethrow_exception(kept); }); }).message(),
              "group: worker 0: disk");
  }
  EXPECT_EQ(ErrorOf([&] { std::rethrow_exception(kept); }).message(), "disk");
  const Error diverged =
      ErrorOf([&] { group.Run(2, [](int) { throw DivergedError("no scale helps"); }); });
  EXPECT_EQ(diverged.message(), "group: worker 0: no scale helps");
}

// As whoever unfreezes layer by layer may think of.
TEST(ParallelWrapperTest, ParametersThatAListenerFreezesEndThePassByAnError) {
  for (const ParallelTraining training :
       {ParallelTraining::kGradientSharing, ParallelTraining::kParameterAveraging}) {
    Network network = NetworkOf("mlp");
    Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
    ParallelWrapper parallel(trainer, {.workers = 2, .training = training});
    Batches small(4);
    parallel.set_listener(
        [&](const ParallelRound&) { network.SetFrozen({network.named_parameters()[0].name}); });
    EXPECT_THAT(
        ErrorOf([&] { FitOver(parallel, 8, [&](int64_t i) { return small(i); }); }),
        IsError(absl::StatusCode::kFailedPrecondition, {"were frozen or not since it was made"}));
    EXPECT_EQ(trainer.steps(), 1);
  }
}

TEST(ParallelWrapperTest, AProducersErrorComesOutAsItIsBehindTheRoundsBeforeIt) {
  Network network = NetworkOf("mlp");
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
  ParallelWrapper parallel(trainer, {.workers = 2,
                                     .training = ParallelTraining::kParameterAveraging,
                                     .averaging_frequency = 100});
  Batches small(4);
  EXPECT_THROW(FitOver(parallel, 9,
                       [&](int64_t i) {
                         if (i == 4) throw std::out_of_range("no more");
                         return small(i);
                       }),
               std::out_of_range);
  EXPECT_EQ(trainer.steps(), 2);
  EXPECT_EQ(parallel.network(1).parameters().ToVector<float>(),
            network.parameters().ToVector<float>());
}

TEST(ParallelWrapperTest, APassBeginsWithWhatTheTrainerHasThen) {
  for (const ParallelTraining training :
       {ParallelTraining::kGradientSharing, ParallelTraining::kParameterAveraging}) {
    Network network = NetworkOf("mlp"), other = NetworkOf("mlp", {.seed = 6});
    Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd)),
        others(other, UpdaterConfig::Of(UpdaterKind::kSgd));
    ParallelWrapper parallel(trainer, {.workers = 2, .training = training});
    Batches small(4);
    FitOver(parallel, 2, [&](int64_t i) { return small(i); });
    NDArray parameters = network.parameters();
    CopyInto(other.parameters(), parameters);
    ParallelWrapper by(others, {.workers = 2, .training = training});
    FitOver(parallel, 4, [&](int64_t i) { return small(i); });
    FitOver(by, 4, [&](int64_t i) { return small(i); });
    EXPECT_EQ(network.parameters().ToVector<float>(), other.parameters().ToVector<float>());
  }
}

}  // namespace
}  // namespace tidepool::nn
