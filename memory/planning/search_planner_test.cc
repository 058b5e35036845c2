#include "tidepool/memory/planning/search_planner.h"

#include <chrono>
#include <optional>
#include <random>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/planning/greedy_planner.h"
#include "tidepool/memory/planning/plan_validator.h"
#include "tidepool/memory/planning/planning_testing.h"
#include "tidepool/memory/planning/problem_file.h"

namespace tidepool {
namespace {

SearchOptions WithBudget(int64_t node_budget, int64_t alignment = 1, int64_t capacity = 0) {
  SearchOptions options;
  options.alignment = alignment;
  options.capacity = capacity;
  options.time_limit = absl::InfiniteDuration();
  options.node_budget = node_budget;
  return options;
}

std::vector<LifetimeBuffer> Instance(const std::string& name) {
  return ReadProblemFile("memory/planning/testdata/" + name + ".csv").buffers;
}

TEST(SearchPlanner, HandlesEmptyProblems) {
  EXPECT_EQ(SearchPlanner({}, WithBudget(100)).Run().peak, 0);
  const Placement plan = SearchPlanner({{0, 1, 0}}, WithBudget(100)).Run();
  EXPECT_EQ(plan.offsets, (std::vector<int64_t>{0}));
}

TEST(SearchPlanner, PacksTwins) {
  // Ten times the same two: the search must not try the orders of equals.
  std::vector<LifetimeBuffer> buffers;
  for (int i = 0; i < 10; ++i) {
    buffers.push_back({0, 3, 5});
    buffers.push_back({2, 6, 7});
  }
  SearchPlanner planner(buffers, WithBudget(1000));
  const Placement plan = planner.Run();
  EXPECT_EQ(FindPlacementViolation(buffers, 1, plan), std::nullopt);
  EXPECT_EQ(plan.peak, 120);
  // And in pairs along a chain.
  const std::vector<LifetimeBuffer> odd = {{0, 2, 2}, {0, 2, 2}, {1, 4, 3}, {3, 6, 2}, {3, 6, 2},
                                           {5, 8, 3}, {5, 8, 1}, {7, 9, 2}, {7, 9, 2}};
  const Placement best = SearchPlanner(odd, WithBudget(1000)).Run();
  EXPECT_EQ(FindPlacementViolation(odd, 1, best), std::nullopt);
  EXPECT_TRUE(FitsInHeight(odd, best.peak));
  EXPECT_FALSE(FitsInHeight(odd, best.peak - 1));
}

TEST(SearchPlanner, HandlesGapsInTimeAndTouchingLifetimes) {
  // Far apart, negative times, ends where the next begins: all at offset 0.
  constexpr int64_t kFar = int64_t{1} << 62;
  const std::vector<LifetimeBuffer> buffers = {
      {-kFar, -kFar + 1, 8}, {-5, 0, 8}, {0, 7, 8}, {1000, 1001, 8}, {kFar, kFar + 1, 8}};
  const Placement plan = SearchPlanner(buffers, WithBudget(1000)).Run();
  EXPECT_EQ(plan.peak, 8);
  EXPECT_EQ(plan.offsets, std::vector<int64_t>(5, 0));
}

TEST(SearchPlanner, RoundsToTheAlignment) {
  const std::vector<LifetimeBuffer> buffers = {{0, 3, 1}, {0, 3, 64}, {1, 2, 65}, {2, 4, 0}};
  const Placement plan = SearchPlanner(buffers, WithBudget(1000, 64)).Run();
  EXPECT_EQ(FindPlacementViolation(buffers, 64, plan), std::nullopt);
  EXPECT_EQ(plan.peak, 256);
  EXPECT_EQ(plan.lower_bound, 256);
  EXPECT_EQ(plan.offsets[3], 0);
}

TEST(SearchPlanner, RefusesBadOptions) {
  EXPECT_THROW(SearchPlanner({{1, 1, 1}}, WithBudget(1)), Error);
  EXPECT_THROW(SearchPlanner({}, WithBudget(1, 0)), Error);
  EXPECT_THROW(SearchPlanner({}, WithBudget(1, 1, -1)), Error);
  EXPECT_THROW(SearchPlanner({}, WithBudget(-1)), Error);
}

TEST(SearchPlanner, OptimalOnSmallAndValidOnLargerRandomProblems) {
  constexpr uint64_t kSeed = 5;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 10000; ++round) {
    const bool small = round % 10 != 0;
    const int count = small ? std::uniform_int_distribution<int>(0, round % 20 == 1 ? 8 : 7)(random)
                            : std::uniform_int_distribution<int>(9, 50)(random);
    const int64_t horizon = std::uniform_int_distribution<int64_t>(1, 16)(random);
    const int64_t alignment = std::uniform_int_distribution<int64_t>(1, 4)(random);
    const std::vector<LifetimeBuffer> buffers =
        RandomProblem(random, count, horizon, 1 + horizon / 2, small ? 12 : 100);
    const Placement plan = SearchPlanner(buffers, WithBudget(5000, alignment)).Run();
    ASSERT_EQ(FindPlacementViolation(buffers, alignment, plan), std::nullopt) << round;
    ASSERT_LE(plan.peak, PlanGreedy(buffers, alignment).peak) << round;
    ASSERT_GE(plan.lower_bound, LiveLowerBound(buffers, alignment)) << round;
    ASSERT_GE(plan.peak, plan.lower_bound) << round;
    if (small) {
      ASSERT_EQ(plan.peak, ExhaustiveOptimum(buffers, alignment)) << round;
      ASSERT_EQ(plan.lower_bound, plan.peak) << round;  // proven
    }
  }
}

TEST(SearchPlanner, OptimalOnTightProblems) {
  constexpr uint64_t kSeed = 8;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937_64 random(kSeed);
  int above_live_bound = 0;
  for (int round = 0; round < 1000; ++round) {
    const std::vector<LifetimeBuffer> buffers = TightProblem(random, 50, 6);
    const Placement plan = SearchPlanner(buffers, WithBudget(20000)).Run();
    ASSERT_EQ(FindPlacementViolation(buffers, 1, plan), std::nullopt) << round;
    ASSERT_TRUE(FitsInHeight(buffers, plan.peak)) << round;
    ASSERT_FALSE(FitsInHeight(buffers, plan.peak - 1)) << round;
    ASSERT_EQ(plan.lower_bound, plan.peak) << round;
    above_live_bound += plan.peak > 6;
  }
  EXPECT_GT(above_live_bound, 50);
}

TEST(SearchPlanner, StopsAtTheCapacity) {
  constexpr uint64_t kSeed = 6;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 1000; ++round) {
    const std::vector<LifetimeBuffer> buffers = RandomProblem(random, 7, 8, 5, 12);
    const int64_t optimum = ExhaustiveOptimum(buffers, 4);
    // Any capacity between two multiples of the alignment counts as the lower one.
    const Placement fits = SearchPlanner(buffers, WithBudget(5000, 4, optimum + 5)).Run();
    ASSERT_EQ(FindPlacementViolation(buffers, 4, fits), std::nullopt);
    ASSERT_LE(fits.peak, optimum + 5);
    // A capacity too small: as good as without one.
    if (optimum > 1) {
      ASSERT_EQ(SearchPlanner(buffers, WithBudget(5000, 4, optimum - 1)).Run().peak, optimum);
    }
  }
}

TEST(SearchPlanner, SolvesTheMiniMallocInstances) {
  EXPECT_EQ(SearchPlanner(Instance("input.12"), WithBudget(1000)).Run().peak, 12);
  for (const char* name : {"A", "B", "C", "D", "E", "F"}) {
    const std::vector<LifetimeBuffer> buffers = Instance(std::string(name) + ".1048576");
    SearchPlanner planner(buffers, WithBudget(500000, 1, 1048576));
    const Placement plan = planner.Run();
    EXPECT_EQ(FindPlacementViolation(buffers, 1, plan), std::nullopt) << name;
    EXPECT_LE(plan.peak, 1048576) << name;
    EXPECT_LE(planner.nodes(), 500000) << name;
  }
}

TEST(SearchPlanner, ReachesTheLowerBoundOfInstances) {
  for (const char* name : {"A", "B", "C", "F"}) {
    const std::vector<LifetimeBuffer> buffers = Instance(std::string(name) + ".1048576");
    EXPECT_EQ(SearchPlanner(buffers, WithBudget(500000)).Run().peak, LiveLowerBound(buffers, 1))
        << name;
  }
}

TEST(SearchPlanner, DeterministicForANodeBudget) {
  const std::vector<LifetimeBuffer> buffers = Instance("D.1048576");
  SearchPlanner first(buffers, WithBudget(20000));
  SearchPlanner second(buffers, WithBudget(20000));
  EXPECT_EQ(first.Run().offsets, second.Run().offsets);
  EXPECT_EQ(first.nodes(), second.nodes());
  EXPECT_EQ(first.nodes(), 20000);
}

TEST(SearchPlanner, StopsWhenAsked) {
  const std::vector<LifetimeBuffer> buffers = Instance("D.1048576");
  SearchOptions options = WithBudget(0);  // Without the stop it would search for ever.
  std::stop_source source;
  options.stop = source.get_token();
  source.request_stop();
  SearchPlanner stopped(buffers, options);
  EXPECT_EQ(stopped.Run().peak, PlanGreedy(buffers, 1).peak);
  EXPECT_EQ(stopped.nodes(), 0);

  // At any other moment: it would never come back if it did not notice.
  std::stop_source later;
  options.stop = later.get_token();
  SearchPlanner interrupted(buffers, options);
  std::jthread stopper([&later] { later.request_stop(); });
  EXPECT_EQ(FindPlacementViolation(buffers, 1, interrupted.Run()), std::nullopt);
}

TEST(SearchPlanner, EndsAtItsTimeLimit) {
  const std::vector<LifetimeBuffer> buffers = Instance("D.1048576");
  SearchOptions options = WithBudget(0);
  options.time_limit = absl::Milliseconds(50);
  EXPECT_EQ(FindPlacementViolation(buffers, 1, SearchPlanner(buffers, options).Run()),
            std::nullopt);
  options.time_limit = absl::InfiniteDuration();
  options.processor_time_limit = absl::Milliseconds(50);
  EXPECT_EQ(FindPlacementViolation(buffers, 1, SearchPlanner(buffers, options).Run()),
            std::nullopt);
  options.processor_time_limit = absl::ZeroDuration();
  SearchPlanner none(buffers, options);
  EXPECT_EQ(none.Run().peak, PlanGreedy(buffers, 1).peak);
  EXPECT_EQ(none.nodes(), 0);
}

TEST(SearchPlanner, ManyBuffersGetLocalSearch) {
  constexpr uint64_t kSeed = 12;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937_64 random(kSeed);
  const std::vector<LifetimeBuffer> buffers = RandomProblem(random, 5000, 20000, 300, 1 << 20);
  const Placement plan = SearchPlanner(buffers, WithBudget(20000, 64)).Run();
  EXPECT_EQ(FindPlacementViolation(buffers, 64, plan), std::nullopt);
  EXPECT_LE(plan.peak, PlanGreedy(buffers, 64).peak);
}

}  // namespace
}  // namespace tidepool
