#include "tidepool/nn/budget/activation_planner.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <utility>
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

// Some layers, in chains, can be sliced: less memory for more time.
ActivationProblem RandomSlices(ActivationProblem problem, std::mt19937& random) {
  int chain = 0;
  for (LayerActivations& layer : problem.layers) {
    if (random() % 3 == 0) ++chain;
    layer.chain = random() % 3 == 0 ? -1 : chain;
    layer.parameter_bytes = static_cast<int64_t>(random() % 5);
  }
  for (const int64_t examples : {2, 4}) {
    SlicedActivations slice{.examples = examples, .layers = problem.layers, .array_bytes = {}};
    slice.forward_factor = 1 + static_cast<double>(random() % 4) / static_cast<double>(examples);
    slice.backward_factor = 1 + static_cast<double>(random() % 4) / static_cast<double>(examples);
    for (LayerActivations& layer : slice.layers) {
      layer.forward_bytes = layer.forward_bytes * examples / 8;
      layer.backward_bytes = layer.backward_bytes * examples / 8;
    }
    for (const ActivationArray& array : problem.arrays)
      slice.array_bytes.push_back(array.bytes * examples / 8);
    problem.slices.push_back(std::move(slice));
  }
  return problem;
}

bool IsOfOneChain(const ActivationProblem& problem, int begin, int layers) {
  const int chain = problem.layers[static_cast<size_t>(begin)].chain;
  for (int i = begin; i < begin + layers; ++i) {
    if (problem.layers[static_cast<size_t>(i)].chain != chain) return false;
  }
  return chain >= 0;
}

// What is computed again in slices of so many examples wherever it can be.
ActivationPlan InSlices(const ActivationProblem& problem, ActivationPlan plan, int64_t examples) {
  int begin = 0;
  for (ActivationSegment& segment : plan.segments) {
    if (segment.recomputes() && IsOfOneChain(problem, begin, segment.layers))
      segment.slice = examples;
    begin += segment.layers;
  }
  return plan;
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
    ActivationProblem problem = RandomProblem(layers, random);
    if (seed % 2 == 1) problem = RandomSlices(std::move(problem), random);
    for (const BudgetStrategy strategy : kStrategies) {
      ASSERT_LE(layers, LayersSearchedExhaustively(strategy));
      const std::vector<PlannedActivations> plans = FindPlans(problem, strategy);
      ActivationPlan plan;
      ForEachPlan(layers, RetentionsOf(strategy), plan, 0, [&](const ActivationPlan& other) {
        if (RecomputesViewsAlone(problem, other)) return;
        for (const int64_t examples : {0, 2, 4}) {
          if (examples > 0 && problem.slices.empty()) continue;
          const ActivationPlan sliced = InSlices(problem, other, examples);
          const ActivationCost cost = CostOf(problem, sliced);
          EXPECT_LE(SecondsWithin(plans, cost.peak_bytes), cost.seconds)
              << "seed " << seed << " " << BudgetStrategyName(strategy) << " " << sliced.ToString();
        }
      });
    }
  }
}

// Segments in slices are of one chain, and of sizes that there are. Returns how many there are.
int CheckSlices(const ActivationProblem& problem, const ActivationPlan& plan) {
  int begin = 0, count = 0;
  for (const ActivationSegment& segment : plan.segments) {
    if (segment.slice != 0) {
      ++count;
      EXPECT_TRUE(segment.recomputes() && IsOfOneChain(problem, begin, segment.layers))
          << plan.ToString();
      EXPECT_TRUE(segment.slice == 2 || segment.slice == 4) << plan.ToString();
    }
    begin += segment.layers;
  }
  return count;
}

TEST(ActivationPlannerTest, LargerBudgetsAreNeverSlowerAndNoPureChoiceIsBetter) {
  for (const int layers : {9, 10, 40, 60, 61, 300}) {
    std::mt19937 random(static_cast<uint32_t>(layers));
    ActivationProblem problem = RandomProblem(layers, random);
    const bool can_slice = layers == 10 || layers == 61;
    if (can_slice) problem = RandomSlices(std::move(problem), random);
    for (const BudgetStrategy strategy : kStrategies) {
      const std::vector<PlannedActivations> plans = FindPlans(problem, strategy);
      ASSERT_FALSE(plans.empty());
      int slices = 0;
      for (const PlannedActivations& one : plans) slices += CheckSlices(problem, one.plan);
      const bool computes =
          strategy == BudgetStrategy::kAuto || strategy == BudgetStrategy::kRecompute;
      if (!can_slice || !computes) EXPECT_EQ(slices, 0) << layers << BudgetStrategyName(strategy);
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

// Two convolutions, say, that can be sliced, and a layer that cannot: of a batch of 8.
ActivationProblem ChainOfTwo() {
  ActivationProblem problem;
  problem.layers.assign(3, {.forward_seconds = 1,
                            .backward_seconds = 2,
                            .forward_bytes = 8,
                            .backward_bytes = 8,
                            .gradient_bytes = 16,
                            .parameter_bytes = 3});
  problem.layers[0].chain = problem.layers[1].chain = 0;
  problem.loss = {
      .forward_seconds = 1, .backward_seconds = 1, .forward_bytes = 1, .backward_bytes = 1};
  problem.arrays = {{.bytes = 80, .made = 0, .used_until = 1, .input_of = {1}, .kept_by = {0, 1}},
                    {.bytes = 40, .made = 1, .used_until = 2, .input_of = {2}, .kept_by = {1, 2}},
                    {.bytes = 10, .made = 2, .used_until = 3, .kept_by = {2}}};
  for (const int64_t examples : {2, 4}) {
    const int64_t parts = 8 / examples;
    SlicedActivations slice{.examples = examples,
                            .layers = std::vector<LayerActivations>(3),
                            .array_bytes = {80 / parts, 40 / parts, 10 / parts},
                            .forward_factor = examples == 2 ? 1.5 : 1.25,
                            .backward_factor = examples == 2 ? 2 : 1.5};
    for (LayerActivations& layer : slice.layers)
      layer.forward_bytes = layer.backward_bytes = 8 / parts;
    problem.slices.push_back(slice);
  }
  return problem;
}

// A slice's arrays are there at a time, and its output as a whole from the segment's beginning on; while its gradients are computed
// those of its output, its input and its parameters are.
TEST(ActivationProblemTest, SlicesAreCountedTickByTick) {
  constexpr Retention kAgain = Retention::kRecompute;
  const ActivationProblem problem = ChainOfTwo();
  const struct {
    std::vector<ActivationSegment> segments;
    std::vector<int64_t> alive;
    double seconds, recompute_seconds;
  } cases[] = {{{{1}, {1}, {1}}, {8, 88, 128, 131, 131, 138, 128, 88}, 11, 0},
               {{{2, kAgain}, {1}}, {8, 88, 48, 51, 51, 58, 24, 104, 128, 88}, 13, 2},
               {{{2, kAgain, 4}, {1}}, {44, 84, 48, 51, 51, 58, 50, 90, 110, 90}, 16, 2.5},
               {{{2, kAgain, 2}, {1}}, {42, 62, 48, 51, 51, 58, 48, 68, 78, 68}, 19, 3},
               // What one segment gives the next is there as a whole.
               {{{1, kAgain, 2}, {1, kAgain, 2}, {1}},
                {82, 122, 128, 131, 131, 138, 205, 215, 85, 105},
                19,
                3}};
  for (const auto& one : cases) {
    const ActivationPlan plan{.segments = one.segments};
    SCOPED_TRACE(plan.ToString());
    std::vector<int64_t> alive;
    const ActivationCost cost = CostOf(problem, plan, &alive);
    EXPECT_EQ(alive, one.alive);
    EXPECT_EQ(cost.peak_bytes, *std::max_element(alive.begin(), alive.end()));
    EXPECT_EQ(cost.seconds, one.seconds);
    EXPECT_EQ(cost.recompute_seconds, one.recompute_seconds);
  }
}

// What the planner takes for a budget, of which chains there are.
TEST(ActivationPlannerTest, ChainsAreSlicedWhereABudgetAsksForIt) {
  ActivationProblem no_chain = ChainOfTwo(), two_chains = ChainOfTwo(), no_slices = ChainOfTwo();
  no_chain.layers[0].chain = no_chain.layers[1].chain = -1;
  two_chains.layers[1].chain = 1;
  no_slices.slices.clear();
  ActivationProblem longer = ChainOfTwo();
  while (longer.layers.size() < 20) {
    const auto layer = static_cast<int>(longer.layers.size());
    longer.layers.push_back({.forward_seconds = 1, .backward_seconds = 2});
    longer.arrays.push_back(
        {.bytes = 1, .made = layer, .used_until = layer + 1, .kept_by = {layer}});
    for (SlicedActivations& slice : longer.slices) {
      slice.layers.emplace_back();
      slice.array_bytes.push_back(1);
    }
  }
  const ActivationProblem one_chain = ChainOfTwo();
  const struct {
    const char* name;
    const ActivationProblem& problem;
    BudgetStrategy strategy;
    int64_t budget;
    const char* plan;  // null: none fits
  } cases[] = {
      {"all", one_chain, BudgetStrategy::kRecompute, 138, "keep 3 layers"},
      {"whole", one_chain, BudgetStrategy::kRecompute, 137, "recompute 2 layers, keep 1"},
      {"larger slices", one_chain, BudgetStrategy::kRecompute, 127,
       "recompute 2 layers in slices of 4, keep 1"},
      {"smaller slices", one_chain, BudgetStrategy::kRecompute, 109,
       "recompute 2 layers in slices of 2, keep 1"},
      {"nothing", one_chain, BudgetStrategy::kRecompute, 77, nullptr},
      {"auto", one_chain, BudgetStrategy::kAuto, 78, "recompute 2 layers in slices of 2, keep 1"},
      {"no way", one_chain, BudgetStrategy::kNone, 137, nullptr},
      {"file alone", one_chain, BudgetStrategy::kSpill, 78, nullptr},
      {"no chain", no_chain, BudgetStrategy::kRecompute, 127, nullptr},
      {"no slices", no_slices, BudgetStrategy::kRecompute, 127, nullptr},
      {"two chains", two_chains, BudgetStrategy::kRecompute, 127, nullptr},
      {"more than are looked through", longer, BudgetStrategy::kAuto, 80,
       "recompute 2 layers in slices of 2, keep 18"}};
  for (const auto& one : cases) {
    SCOPED_TRACE(one.name);
    std::string found;
    for (const PlannedActivations& each : FindPlans(one.problem, one.strategy)) {
      if (each.cost.peak_bytes > one.budget) continue;
      found = each.plan.ToString();
      break;
    }
    EXPECT_EQ(found, one.plan == nullptr ? "" : one.plan);
  }
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
