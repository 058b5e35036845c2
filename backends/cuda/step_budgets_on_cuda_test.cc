// Training within a budget on an emulated device: planned by addresses alone, to the bits of training without one.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/backends/cuda/emulation/emulated_cuda.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/loss.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/nn/budget/budget_follower.h"
#include "tidepool/nn/budget/step_budget.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/embedding.h"
#include "tidepool/nn/layers/normalization.h"
#include "tidepool/nn/layers/recurrent.h"
#include "tidepool/nn/layers/sequence.h"
#include "tidepool/nn/losses/loss.h"
#include "tidepool/nn/memory_report.h"
#include "tidepool/nn/models.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {
namespace {

using testing::HasSubstr;

constexpr Device kDevice{DeviceType::kCuda, 0};
constexpr int64_t kBatch = 64;

NetworkOptions OnDevice() {
  NetworkOptions options;
  options.seed = 5;
  options.device = kDevice;
  return options;
}
NetworkConfig Images() { return ResidualConfig({6, 6, 1}, 3, {2, 4}); }
NetworkConfig Rows() {
  std::vector<AnyLayer> layers;
  for (int i = 0; i < 8; ++i) layers.push_back(Dense(128, Activation::kTanh));
  layers.push_back(LayerNormalization());
  layers.push_back(Dense(3));
  return NetworkConfig::Sequential({16}, layers);
}

NDArray Features(const Network& network, int64_t i, int64_t batch = kBatch) {
  std::vector<int64_t> dims = {batch};
  for (const int64_t d : network.inputs()[0].shape.span()) dims.push_back(d);
  return RandomUniform(Shape(dims), 0, 1, DType::kFloat32, static_cast<uint64_t>(i));
}
NDArray Labels(int64_t i, int64_t batch = kBatch) {
  return RandomIntegers({batch}, 0, 3, static_cast<uint64_t>(i));
}

struct Outcome {
  std::vector<double> losses;
  std::vector<float> arrays;
};

Outcome Train(Network& network, int steps, int64_t batch = kBatch) {
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
  Outcome run;
  for (int i = 0; i < steps; ++i) {
    run.losses.push_back(
        trainer.Step([&] { return Batch(Features(network, i, batch), Labels(i, batch)); }));
  }
  run.arrays = network.arrays().ToVector<float>();
  return run;
}

// What pools keep is given back, so that what is used can be compared.
int64_t UsedOfDevice() {
  EmulatedCuda::Get().Finish();
  Reclaimer::Global().RunNow();
  return static_cast<int64_t>(EmulatedCuda::Get().used_bytes());
}

class StepBudgetsOnCuda : public testing::Test {
 protected:
  ~StepBudgetsOnCuda() override { EmulatedCuda::Get().set_capacity(size_t{1} << 30); }
  // The device has so many bytes beside those that are in use.
  static void Leave(int64_t bytes) {
    EmulatedCuda::Get().set_capacity(static_cast<size_t>(UsedOfDevice() + bytes));
  }
};

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

class FollowersOnCuda : public StepBudgetsOnCuda {
 protected:
  ~FollowersOnCuda() override {
    MemoryBudget::Global().SetDeviceLimit(kDevice, MemoryBudget::kUnlimited);
    MemoryBudget::Global().SetProcessLimit(MemoryBudget::kUnlimited);
  }
  static int64_t Taken() {
    UsedOfDevice();
    return MemoryBudget::Global().Of(kDevice).taken_bytes;
  }
};

TEST_F(FollowersOnCuda, LimitsOfTheDeviceAreFollowedAsTheyChange) {
  Network kept(Rows(), OnDevice());
  const Outcome expected = Train(kept, 9);
  Network network(Rows(), OnDevice());
  BudgetFollower follower(network, {.shape = {.batch = kBatch}});
  EXPECT_FALSE(follower.Follow());
  // What a trainer holds is there before.
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
  const int64_t others = Taken();
  int step = 0;
  std::vector<double> losses;
  for (const int64_t left : {int64_t{1} << 20, int64_t{300} << 10, int64_t{1} << 20}) {
    const bool lowered = step > 0 && left < follower.allowed_bytes();
    // A limit below what is taken takes effect at the next step.
    MemoryBudget::Global().SetDeviceLimit(kDevice, others + left);
    if (lowered) {
      EXPECT_LE(follower.allowed_bytes(), left);
    }
    EXPECT_TRUE(follower.Follow());
    ASSERT_NE(follower.report(), nullptr);
    EXPECT_LE(follower.report()->planned_bytes, left);
    const ActivationPlan& plan = follower.report()->plan;
    EXPECT_EQ(plan.spills() || plan.recomputes(), left < (1 << 20)) << follower.ToString();
    for (int i = 0; i < 3; ++i, ++step) {
      EXPECT_FALSE(follower.Follow());
      losses.push_back(trainer.Step([&] { return Batch(Features(network, step), Labels(step)); }));
    }
    EXPECT_LE(MemoryBudget::Global().Of(kDevice).taken_bytes, others + left);
  }
  EXPECT_EQ(losses, expected.losses);
  EXPECT_EQ(network.arrays().ToVector<float>(), expected.arrays);
}

// Of another device than the network's none, of the process all.
TEST_F(FollowersOnCuda, OnlyLimitsOfTheNetworksDeviceCount) {
  Network network(Rows(), OnDevice());
  BudgetFollower follower(network, {.shape = {.batch = kBatch}});
  MemoryBudget::Global().SetDeviceLimit(Host(), int64_t{1} << 30);
  EXPECT_EQ(follower.allowed_bytes(), MemoryBudget::kUnlimited);
  MemoryBudget::Global().SetDeviceLimit(Host(), MemoryBudget::kUnlimited);
  const int64_t taken = MemoryBudget::Global().process().taken_bytes;
  MemoryBudget::Global().SetProcessLimit(taken + (300 << 10));
  EXPECT_EQ(follower.allowed_bytes(), 300 << 10);
  EXPECT_TRUE(follower.Follow());
  MemoryBudget::Global().SetProcessLimit(taken + 1000);
  const absl::Status status = CatchStatus([&] { follower.Follow(); });
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("follows the limit of the process"));
  MemoryBudget::Global().SetProcessLimit(MemoryBudget::kUnlimited);
  MemoryBudget::Global().SetDeviceLimit(kDevice, 1000);
  EXPECT_THAT(CatchStatus([&] { follower.Follow(); }).message(),
              HasSubstr("follows the limit of device cuda:0"));
}

// Steps are captured again behind each plan, in the workspace that there is then.
TEST_F(FollowersOnCuda, TrainersWithGraphs) {
  Network kept(Rows(), OnDevice());
  const auto step = [&](Trainer& trainer, Network& network, int i) {
    return trainer.Step([&] { return Batch(Features(network, i), Labels(i)); });
  };
  std::vector<double> expected, losses;
  Trainer of_kept(kept, UpdaterConfig::Of(UpdaterKind::kSgd));
  for (int i = 0; i < 18; ++i) expected.push_back(step(of_kept, kept, i));
  Network network(Rows(), OnDevice());
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
  trainer.set_graphs(true);
  StepShape shape{.batch = kBatch};
  shape.trainer = &trainer;
  int i = 0;
  for (const char* const limit : {"100%", "65%", "80%"}) {
    SetStepBudget(network,
                  {.limit = limit, .strategy = BudgetStrategy::kRecompute, .shape = shape});
    const int64_t launches = trainer.graph_stats()->launches;
    for (const int end = i + 6; i < end; ++i) losses.push_back(step(trainer, network, i));
    EXPECT_GT(trainer.graph_stats()->launches, launches) << limit;
    EXPECT_GT(network.training_workspace().stats().cycles, 0u) << limit;
    EXPECT_EQ(trainer.graph_stats()->failures, 0) << trainer.graph_stats()->last_failure;
  }
  EXPECT_EQ(losses, expected);
  // Who does not tell of the trainer is told.
  EXPECT_THAT(CatchStatus([&] {
                SetStepBudget(network, {.limit = "50%", .shape = {.batch = kBatch}});
              }).message(),
              HasSubstr("Trainer::ForgetGraph"));
}

}  // namespace
}  // namespace tidepool::nn
