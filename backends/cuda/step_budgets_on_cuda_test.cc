// Training within a budget on an emulated device: planned by addresses alone, to the bits of training without one.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/backends/cuda/step_budget_runs.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/loss.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/nn/budget/step_budget.h"
#include "tidepool/nn/budget/step_meter.h"
#include "tidepool/nn/layers/embedding.h"
#include "tidepool/nn/layers/recurrent.h"
#include "tidepool/nn/layers/sequence.h"
#include "tidepool/nn/losses/loss.h"
#include "tidepool/nn/memory_report.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {
namespace {

using testing::HasSubstr;

TEST_F(StepBudgetsOnCuda, StepsKeepToItWithTheSameBits) {
  for (const NetworkConfig& config : {Rows(), Images()}) {
    Network kept(config, OnDevice());
    const Outcome expected = Train(kept, 4);
    for (const auto& [strategy, limit] :
         {std::pair{BudgetStrategy::kAuto, "75%"}, std::pair{BudgetStrategy::kAuto, "55%"},
          std::pair{BudgetStrategy::kRecompute, "70%"}, std::pair{BudgetStrategy::kSpill, "60%"}}) {
      SCOPED_TRACE(absl::StrCat(BudgetStrategyName(strategy), " ", limit));
      Network network(config, OnDevice());
      const StepBudgetReport report = SetStepBudget(
          network, {.limit = limit, .strategy = strategy, .shape = {.batch = kBatch}});
      EXPECT_TRUE(report.fits);
      EXPECT_LE(report.planned_bytes, report.limit_bytes);
      EXPECT_EQ(report.file_bytes, 0);
      EXPECT_EQ(report.tape_bytes, 0);
      EXPECT_THAT(report.ToString(), HasSubstr(" bytes to the host and back"));
      const Outcome run = Train(network, 4);
      EXPECT_EQ(run.losses, expected.losses) << report.ToString();
      EXPECT_EQ(run.arrays, expected.arrays) << report.ToString();
      const StepBudgetOutcome outcome = OutcomeOf(network, report, 0);
      EXPECT_EQ(outcome.actual_bytes, outcome.planned_bytes) << report.ToString();
      EXPECT_EQ(outcome.misses, 0u);
      EXPECT_EQ(outcome.spilled_bytes, outcome.predicted_spilled_bytes) << report.ToString();
    }
  }
}

// However a step's batch is made: there or on the host, in the step or before it, in any order.
TEST_F(StepBudgetsOnCuda, EveryBatchFollowsThePlan) {
  Network network(Rows(), OnDevice());
  const StepBudgetReport report =
      SetStepBudget(network, {.limit = "60%", .shape = {.batch = kBatch}});
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
  const NDArray features = Features(network, 0), labels = Labels(0);
  const NDArray features_there = features.CopyTo(Place::On(kDevice)),
                labels_there = labels.CopyTo(Place::On(kDevice));
  for (int i = 0; i < 3; ++i) {
    trainer.Step([&] { return Batch(features, labels); });
    trainer.Step([&] { return Batch(features_there, labels_there); });
    trainer.Step([&] { return Batch(features, labels_there); });
    trainer.Step([&] {
      const NDArray first = Features(network, i);
      return Batch(first, Labels(i));
    });
    trainer.Step([&] {
      const NDArray first = Labels(i);
      return Batch(Features(network, i), first);
    });
    EXPECT_EQ(network.training_workspace().stats().misses, report.misses) << i;
    EXPECT_LE(OutcomeOf(network, report, 0).actual_bytes, report.planned_bytes) << i;
  }
}

// Dry steps take addresses, timed ones what the limit has room for.
TEST_F(StepBudgetsOnCuda, PlanningTakesNoMoreOfTheDeviceThanSteps) {
  constexpr int64_t kBeside = 1 << 20;  // granularity, pools, what libraries keep
  const StepShape shape{.batch = 16 * kBatch};
  Network network(Rows(), OnDevice());
  const int64_t unlimited =
      SetStepBudget(network, {.limit = "100%", .shape = shape}).unlimited_bytes;
  ASSERT_GT(unlimited, 4 * kBeside);
  ClearStepBudget(network);
  const int64_t limit = unlimited / 2;
  Leave(limit + kBeside);
  // Everything cannot be kept there, so the step that tells how much that is was none of the device's.
  const StepBudgetReport report =
      SetStepBudget(network, {.limit = absl::StrCat(limit), .shape = shape});
  EXPECT_EQ(report.unlimited_bytes, unlimited);
  EXPECT_GT(report.timed_batch, 0);
  Train(network, 2, shape.batch);
  EXPECT_EQ(OutcomeOf(network, report, 0).actual_bytes, report.planned_bytes);
}

// Batches that the device has no memory for are reported as others are.
TEST_F(StepBudgetsOnCuda, MemoryReportsTakeNothingOfTheDevice) {
  Network network(Rows(), OnDevice());
  const Outcome before = Train(network, 1);
  network.set_training_workspace(WorkspaceMode::kEnabled, std::nullopt);
  network.set_inference_workspace(WorkspaceMode::kEnabled, std::nullopt);
  Leave(256 << 10);
  const int64_t used = UsedOfDevice();
  const MemoryReport small = ReportMemory(network, {.batch = kBatch});
  const MemoryReport large = ReportMemory(network, {.batch = 1 << 20});
  EXPECT_GT(large.training.planned_bytes, (1 << 13) * small.training.planned_bytes);
  EXPECT_GT(large.inference.planned_bytes, int64_t{1} << 28);
  EXPECT_EQ(UsedOfDevice(), used);
  EXPECT_EQ(network.arrays().ToVector<float>(), before.arrays);
  EmulatedCuda::Get().set_capacity(size_t{1} << 30);
  Train(network, 3);
  const int64_t planned =
      static_cast<int64_t>(network.training_workspace().stats().planned_peak_bytes);
  EXPECT_EQ(planned, small.training.planned_bytes);
}

TEST_F(StepBudgetsOnCuda, GradientsAreThoseThatWere) {
  Network network(Rows(), OnDevice());
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
  trainer.ComputeGradients(Batch(Features(network, 1), Labels(1)));
  const std::vector<float> gradients = network.gradients().ToVector<float>(),
                           arrays = network.arrays().ToVector<float>();
  SetStepBudget(network, {.limit = "60%", .shape = {.batch = kBatch}});
  EXPECT_EQ(network.gradients().ToVector<float>(), gradients);
  EXPECT_EQ(network.arrays().ToVector<float>(), arrays);
  trainer.Update();
  // Nobody has computed any since.
  SetStepBudget(network, {.limit = "50%", .shape = {.batch = kBatch}});
  EXPECT_THAT(CatchStatus([&] { trainer.Update(); }).message(), HasSubstr("without gradients"));
}

// What has room on the host waits there, though more would be better.
TEST_F(StepBudgetsOnCuda, AsMuchWaitsAsMay) {
  Network network(Rows(), OnDevice());
  StepBudget budget{.limit = "75%", .strategy = BudgetStrategy::kSpill, .shape = {.batch = kBatch}};
  int64_t before = -1;
  for (const int64_t most : {160 << 10, 1 << 20}) {
    budget.most_waiting_bytes = most;
    const StepBudgetReport report = SetStepBudget(network, budget);
    EXPECT_LE(report.predicted.spilled_bytes, most) << report.ToString();
    EXPECT_GT(report.predicted.spilled_bytes, before) << report.ToString();
    before = std::max<int64_t>(0, report.predicted.spilled_bytes);
  }
  budget.most_waiting_bytes = 0;
  EXPECT_THAT(CatchStatus([&] { SetStepBudget(network, budget); }).message(),
              HasSubstr("would have been enough"));
}

// Who measures by hand goes on with memory.
TEST_F(StepBudgetsOnCuda, StepsBehindMeasuring) {
  Network kept(Rows(), OnDevice()), network(Rows(), OnDevice());
  EXPECT_GT(MeasureStep(network, {.batch = kBatch}, {}, nullptr, INT64_MAX).planned_bytes, 0);
  EXPECT_EQ(Train(network, 1).losses, Train(kept, 1).losses);
  EXPECT_FALSE(MeasureActivations(network, {.batch = kBatch}).layers.empty());
  EXPECT_EQ(Train(network, 1).losses, Train(kept, 1).losses);
}

// A first size that is not to be had any more when planning has failed is learned instead: no addresses stay behind.
TEST_F(StepBudgetsOnCuda, WorkspacesWhoseFirstSizeIsGone) {
  Network kept(Rows(), OnDevice()), network(Rows(), OnDevice());
  WorkspaceConfig large;
  large.initial_size = 8 << 20;
  network.set_training_workspace(WorkspaceMode::kEnabled, large);
  EmulatedCuda::Get().allocation_faults().FailRequest(0, int64_t{1} << 40);
  EXPECT_FALSE(CatchStatus([&] {
                 SetStepBudget(network, {.limit = "3%", .shape = {.batch = kBatch}});
               }).ok());
  EmulatedCuda::Get().allocation_faults().Clear();
  EXPECT_EQ(Train(network, 1).losses, Train(kept, 1).losses);
}

TEST_F(StepBudgetsOnCuda, WorkspacesThatPlanNothingThereAreRefused) {
  WorkspaceConfig on_host, bypassed;
  on_host.policy_mirroring = MirroringPolicy::kHostOnly;
  bypassed.debug_mode = DebugMode::kBypassEverything;
  for (const auto& [config, why] :
       {std::pair{on_host, "kHostOnly"}, std::pair{bypassed, "is switched off"}}) {
    Network network(Rows(), OnDevice());
    network.set_training_workspace(WorkspaceMode::kEnabled, config);
    const absl::Status status =
        CatchStatus([&] { SetStepBudget(network, {.limit = "60%", .shape = {.batch = kBatch}}); });
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(status.message(), HasSubstr(why));
    EXPECT_GT(ReportMemory(network, {.batch = kBatch}).training_bytes(), 0);
  }
}

TEST_F(StepBudgetsOnCuda, WhatDoesNotFitIsRefusedAndEverythingIsKept) {
  Network kept(Rows(), OnDevice()), network(Rows(), OnDevice());
  const absl::Status status =
      CatchStatus([&] { SetStepBudget(network, {.limit = "3%", .shape = {.batch = kBatch}}); });
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("would have been enough"));
  const Outcome expected = Train(kept, 3), run = Train(network, 3);
  EXPECT_EQ(run.losses, expected.losses);
  EXPECT_EQ(run.arrays, expected.arrays);
}

// What layers, losses and a program's own functions make and look at on the host in a dry run is of no device.
TEST_F(StepBudgetsOnCuda, WhatTheHostLooksAtInDryRuns) {
  const NetworkConfig sequences =
      NetworkConfig::Sequential({6, 8}, {SinusoidalPositions(), Lstm(8), LastTimeStep(), Dense(3)});
  StepShape masked{.batch = 4};
  masked.features_masks = {InputConfig{"mask", {6}, DType::kFloat32}};
  const auto step = [](Network& network, const StepShape& shape) {
    const auto report = SetStepBudget(network, {.limit = "90%", .hard = false, .shape = shape});
    EXPECT_GT(report.planned_bytes, 0);
    Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
    const NDArray features = RandomUniform({shape.batch, 6, 8}, 0, 1, 1);
    trainer.Step([&] { return Batch(features, RandomIntegers({shape.batch}, 0, 3, 1)); });
  };
  Network positions(sequences, OnDevice());
  EXPECT_GT(ReportMemory(positions, {.batch = 4}).training.planned_bytes, 0);
  SetStepBudget(positions, {.limit = "100%", .shape = masked});
  step(positions, {.batch = 4});
  for (const LossConfig& config :
       {LossConfig{.label_smoothing = 0.1}, LossConfig{.class_weights = {1, 2, 3}}}) {
    Network network(sequences, OnDevice());
    network.set_loss(Loss(config));
    step(network, {.batch = 4});
  }
  // Labels are zeros, or what the program writes, wherever its loss looks at them.
  for (const bool writes : {false, true}) {
    Network network(sequences, OnDevice());
    network.set_loss([writes](absl::Span<const NDArray> outputs, const NetworkInputs& in) {
      for (const int64_t label : in.labels[0].ToVector<int64_t>()) {
        if (label < (writes ? 1 : 0) || label > 2)
          ThrowInvalidArgument(absl::StrCat("label ", label));
      }
      return SoftmaxCrossEntropy(outputs[0], in.labels[0], Labels::kChecked).loss;
    });
    StepShape shape{.batch = 4};
    if (writes) shape.write_labels = [](size_t, NDArray& labels) { FillInto(1, labels); };
    SetStepBudget(network, {.limit = "100%", .shape = shape});
  }
}

// The last calls of planning bring the gradients back.
TEST_F(StepBudgetsOnCuda, GradientsThatCannotBeBroughtBackAreTold) {
  Network network(Rows(), OnDevice());
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
  trainer.ComputeGradients(Batch(Features(network, 1), Labels(1)));
  const std::vector<float> gradients = network.gradients().ToVector<float>();
  int told = 0;
  int64_t calls = 0;
  const auto plan = [&] {
    SetStepBudget(network, {.limit = "60%", .hard = false, .shape = {.batch = kBatch}});
  };
  EmulatedCuda::Get().call_faults().Clear();
  plan();
  calls = EmulatedCuda::Get().call_faults().requests();
  for (int64_t last = 1; last <= 12; ++last) {
    for (const int64_t times : {1, 4}) {
      EmulatedCuda::Get().call_faults().FailRequest(calls - last, times);
      const absl::Status status = CatchStatus(plan);
      EmulatedCuda::Get().call_faults().Clear();
      const bool as_before = network.gradients().ToVector<float>() == gradients;
      EXPECT_TRUE(as_before || !status.ok()) << last;
      if (as_before) continue;
      ++told;
      EXPECT_THAT(status.message(), HasSubstr("have to be computed again")) << last;
      NDArray lost = network.gradients();
      CopyInto(FromValues(absl::MakeConstSpan(gradients), lost.shape()), lost);
    }
  }
  EXPECT_GT(told, 0);
}

// Whichever call of the driver is refused: an error, or a plan that is followed; the bits are the same.
TEST_F(StepBudgetsOnCuda, RefusedCallsWhilePlanning) {
  Network kept(Rows(), OnDevice());
  const Outcome expected = Train(kept, 2);
  FaultPlan* const plans[] = {&EmulatedCuda::Get().allocation_faults(),
                              &EmulatedCuda::Get().call_faults()};
  int failed = 0;
  for (FaultPlan* const faults : plans) {
    for (int64_t call = 0; call < 60; call += 6) {
      Network network(Rows(), OnDevice());
      const int64_t version = network.gradients().buffer()->version.load();
      const auto plan = [&] {
        SetStepBudget(network, {.limit = "65%", .shape = {.batch = kBatch}});
      };
      faults->FailRequest(call);
      const absl::Status status = CatchStatus(plan);
      faults->Clear();
      if (!status.ok()) ++failed;
      EXPECT_EQ(network.gradients().buffer()->version.load(), version) << call << status;
      if (call % 12 == 0) plan();
      const Outcome run = Train(network, 2);
      EXPECT_EQ(run.losses, expected.losses) << call << status;
      EXPECT_EQ(run.arrays, expected.arrays) << call << status;
    }
  }
  EXPECT_GT(failed, 4);
}

}  // namespace
}  // namespace tidepool::nn
