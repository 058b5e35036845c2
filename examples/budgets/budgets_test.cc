// What docs/budgets.md shows.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/spill/spill_file.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/loss.h"
#include "tidepool/nn/budget/budget_follower.h"
#include "tidepool/nn/budget/spilled_trainer.h"
#include "tidepool/nn/budget/step_budget.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/pooling.h"
#include "tidepool/nn/layers/recurrent.h"
#include "tidepool/nn/layers/sequence.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/network/activation_plan.h"
#include "tidepool/nn/network_config.h"
#include "tidepool/nn/parameter_file.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {
namespace {

Network SixteenLayers() {
  std::vector<AnyLayer> layers(16, Dense(256, Activation::kTanh));
  layers.push_back(Dense(10));
  return Network({64}, layers, /*seed=*/1);
}

Batch MakeBatch(int64_t size) {
  return {RandomUniform({size, 64}, -1, 1, 1), Zeros({size}, DType::kInt64)};
}

// [budget]
double TrainWithin(Network& network, const std::string& limit, int steps) {
  const StepBudgetReport report = SetStepBudget(network, {.limit = limit, .shape = {.batch = 256}});
  std::printf("%s", report.ToString().c_str());  // peak, time, what each layer does

  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
  double loss = 0;
  for (int i = 0; i < steps; ++i) loss = trainer.Step([] { return MakeBatch(256); });

  std::printf("%s", OutcomeOf(network, report, /*seconds_per_step=*/0).ToString().c_str());
  return loss;
}
// [budget]

// [follow]
// Within what the budgets of the process and of owners leave, whatever they are by the time of a step.
double TrainWithinWhatIsLeft(Network& network, int steps) {
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
  BudgetFollower budget(network, {.shape = {.batch = 256}});
  double loss = 0;
  for (int i = 0; i < steps; ++i) {
    if (budget.Follow()) std::printf("%s", budget.ToString().c_str());  // it was planned anew
    loss = trainer.Step([] { return MakeBatch(256); });
  }
  return loss;
}
// [follow]

// [plan]
// By hand: the first eight layers are computed again from their input, the next four wait in a file.
void PlanByHand(Network& network) {
  ActivationPlan plan;
  plan.segments.push_back({.layers = 8, .retention = Retention::kRecompute});
  for (int i = 0; i < 4; ++i)
    plan.segments.push_back({.layers = 1, .retention = Retention::kSpill});
  plan.segments.push_back({.layers = 5, .retention = Retention::kKeep});
  network.SetActivationPlan(plan, std::make_shared<SpillFile>());
}
// [plan]

// [parameters]
// Parameters and the updater's state in a file: 4 MiB of them are in memory at a time.
double TrainFromAFile(NetworkConfig config, const std::string& path, int steps) {
  Network network(config, {.seed = 1, .hosted_parameters = true});
  SpilledTrainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam), {.memory_bytes = 4 << 20});
  double loss = 0;
  for (int i = 0; i < steps; ++i) loss = trainer.Step([] { return MakeBatch(256); });
  trainer.SaveParameters(path);  // as any network's
  return loss;
}
// [parameters]

TEST(BudgetsTest, ParametersInAFile) {
  std::vector<AnyLayer> layers(16, Dense(256, Activation::kTanh));
  layers.push_back(Dense(10));
  const NetworkConfig config = NetworkConfig::Sequential({64}, layers);
  Network whole(config, {.seed = 1});
  Trainer trainer(whole, UpdaterConfig::Of(UpdaterKind::kAdam));
  double expected = 0;
  for (int i = 0; i < 3; ++i) expected = trainer.Step([] { return MakeBatch(256); });
  const std::string path = testing::TempDir() + "/from_a_file.safetensors";
  EXPECT_EQ(TrainFromAFile(config, path, 3), expected);
  Network read(config, {.seed = 2});
  LoadParameters(path, read);
  EXPECT_EQ(read.parameters().ToVector<float>(), whole.parameters().ToVector<float>());
}

TEST(BudgetsTest, TheGuideTrainsToTheSameLoss) {
  Network unlimited = SixteenLayers(), within = SixteenLayers(), by_hand = SixteenLayers();
  const double expected = TrainWithin(unlimited, "100%", 5);
  EXPECT_EQ(TrainWithin(within, "50%", 5), expected);
  PlanByHand(by_hand);
  Trainer trainer(by_hand, UpdaterConfig::Of(UpdaterKind::kAdam));
  double loss = 0;
  for (int i = 0; i < 5; ++i) loss = trainer.Step([] { return MakeBatch(256); });
  EXPECT_EQ(loss, expected);
}

// [masks]
// Sequences of up to 40 steps: lengths differ by their masks.
StepBudgetReport LimitMasked(Network& network, const Trainer& trainer) {
  StepShape shape{.batch = 64, .features_masks = {InputConfig{"mask", {40}, DType::kFloat32}}};
  shape.trainer = &trainer;  // it clips gradients by their norm
  return SetStepBudget(network, {.limit = "50%", .shape = shape});
}
// [masks]

// [labels]
// Classes of this loss begin with 1.
StepBudgetReport LimitOwnLoss(Network& network) {
  StepShape shape{.batch = 64};
  shape.write_labels = [](size_t, NDArray& labels) { labels.Slice(0, 0, labels.dim(0)) = 1; };
  return SetStepBudget(network, {.limit = "50%", .shape = shape});
}
// [labels]

TEST(BudgetsTest, LabelsOfALossOfOnesOwn) {
  Network network = SixteenLayers();
  network.set_loss([](absl::Span<const NDArray> outputs, const NetworkInputs& inputs) {
    return SoftmaxCrossEntropy(outputs[0], inputs.labels[0] - 1).loss;
  });
  EXPECT_THROW(SetStepBudget(network, {.limit = "50%", .shape = {.batch = 64}}), Error);
  const StepBudgetReport report = LimitOwnLoss(network);
  EXPECT_LE(report.planned_bytes, report.limit_bytes);
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
  for (int i = 0; i < 2; ++i) {
    trainer.Step([] {
      return Batch{RandomUniform({64, 64}, -1, 1, 1), Ones({64}, DType::kInt64)};
    });
  }
  EXPECT_EQ(OutcomeOf(network, report, 0).misses, 0u);
}

TEST(BudgetsTest, SequencesOfOtherLengthsKeepToThePlan) {
  Network network({40, 8}, {Lstm(32), Lstm(32), Lstm(32), GlobalPooling(), Dense(10)}, /*seed=*/1);
  UpdaterConfig adam = UpdaterConfig::Of(UpdaterKind::kAdam);
  adam.clipping = {ClippingKind::kGlobalNorm, 1};
  Trainer trainer(network, adam);
  const StepBudgetReport report = LimitMasked(network, trainer);
  for (int i = 0; i < 3; ++i) {
    trainer.Step([i] {
      Batch batch{RandomUniform({64, 40, 8}, -1, 1, 1), Zeros({64}, DType::kInt64)};
      batch.features_mask = Ones({64, 40});
      batch.features_mask.Slice(1, 10 + i, 40) = 0.0;
      return batch;
    });
  }
  EXPECT_EQ(OutcomeOf(network, report, 0).misses, 0u);
  EXPECT_LE(OutcomeOf(network, report, 0).actual_bytes, report.limit_bytes);
}

TEST(BudgetsTest, ALimitOfTheOwnerIsFollowed) {
  Network unlimited = SixteenLayers();
  const double expected = TrainWithinWhatIsLeft(unlimited, 5);
  MemoryOwner& job = MemoryOwner::Process().Child("job");
  std::unique_ptr<Network> network;
  {
    const MemoryOwnerScope owner(job);
    network = std::make_unique<Network>(SixteenLayers());
  }
  // Parameters and gradients are there; the updater's state and a step are to come.
  MemoryBudget& budget = MemoryBudget::Global();
  const int64_t there = budget.Of(job, Host()).taken_bytes;
  budget.SetOwnerLimit(job, Host(), there + (12 << 20));
  {
    const MemoryOwnerScope owner(job);
    EXPECT_EQ(TrainWithinWhatIsLeft(*network, 5), expected);
  }
  EXPECT_EQ(budget.Of(job, Host()).over_bytes(), 0);
  budget.SetOwnerLimit(job, Host(), MemoryBudget::kUnlimited);
}

}  // namespace
}  // namespace tidepool::nn
