#include "tidepool/nn/budget/step_budget.h"

#include <cstdio>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/spill/spill_file.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_core.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/nn/layers/conv2d.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/embedding.h"
#include "tidepool/nn/layers/pooling.h"
#include "tidepool/nn/model.h"
#include "tidepool/nn/network/activation_pass.h"
#include "tidepool/nn/testing/deep_networks.h"
#include "tidepool/nn/testing/example_networks.h"
#include "tidepool/nn/testing/placement_runs.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {
namespace {

using testing::HasSubstr;

constexpr int64_t kBatch = 16;

Network Deep(const std::string& name) {
  return DeepNetwork(name, 24, SearchingBriefly(Options(WorkspaceMode::kEnabled)));
}

ActivationPlan RandomPlan(int layers, std::mt19937& random) {
  ActivationPlan plan;
  for (int i = 0; i < layers;) {
    const int length = std::min(layers - i, static_cast<int>(random() % 4) + 1);
    const auto retention = static_cast<Retention>(random() % 5);
    const bool single =
        retention != Retention::kRecompute && retention != Retention::kRecomputeSpilled;
    plan.segments.push_back({.layers = single ? 1 : length, .retention = retention});
    i += plan.segments.back().layers;
  }
  plan.spill_behind = static_cast<int>(random() % 3) + 1;
  plan.spill_ahead = static_cast<int>(random() % 3);
  return plan;
}

// What a plan is counted to keep alive is what steps by it do.
TEST(StepMeterTest, PlansAreCountedAsTheyRun) {
  const auto file = std::make_shared<SpillFile>(SpillFileOptions{.block_bytes = 4096});
  for (const char* const name : kDeepNetworks) {
    Network network = Deep(name);
    const StepShape shape{.batch = kBatch};
    const ActivationProblem problem = MeasureActivations(network, shape);
    const int layers = static_cast<int>(problem.layers.size());
    const StepMemory keep =
        MeasureStep(network, shape, PlanOfLayers(network, Retention::kKeep), nullptr, INT64_MAX);
    EXPECT_EQ(CostOf(problem, PlanOfLayers(network, Retention::kKeep)).peak_bytes, keep.live_bytes)
        << name;
    std::mt19937 random(7);
    for (int i = 0; i < 40; ++i) {
      const ActivationPlan plan = RandomPlan(layers, random);
      const StepMemory real = MeasureStep(network, shape, plan, file, INT64_MAX);
      const double ratio = static_cast<double>(CostOf(problem, plan).peak_bytes) /
                           static_cast<double>(real.live_bytes);
      // Places and bytes that steps share decide what is beyond that; plans are run before they are taken.
      EXPECT_GE(ratio, 0.9) << name << ": " << plan.ToString();
      EXPECT_LE(ratio, 1.2) << name << ": " << plan.ToString();
    }
  }
}

TrainingBits Train(Network& network, int steps) {
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
  TrainingBits trained;
  for (int i = 0; i < steps; ++i) {
    trained.losses.push_back(trainer.Step([&] {
      Batch batch{RandomUniform({kBatch, 28, 28, 1}, 0, 1, static_cast<uint64_t>(i)),
                  NDArray({kBatch}, DType::kInt64)};
      for (int64_t k = 0; k < kBatch; ++k) batch.labels.mutable_data<int64_t>()[k] = (i + k) % 10;
      return batch;
    }));
  }
  trained.arrays = BytesOf(network.arrays());
  return trained;
}

TEST(StepBudgetTest, ABudgetChangesNoBitAndIsKeptToTheByte) {
  constexpr int kSteps = 20;
  for (const char* const name : kDeepNetworks) {
    Network unlimited = Deep(name);
    const TrainingBits expected = Train(unlimited, kSteps);
    for (const char* const limit : {"75%", "50%", "25%"}) {
      for (const BudgetStrategy strategy :
           {BudgetStrategy::kAuto, BudgetStrategy::kRecompute, BudgetStrategy::kSpill}) {
        SCOPED_TRACE(std::string(name) + " " + limit + " " + BudgetStrategyName(strategy));
        Network network = Deep(name);
        const bool fits = strategy == BudgetStrategy::kAuto || limit == std::string("75%");
        StepBudgetReport report;
        try {
          report = SetStepBudget(
              network, {.limit = limit, .strategy = strategy, .shape = {.batch = kBatch}});
        } catch (const OutOfMemoryError& error) {
          EXPECT_FALSE(fits) << error.message();
          continue;
        }
        EXPECT_LE(report.planned_bytes, report.limit_bytes);
        EXPECT_EQ(Train(network, kSteps), expected);
        const StepBudgetOutcome outcome = OutcomeOf(network, report, 0);
        EXPECT_EQ(outcome.actual_bytes, report.planned_bytes);
        EXPECT_EQ(outcome.spilled_bytes, report.predicted.spilled_bytes);
        EXPECT_EQ(outcome.misses, 0u);
      }
    }
  }
}

// C++ leaves open which argument of a call is made first, and batches may be made outside of the step.
TEST(StepBudgetTest, ThePlanHoldsFromTheFirstStepOnHoweverTheBatchIsMade) {
  const auto features = [] { return RandomUniform({kBatch, 28, 28, 1}, 0, 1, 5); };
  const auto labels = [] { return RandomIntegers({kBatch}, 0, 10, 5); };
  const NDArray kept_features = features(), kept_labels = labels();
  for (const char* const name : {"residual", "lstm"}) {
    for (const std::string made : {"features first", "labels first", "outside", "labels outside"}) {
      SCOPED_TRACE(std::string(name) + ", " + made);
      Network network = Deep(name);
      const StepBudgetReport report =
          SetStepBudget(network, {.limit = "75%", .shape = {.batch = kBatch}});
      Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
      for (int i = 0; i < 3; ++i) {
        trainer.Step([&] {
          if (made == "outside") return Batch(kept_features, kept_labels);
          if (made == "labels outside") return Batch(features(), kept_labels);
          NDArray first = made == "features first" ? features() : labels();
          NDArray second = made == "features first" ? labels() : features();
          return made == "features first" ? Batch(first, second) : Batch(second, first);
        });
        const StepBudgetOutcome outcome = OutcomeOf(network, report, 0);
        if (made.ends_with("outside")) {
          EXPECT_LE(outcome.actual_bytes, report.planned_bytes) << i;
        } else {
          EXPECT_EQ(outcome.actual_bytes, report.planned_bytes) << i;
        }
        EXPECT_EQ(outcome.misses, 0u) << i;
        EXPECT_EQ(network.training_workspace().stats().spills, 0u) << i;
      }
    }
  }
}

TEST(StepBudgetTest, WhatDoesNotFitIsToldWithWhatWouldBeEnough) {
  Network network = ExampleNetwork("lenet", Options(WorkspaceMode::kEnabled));
  const StepBudget hard{.limit = "10%", .shape = {.batch = kBatch}};
  int64_t enough = 0;
  try {
    SetStepBudget(network, hard);
    FAIL();
  } catch (const OutOfMemoryError& error) {
    // What a layer takes at once is more.
    EXPECT_THAT(error.message(), HasSubstr("would have been enough"));
    EXPECT_THAT(error.report(), HasSubstr("host"));
    EXPECT_EQ(network.activations(), nullptr);
  }
  StepBudget soft = hard;
  soft.hard = false;
  const StepBudgetReport report = SetStepBudget(network, soft);
  EXPECT_FALSE(report.fits);
  enough = report.least_bytes;
  EXPECT_THAT(report.ToString(), HasSubstr("beyond it: nothing takes less"));
  const StepBudgetReport fits =
      SetStepBudget(network, {.limit = std::to_string(enough), .shape = {.batch = kBatch}});
  EXPECT_TRUE(fits.fits);
  EXPECT_LE(fits.planned_bytes, enough);

  const auto refused = [&](StepBudget budget, Network& by) {
    return MessageOf([&] { SetStepBudget(by, budget); });
  };
  for (const std::string text : {"", "0%", "101%", "-1", "much", "50 %x", "5 MB", "1e1%", "+5%"}) {
    EXPECT_THAT(refused({.limit = text, .shape = {.batch = kBatch}}, network),
                HasSubstr("step budget: limit is \"" + text + "\", expected bytes"));
  }
  EXPECT_EQ(SetStepBudget(network, {.limit = "5 MiB", .shape = {.batch = kBatch}}).limit_bytes,
            5 << 20);
  EXPECT_EQ(SetStepBudget(network, {.limit = "100 % ", .shape = {.batch = kBatch}}).limit_bytes,
            report.unlimited_bytes);
  EXPECT_THAT(refused(hard, network), HasSubstr(" would have been enough, or a smaller batch; "));
  EXPECT_THAT(refused(hard, network),
              testing::Not(HasSubstr("cannot be spilled")));  // all of it can
  EXPECT_THAT(refused({.limit = "1", .shape = {.batch = 1}}, network),
              HasSubstr(" would have been enough; "));
  EXPECT_THAT(refused({.limit = "50%", .shape = {.batch = 0}}, network), HasSubstr("a batch of 0"));
  EXPECT_THAT(refused({.limit = "50%", .costs = StepCosts{}}, network),
              HasSubstr("costs.forward_seconds has 0 values, expected"));
  Network heap = ExampleNetwork("lenet", Options(WorkspaceMode::kNone));
  EXPECT_THAT(refused({.limit = "50%"}, heap), HasSubstr("another workspace mode than enabled"));
  Network program = ExampleNetwork("program", Options(WorkspaceMode::kEnabled));
  EXPECT_THAT(refused({.limit = "50%"}, program), HasSubstr("a program's"));
}

TEST(StepBudgetTest, CostsThatAreNoneAreRefusedByNameAndChangeNothing) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity(),
                   kNaN = std::numeric_limits<double>::quiet_NaN();
  Network network = Deep("residual");
  const size_t layers = network.config()->nodes.size();
  const StepCosts good{
      std::vector<double>(layers + 1, 1e-3), std::vector<double>(layers + 1, 2e-3), 1e9, 1e9,
      std::vector<double>(layers, 0),        std::vector<double>(layers, 1e-3)};
  const auto set = [&](const StepCosts& costs) {
    return SetStepBudget(network, {.limit = "60%", .shape = {.batch = kBatch}, .costs = costs});
  };
  const ActivationPlan plan = set(good).plan;
  const auto refusal = [&](const auto& change) {
    StepCosts costs = good;
    change(costs);
    const std::string message = MessageOf([&] { set(costs); });
    EXPECT_NE(network.activations(), nullptr);
    EXPECT_EQ(network.activations()->plan, plan);
    return message;
  };
  const std::pair<const char*, std::vector<double> StepCosts::*> lists[] = {
      {"forward_seconds", &StepCosts::forward_seconds},
      {"backward_seconds", &StepCosts::backward_seconds},
      {"remake_seconds", &StepCosts::remake_seconds},
      {"again_seconds", &StepCosts::again_seconds}};
  for (const auto& [name, list] : lists) {
    const std::string field = absl::StrCat("step budget: costs.", name);
    for (const double bad : {kNaN, -kNaN, kInfinite, -kInfinite, -1e-3, 1e300}) {
      EXPECT_EQ(refusal([&](StepCosts& costs) { (costs.*list)[2] = bad; }),
                absl::StrCat(field, "[2] is ", bad, ", expected 0 to 1e+09 seconds"));
    }
    EXPECT_THAT(
        refusal([&](StepCosts& costs) { (costs.*list).push_back(0); }),
        HasSubstr(absl::StrCat(field, " has ", (good.*list).size() + 1, " values, expected ",
                               (good.*list).size(), ", of ", layers)));
  }
  const std::pair<const char*, double StepCosts::*> speeds[] = {
      {"written_bytes_per_second", &StepCosts::written_bytes_per_second},
      {"read_bytes_per_second", &StepCosts::read_bytes_per_second}};
  for (const auto& [name, speed] : speeds) {
    for (const double bad : {kNaN, kInfinite, -kInfinite, -1e9, 1e-300, 1e300}) {
      EXPECT_EQ(refusal([&](StepCosts& costs) { costs.*speed = bad; }),
                absl::StrCat("step budget: costs.", name, " is ", bad,
                             ", expected 1 to 1e+18 bytes a second, or 0 where nobody knows"));
    }
  }
  // Nobody knows the file's speed, or what a layer's second call takes.
  StepCosts least = good;
  least.written_bytes_per_second = least.read_bytes_per_second = 0;
  least.remake_seconds.clear();
  least.again_seconds.clear();
  EXPECT_TRUE(set(least).fits);
}

// With the same costs, whatever they are.
TEST(StepBudgetTest, ALargerBudgetIsNeverSlower) {
  for (const char* const name : {"residual", "lstm"}) {
    Network network = Deep(name);
    const size_t parts = network.config()->nodes.size() + 1;
    StepCosts costs{std::vector<double>(parts, 1e-3), std::vector<double>(parts, 2e-3), 1e9, 1e9};
    for (size_t i = 0; i < parts; ++i) costs.forward_seconds[i] *= static_cast<double>(1 + i % 3);
    double before = 1e30;
    for (const char* const limit : {"30%", "40%", "50%", "60%", "80%", "100%"}) {
      const StepBudgetReport report =
          SetStepBudget(network, {.limit = limit, .shape = {.batch = kBatch}, .costs = costs});
      EXPECT_LE(report.predicted.seconds, before) << name << " " << limit;
      before = report.predicted.seconds;
    }
    EXPECT_EQ(before,
              SetStepBudget(network, {.limit = "100%", .shape = {.batch = kBatch}, .costs = costs})
                  .unlimited_seconds);
    EXPECT_FALSE(network.activations()->plan.spills() || network.activations()->plan.recomputes());
  }
}

// Of a model, whose manager is capped, and where averages are kept beside parameters: to measure changes nothing.
TEST(StepBudgetTest, MeasuringLeavesTheModelAsItIs) {
  Model model("deep", 10, std::make_unique<Network>(Deep("residual")));
  const std::string before = BytesOf(model.network->arrays());
  const StepBudgetReport report =
      SetStepBudget(*model.network, {.limit = "50%", .shape = {.batch = kBatch}});
  EXPECT_GE(report.timed_batch, 1);
  EXPECT_LE(report.timed_batch, kBatch);
  EXPECT_EQ(BytesOf(model.network->arrays()), before);
  EXPECT_EQ(model.network->step(), 0u);
  EXPECT_EQ(report.ways.size(), model.network->config()->nodes.size());
  Trainer trainer(model, UpdaterConfig::Of(UpdaterKind::kSgd));
  trainer.Step([&] { return SomeBatch(kBatch, 1); });
}

// Planning itself keeps to the limit: steps whose times are measured, their features and the file's memory, beside what the tape has.
// Where a budget had no room for them, nothing would be timed.
TEST(StepBudgetTest, TimesAreMeasuredWithinTheLimit) {
  constexpr int64_t kBeside = 64 << 10;
  const std::vector<AnyLayer> small_outputs = {Conv2D(16, 3, 3, Activation::kRelu),
                                               Conv2D(8, 3, 3, Activation::kRelu), GlobalPooling(),
                                               Dense(10)};
  MemoryOwner& owner = MemoryOwner::Process().Child("planning");
  const MemoryOwnerScope scope(owner);
  MemoryBudget& budget = MemoryBudget::Global();
  for (const std::string name : {"large features", "lenet", "convolutions", "residual"}) {
    Network network = name == "large features"
                          ? Network(NetworkConfig::Sequential({40, 40, 16}, small_outputs),
                                    Options(WorkspaceMode::kEnabled))
                      : name == "lenet" ? ExampleNetwork(name, Options(WorkspaceMode::kEnabled))
                                        : Deep(name);
    SCOPED_TRACE(name);
    StepBudget within{.limit = "75%", .hard = false, .shape = {.batch = 2 * kBatch}};
    const int64_t limit = SetStepBudget(network, within).limit_bytes;
    within.limit = std::to_string(limit);
    const int64_t others = budget.Of(owner, Host()).taken_bytes;
    budget.SetOwnerLimit(owner, Host(), others + limit + kBeside);
    EXPECT_GE(SetStepBudget(network, within).timed_batch, 1);
    budget.SetOwnerLimit(owner, Host(), MemoryBudget::kUnlimited);
  }
}

// The steps that are timed are the only ones that write to their pages.
TEST(StepBudgetTest, PagesOfTimedStepsAreGivenBack) {
  MemoryBudget& budget = MemoryBudget::Global();
  for (const char* const name : {"residual", "lstm"}) {
    Network network = Deep(name);
    const StepShape shape{.batch = kBatch};
    const ActivationProblem problem = MeasureActivations(network, shape);
    const auto pages = [&] {
      return budget.Of(network.training_workspace().core()->memory_owner, Host()).taken_bytes;
    };
    const int64_t process = budget.process().taken_bytes;
    const StepTimes times = MeasureTimes(network, shape, problem, INT64_MAX / 2);
    EXPECT_EQ(times.batch, kBatch);
    EXPECT_EQ(pages(), 0) << name;
    EXPECT_LE(budget.process().taken_bytes, process) << name;
    SetStepBudget(network, {.limit = "75%", .shape = shape});
    EXPECT_EQ(pages(), 0) << name;
  }
}

// Each left some nodes of the ledger for ever, until there were no names for others.
TEST(StepBudgetTest, PlanningLeavesNothingOnTheLedger) {
  size_t owners = 0;
  for (int i = 0; i < 12; ++i) {
    if (i == 4) owners = MemoryOwner::All().size();
    Network network = Deep("convolutions");
    SetStepBudget(network, {.limit = "80%", .shape = {.batch = kBatch}});
    if (i < 4) continue;
    EXPECT_LE(MemoryOwner::All().size(), owners) << i;
  }
}

// Nobody computes in a dry run which place of a table a masked token has.
TEST(StepBudgetTest, TokensThatAreMaskedAreNotLookedUpInDryRuns) {
  std::vector<AnyLayer> layers = {Embedding(11, 4, {.mask_index = 0}), GlobalPooling(), Dense(5)};
  Network network(
      NetworkConfig::Sequential(InputConfig{"tokens", {6}, DType::kInt64}, std::move(layers)));
  for (int i = 0; i < 4; ++i) {
    const NDArray ones = Ones({4096});  // what dry runs find in memory
    const StepBudgetReport report =
        SetStepBudget(network, {.limit = "100%", .hard = false, .shape = {.batch = 8 << i}});
    EXPECT_GT(report.unlimited_bytes, 0);
  }
}

}  // namespace
}  // namespace tidepool::nn
