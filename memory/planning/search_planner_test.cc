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
    const int count =
        small ? std::uniform_int_distribution<int>(0, round % 20 == 1 ? 8 : 7)(random)
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

  std::stop_source later;
  options.stop = later.get_token();
  SearchPlanner interrupted(buffers, options);
  std::jthread stopper([&later] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    later.request_stop();
  });
  const Placement plan = interrupted.Run();
  EXPECT_EQ(FindPlacementViolation(buffers, 1, plan), std::nullopt);
  EXPECT_GT(interrupted.nodes(), 0);
}

TEST(SearchPlanner, EndsAtItsTimeLimit) {
  const std::vector<LifetimeBuffer> buffers = Instance("D.1048576");
  SearchOptions options = WithBudget(0);
  options.time_limit = absl::Milliseconds(50);
  const Placement plan = SearchPlanner(buffers, options).Run();
  EXPECT_EQ(FindPlacementViolation(buffers, 1, plan), std::nullopt);
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
