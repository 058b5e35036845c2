#include "tidepool/nn/budget/activation_planner.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/nn/budget/activation_problem.h"

namespace tidepool::nn {
namespace {

constexpr BudgetStrategy kStrategies[] = {BudgetStrategy::kAuto, BudgetStrategy::kSpill,
                                          BudgetStrategy::kRecompute, BudgetStrategy::kNone};

ActivationProblem RandomProblem(int layers, std::mt19937& random) {
  const auto up_to = [&](int most) {
    return static_cast<int>(random() % static_cast<uint32_t>(most + 1));
  };
  ActivationProblem problem;
  problem.constant_bytes = up_to(50);
  problem.written_bytes_per_second = 1 + up_to(60);
  problem.read_bytes_per_second = 1 + up_to(60);
  problem.file_bytes = up_to(20);
  problem.layers.resize(static_cast<size_t>(layers));
  for (LayerActivations& layer : problem.layers) {
    layer.forward_seconds = up_to(10);
    layer.backward_seconds = 2 * layer.forward_seconds;
    layer.forward_bytes = up_to(60);
    layer.backward_bytes = up_to(60);
    layer.gradient_bytes = up_to(30);
    layer.is_view = up_to(9) == 0;
  }
  for (int made = 0; made < layers; ++made) {
    for (int k = up_to(2); k >= 0; --k) {
      ActivationArray array{
          .bytes = 1 + up_to(100), .made = made, .used_until = made, .can_spill = up_to(5) > 0};
      for (int user = made + 1; user < layers; ++user) {
        if (up_to(user == made + 1 ? 1 : 4) > 0) continue;
        array.input_of.push_back(user);
        array.used_until = user;
      }
      if (up_to(2) > 0) array.kept_by.push_back(made);
      for (const int user : array.input_of) {
        if (up_to(1) > 0) array.kept_by.push_back(user);
      }
      problem.arrays.push_back(array);
    }
  }
  return problem;
}

// Every plan: cuts at every place, in every way.
void ForEachPlan(int layers, const std::vector<Retention>& ways, ActivationPlan& plan, int begin,
                 const std::function<void(const ActivationPlan&)>& see) {
  if (begin == layers) return see(plan);
  for (const Retention way : ways) {
    const bool recomputes = way == Retention::kRecompute || way == Retention::kRecomputeSpilled;
    for (int length = 1; length <= (recomputes ? layers - begin : 1); ++length) {
      plan.segments.push_back({.layers = length, .retention = way});
      ForEachPlan(layers, ways, plan, begin + length, see);
      plan.segments.pop_back();
    }
  }
}

std::vector<Retention> RetentionsOf(BudgetStrategy strategy) {
  switch (strategy) {
    case BudgetStrategy::kAuto:
      return {Retention::kKeep, Retention::kSpill, Retention::kRecompute,
              Retention::kRecomputeSpilled};
    case BudgetStrategy::kSpill:
      return {Retention::kKeep, Retention::kSpill};
    case BudgetStrategy::kRecompute:
      return {Retention::kKeep, Retention::kRecompute};
    case BudgetStrategy::kNone:
      return {Retention::kKeep};
  }
  return {};
}

double SecondsWithin(const std::vector<PlannedActivations>& plans, int64_t budget) {
  for (const PlannedActivations& one : plans) {
    if (one.cost.peak_bytes <= budget) return one.cost.seconds;
  }
  return std::numeric_limits<double>::infinity();
}

// A segment that computes nothing is as fast kept, and its views need no memory; the planner does not recompute it.
bool RecomputesViewsAlone(const ActivationProblem& problem, const ActivationPlan& plan) {
  int begin = 0;
  for (const ActivationSegment& segment : plan.segments) {
    bool computes = false;
    for (int i = begin; i < begin + segment.layers; ++i)
      computes = computes || !problem.layers[static_cast<size_t>(i)].is_view;
    if (!computes && segment.recomputes()) return true;
    begin += segment.layers;
  }
  return false;
}

TEST(ActivationPlannerTest, NoPlanOfASmallNetworkIsBetter) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const int layers = 1 + static_cast<int>(seed % 6);
    const ActivationProblem problem = RandomProblem(layers, random);
    for (const BudgetStrategy strategy : kStrategies) {
      ASSERT_LE(layers, LayersSearchedExhaustively(strategy));
      const std::vector<PlannedActivations> plans = FindPlans(problem, strategy);
      ActivationPlan plan;
      ForEachPlan(layers, RetentionsOf(strategy), plan, 0, [&](const ActivationPlan& other) {
        if (RecomputesViewsAlone(problem, other)) return;
        const ActivationCost cost = CostOf(problem, other);
        EXPECT_LE(SecondsWithin(plans, cost.peak_bytes), cost.seconds)
            << "seed " << seed << " " << BudgetStrategyName(strategy) << " " << other.ToString();
      });
    }
  }
}

TEST(ActivationPlannerTest, LargerBudgetsAreNeverSlowerAndNoPureChoiceIsBetter) {
  for (const int layers : {9, 40, 60, 300}) {
    std::mt19937 random(static_cast<uint32_t>(layers));
    const ActivationProblem problem = RandomProblem(layers, random);
    for (const BudgetStrategy strategy : kStrategies) {
      const std::vector<PlannedActivations> plans = FindPlans(problem, strategy);
      ASSERT_FALSE(plans.empty());
      for (size_t i = 0; i < plans.size(); ++i) {
        // What is told of a plan is what it comes to.
        const ActivationCost cost = CostOf(problem, plans[i].plan);
        EXPECT_EQ(cost.peak_bytes, plans[i].cost.peak_bytes);
        EXPECT_EQ(cost.seconds, plans[i].cost.seconds);
        if (i == 0) continue;
        EXPECT_LT(plans[i].cost.peak_bytes, plans[i - 1].cost.peak_bytes);
        EXPECT_GT(plans[i].cost.seconds, plans[i - 1].cost.seconds);
      }
      for (const Retention way : RetentionsOf(strategy)) {
        ActivationPlan pure;
        for (int i = 0; i < layers; ++i) {
          const bool keeps =
              problem.layers[static_cast<size_t>(i)].is_view && way != Retention::kSpill;
          pure.segments.push_back({.layers = 1, .retention = keeps ? Retention::kKeep : way});
        }
        const ActivationCost cost = CostOf(problem, pure);
        EXPECT_LE(SecondsWithin(plans, cost.peak_bytes), cost.seconds)
            << layers << " layers, " << RetentionName(way);
      }
    }
  }
}

// Eight layers alike, of arrays of 10 bytes that each layer and the next one read.
ActivationProblem Chain() {
  ActivationProblem problem;
  problem.layers.assign(8, {.forward_seconds = 1,
                            .backward_seconds = 2,
                            .forward_bytes = 10,
                            .backward_bytes = 10,
                            .gradient_bytes = 10});
  problem.loss = {.forward_seconds = 1, .backward_seconds = 1};
  for (int i = 0; i < 8; ++i) {
    ActivationArray array{.bytes = 10, .made = i, .used_until = i + 1, .kept_by = {i}};
    if (i < 7) {
      array.input_of = {i + 1};
      array.kept_by.push_back(i + 1);
    }
    problem.arrays.push_back(array);
  }
  problem.written_bytes_per_second = problem.read_bytes_per_second = 10;
  return problem;
}

TEST(ActivationProblemTest, AChainIsCountedTickByTick) {
  const ActivationProblem problem = Chain();
  ActivationPlan keep{.segments = std::vector<ActivationSegment>(8)};
  std::vector<int64_t> alive;
  const ActivationCost kept = CostOf(problem, keep, &alive);
  EXPECT_EQ(kept.peak_bytes, 90);  // eight arrays and a gradient
  EXPECT_EQ(kept.seconds, 8 * 3 + 2);
  EXPECT_EQ(alive, (std::vector<int64_t>{10, 20, 30, 40, 50, 60, 70, 80, 80, 80, 90, 80, 70, 60, 50,
                                         40, 30, 20}));

  // The input of the second half is all that is kept of the first one, which is rebuilt beside the gradient that came to it.
  ActivationPlan halves{.segments = {{4, Retention::kRecompute}, {4, Retention::kRecompute}}};
  const ActivationCost recomputed = CostOf(problem, halves, &alive);
  EXPECT_EQ(recomputed.seconds, kept.seconds + 8);
  EXPECT_EQ(recomputed.recompute_seconds, 8);
  EXPECT_EQ(recomputed.peak_bytes, 60);

  // An array takes a second each way, as long as a layer: nobody waits for the writes, and reads are late where gradients are next.
  ActivationPlan spilled{.segments = std::vector<ActivationSegment>(8, {1, Retention::kSpill})};
  const ActivationCost spills = CostOf(problem, spilled, &alive);
  EXPECT_EQ(spills.spilled_bytes, 80);
  EXPECT_LT(spills.peak_bytes, 60);
  EXPECT_LE(spills.stall_seconds, 8);
  EXPECT_EQ(spills.seconds, kept.seconds + spills.stall_seconds);
}

TEST(ActivationPlannerTest, StrategiesAreReadByName) {
  for (const BudgetStrategy strategy : kStrategies)
    EXPECT_EQ(ParseBudgetStrategy("flag", BudgetStrategyName(strategy)), strategy);
  try {
    ParseBudgetStrategy("flag --budget_strategy", "disk");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.message(),
              "flag --budget_strategy is \"disk\", expected auto, spill, recompute or none");
  }
  EXPECT_THROW(FindPlans({}, BudgetStrategy::kAuto), Error);
}

}  // namespace
}  // namespace tidepool::nn
