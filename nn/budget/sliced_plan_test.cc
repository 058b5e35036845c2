// Segments that are computed in slices of the batch: the bits of the whole, less memory, and what is refused.
#include <algorithm>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/nn/budget/activation_problem.h"
#include "tidepool/nn/budget/step_budget.h"
#include "tidepool/nn/budget/step_meter.h"
#include "tidepool/nn/layers/conv2d.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/max_pool2d.h"
#include "tidepool/nn/layers/normalization.h"
#include "tidepool/nn/network/activation_plan.h"
#include "tidepool/nn/testing/deep_networks.h"
#include "tidepool/nn/testing/example_networks.h"
#include "tidepool/nn/testing/placement_runs.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {
namespace {

using testing::HasSubstr;

// Batches of several sizes, most of which are no multiples of slices.
TrainingBits Train(Network& network, int steps = 8) {
  constexpr int64_t kBatches[] = {32, 32, 13, 32, 5, 1};
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
  TrainingBits trained;
  for (int i = 0; i < steps; ++i) {
    trained.losses.push_back(trainer.Step(
        [&] { return SomeBatch(kBatches[i % std::size(kBatches)], static_cast<uint64_t>(i)); }));
  }
  trained.arrays = BytesOf(network.arrays());
  return trained;
}

// Convolutions alone, and of strides, paddings and without bias; a chain behind something else, whose input has a gradient.
Network Strided(const NetworkOptions& options) {
  Conv2dAttributes strided;
  strided.stride_height = strided.stride_width = 2;
  return Network(
      NetworkConfig::Sequential(
          {28, 28, 1}, {Conv2D(4, 3, 3, Activation::kTanh, Conv2D::SamePadding(3)),
                        Conv2D(24, 3, 3, Activation::kRelu, Conv2D::SamePadding(3)),
                        Conv2D(32, 3, 3, Activation::kIdentity, strided), MaxPool2D(),
                        Conv2D(8, 2, 2, Activation::kRelu, {}, {.bias = false}), Dense(10)}),
      options);
}

Network Made(const std::string& name) {
  const NetworkOptions options = Options(WorkspaceMode::kEnabled);
  if (name == "strided") return Strided(options);
  if (name == "convolutions") return DeepNetwork(name, 6, options);
  return ExampleNetwork(name, options);
}

struct Case {
  const char* network;
  std::vector<ActivationSegment> segments;
};

constexpr Retention kAgain = Retention::kRecompute;

TEST(SlicedPlanTest, SlicesGiveTheBitsOfTheWholeBatch) {
  const std::vector<Case> cases = {
      {"lenet", {{4, kAgain, 4}, {2}}},
      {"lenet", {{4, kAgain, 12}, {2}}},
      {"lenet", {{4, kAgain, 64}, {2, kAgain}}},
      {"lenet", {{1, kAgain, 3}, {1, kAgain, 1}, {1, kAgain, 8}, {1}, {2}}},
      {"lenet", {{2, kAgain, 1}, {2, kAgain, 4}, {2}}},
      {"strided", {{1}, {3, kAgain, 7}, {1, kAgain, 10}, {1}}},
      {"strided", {{1}, {4, kAgain, 10}, {1}}},
      {"convolutions", {{2, kAgain, 1}, {4, kAgain, 2}, {2}}}};
  std::string of;
  TrainingBits expected;
  for (const Case& one : cases) {
    if (of != one.network) {
      Network unlimited = Made(one.network);
      expected = Train(unlimited);
      of = one.network;
    }
    Network network = Made(one.network);
    const ActivationPlan plan{.segments = one.segments};
    SCOPED_TRACE(of + ": " + plan.ToString());
    ASSERT_NO_THROW(network.SetActivationPlan(plan));
    EXPECT_EQ(Train(network), expected);
  }
}

// What a plan is counted to take is what steps by it do, nearly.
TEST(SlicedPlanTest, ASliceIsAllThatThereIsOfASegment) {
  Network network = Made("lenet");
  const StepShape shape{.batch = 32};
  const ActivationProblem problem = MeasureActivations(network, shape);
  ASSERT_EQ(problem.slices.size(), 3u);
  EXPECT_EQ(problem.slices[0].examples, 2);
  EXPECT_EQ(problem.slices[2].examples, 8);
  EXPECT_EQ(problem.layers[3].chain, problem.layers[0].chain);
  EXPECT_EQ(problem.layers[4].chain, -1);
  const auto planned = [&](const ActivationPlan& plan) {
    return MeasureStep(network, shape, plan, nullptr, INT64_MAX).planned_bytes;
  };
  const int64_t all = planned(PlanOfLayers(network, Retention::kKeep));
  int64_t before = planned({{{4, kAgain}, {2}}});
  EXPECT_GT(before, all / 2) << "the first convolution is most of it";
  for (const int64_t slice : {8, 4, 2}) {
    for (const int cut : {4, 2}) {
      ActivationPlan plan{{{cut, kAgain, slice}}};
      if (cut < 4) plan.segments.push_back({4 - cut, kAgain, slice});
      plan.segments.push_back({2});
      const int64_t bytes = planned(plan);
      const int64_t counted = CostOf(problem, plan).peak_bytes;
      std::printf("%s: %lld of %lld bytes, counted %lld\n", plan.ToString().c_str(),
                  static_cast<long long>(bytes), static_cast<long long>(all),
                  static_cast<long long>(counted));
      EXPECT_GT(static_cast<double>(counted), 0.95 * static_cast<double>(bytes));
      EXPECT_LT(static_cast<double>(counted), 1.05 * static_cast<double>(bytes));
      if (cut < 4) continue;
      EXPECT_LT(bytes, before);
      before = bytes;
    }
  }
  EXPECT_LT(before, all / 4);
}

// 200 steps of LeNet within less than its first convolution takes are those without a budget.
TEST(SlicedPlanTest, LeNetTrainsWithinLessThanItsLargestLayer) {
  constexpr int kSteps = 200;
  const UpdaterConfig adam = UpdaterConfig::Of(UpdaterKind::kAdam);
  const auto step = [](Trainer& trainer, int i) {
    return trainer.Step([i] { return SomeBatch(32, static_cast<uint64_t>(i)); });
  };
  Network unlimited = Made("lenet");
  std::vector<double> losses;
  {
    Trainer trainer(unlimited, adam);
    for (int i = 0; i < kSteps; ++i) losses.push_back(step(trainer, i));
  }
  const size_t parts = unlimited.config()->nodes.size() + 1;
  for (const char* const limit : {"75%", "50%", "25%"}) {
    SCOPED_TRACE(limit);
    Network network = Made("lenet");
    StepBudget budget{.limit = limit, .shape = {.batch = 32}};
    budget.costs = {std::vector<double>(parts, 1e-3), std::vector<double>(parts, 2e-3), 1e9, 1e9};
    const StepBudgetReport report = SetStepBudget(network, budget);
    EXPECT_LE(report.planned_bytes, report.limit_bytes);
    EXPECT_THAT(report.ToString(), HasSubstr(" in slices of "));
    Trainer trainer(network, adam);
    for (int i = 0; i < kSteps; ++i)
      ASSERT_EQ(step(trainer, i), losses[static_cast<size_t>(i)]) << i;
    EXPECT_EQ(BytesOf(network.arrays()), BytesOf(unlimited.arrays()));
    const StepBudgetOutcome outcome = OutcomeOf(network, report, 0);
    EXPECT_EQ(outcome.actual_bytes, report.planned_bytes);
    EXPECT_EQ(outcome.misses, 0u);
    std::printf("%s: %lld of %lld bytes, %s\n", limit, static_cast<long long>(report.planned_bytes),
                static_cast<long long>(report.unlimited_bytes), report.plan.ToString().c_str());
  }
}

TEST(SlicedPlanTest, WhatLooksAtSeveralExamplesIsRefused) {
  const auto refusal = [](Network& network, std::vector<ActivationSegment> segments) {
    return MessageOf([&] { network.SetActivationPlan({std::move(segments)}); });
  };
  Network lenet = Made("lenet"), strided = Made("strided");
  EXPECT_THAT(refusal(lenet, {{5, kAgain, 4}, {1}}),
              HasSubstr("slices of the batch, of layers 0 to 4: [dense 500 relu], expected conv2d "
                        "or max_pool2d"));
  EXPECT_THAT(refusal(lenet, {{4, kAgain, 5}, {2}}),
              HasSubstr("slices of 5 examples, expected a multiple of 2"));
  EXPECT_THAT(refusal(lenet, {{4, Retention::kKeep, 4}, {2}}),
              HasSubstr("slices of 4 of segments that keep, expected"));
  EXPECT_THAT(refusal(lenet, {{4, kAgain, -4}, {2}}), HasSubstr("slices of -4"));
  EXPECT_THAT(refusal(strided, {{1, kAgain, 1}, {5}}), HasSubstr("expected relu or no function"));
  Network normed(NetworkConfig::Sequential(
                     {28, 28, 1}, {Conv2D(4, 3, 3), BatchNormalization(), MaxPool2D(), Dense(10)}),
                 Options(WorkspaceMode::kEnabled));
  EXPECT_THAT(refusal(normed, {{2, kAgain, 1}, {2}}), HasSubstr("[batch_norm "));
  Conv2dAttributes groups = Conv2D::SamePadding(3);
  groups.groups = 2;
  Network grouped(
      NetworkConfig::Sequential(
          {28, 28, 1}, {Conv2D(4, 3, 3), Conv2D(4, 3, 3, Activation::kRelu, groups), Dense(10)}),
      Options(WorkspaceMode::kEnabled));
  EXPECT_THAT(refusal(grouped, {{2, kAgain, 1}, {1}}), HasSubstr("expected one group"));
  Network residual = Made("residual");
  EXPECT_EQ(residual.SliceOf(0, static_cast<int>(residual.config()->nodes.size())), 0);
  NetworkOptions wide = Options(WorkspaceMode::kEnabled);
  wide.dtype = DType::kFloat64;
  Network f64 = ExampleNetwork("lenet", wide);
  EXPECT_THAT(refusal(f64, {{4, kAgain, 4}, {2}}), HasSubstr("another type than f32"));
  EXPECT_EQ(lenet.SliceOf(0, 4), 2);
  EXPECT_EQ(lenet.SliceOf(0, 2), 1);
  for (const auto& [begin, layers] : std::vector<std::pair<int, int>>{
           {0, -1}, {1, INT_MAX}, {INT_MAX, INT_MAX}, {-1, 1}, {INT_MIN, 2}, {0, 0}, {4, 100}}) {
    std::string reason;
    EXPECT_EQ(lenet.SliceOf(begin, layers, &reason), 0) << begin << ", " << layers;
    EXPECT_THAT(reason, testing::HasSubstr("layers")) << begin << ", " << layers;
  }
}

// Kernels that promise nothing of their sums over the batch are not asked for slices; where a scope asks for them later, the batch is
// one slice.
TEST(SlicedPlanTest, OtherBackendsHaveTheWholeBatch) {
  Network whole = Made("lenet"), sliced = Made("lenet");
  sliced.SetActivationPlan({{{4, kAgain, 2}, {2}}});
  const ScopedProvider reference("reference");
  std::string why;
  EXPECT_EQ(whole.SliceOf(0, 4, &why), 0);
  EXPECT_THAT(why, HasSubstr("another backend than cpu"));
  const auto trained = [](Network& network) {
    Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
    for (uint64_t i = 0; i < 3; ++i) trainer.Step([&] { return SomeBatch(7, i); });
    return BytesOf(network.arrays());
  };
  EXPECT_TRUE(trained(sliced) == trained(whole));
}

}  // namespace
}  // namespace tidepool::nn
