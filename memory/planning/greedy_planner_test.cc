#include "tidepool/memory/planning/greedy_planner.h"

#include <optional>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/planning/plan_validator.h"
#include "tidepool/memory/planning/planning_testing.h"
#include "tidepool/memory/planning/problem_file.h"

namespace tidepool {
namespace {

// The validator's verdict and the lower bound, on any plan.
void ExpectValid(const std::vector<LifetimeBuffer>& buffers, int64_t alignment,
                 const Placement& plan) {
  ASSERT_EQ(FindPlacementViolation(buffers, alignment, plan), std::nullopt);
  ASSERT_EQ(plan.lower_bound, LiveLowerBound(buffers, alignment));
  ASSERT_GE(plan.peak, plan.lower_bound);
}

TEST(PlanGreedy, HandlesEmptyProblems) {
  EXPECT_EQ(PlanGreedy({}, 64).peak, 0);
  const Placement plan = PlanGreedy({{0, 1, 0}, {0, 1, 0}}, 64);
  EXPECT_EQ(plan.offsets, (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(plan.peak, 0);
}

TEST(PlanGreedy, RefusesBadProblems) {
  EXPECT_THROW(PlanGreedy({{3, 3, 1}}, 1), Error);
  EXPECT_THROW(PlanGreedy({{0, 1, 1}}, 0), Error);
}

TEST(PlanGreedy, ValidAndOftenOptimalOnTenThousandRandomProblems) {
  constexpr uint64_t kSeed = 20240;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937_64 random(kSeed);
  int optimal = 0;
  int known = 0;
  for (int round = 0; round < 10000; ++round) {
    const int count = std::uniform_int_distribution<int>(0, 40)(random);
    const int64_t horizon = std::uniform_int_distribution<int64_t>(1, 60)(random);
    const int64_t alignment = std::uniform_int_distribution<int64_t>(1, 9)(random);
    const std::vector<LifetimeBuffer> buffers =
        RandomProblem(random, count, horizon, 1 + horizon / 2, 100);
    const Placement plan = PlanGreedy(buffers, alignment);
    ASSERT_NO_FATAL_FAILURE(ExpectValid(buffers, alignment, plan)) << round;
    if (count <= 6) {
      const int64_t optimum = ExhaustiveOptimum(buffers, alignment);
      ASSERT_GE(plan.peak, optimum) << round;
      ++known;
      optimal += plan.peak == optimum;
    }
  }
  EXPECT_GT(known, 1000);
  EXPECT_GT(optimal, known * 99 / 100);
}

TEST(PlanGreedy, StacksTrainingTraces) {
  constexpr uint64_t kSeed = 7;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937_64 random(kSeed);
  for (const int layers : {1, 2, 3, 5, 8, 20, 60, 100, 250}) {
    const std::vector<LifetimeBuffer> buffers = TrainingTrace(random, layers);
    const Placement plan = PlanGreedy(buffers, 64);
    ExpectValid(buffers, 64, plan);
    EXPECT_LE(plan.peak, plan.lower_bound * 102 / 100) << layers;
  }
}

// More effort where a capacity asks for it, and none where it does not.
TEST(PlanGreedy, WithinACapacity) {
  constexpr uint64_t kSeed = 9;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937_64 random(kSeed);
  int less = 0;
  for (int i = 0; i < 20; ++i) {
    const std::vector<LifetimeBuffer> buffers = RandomProblem(random, 150, 150, 40, 1 << 20);
    const Placement greedy = PlanGreedy(buffers, 64);
    const Placement within = PlanGreedyWithin(buffers, 64, greedy.lower_bound);
    ExpectValid(buffers, 64, within);
    EXPECT_LE(within.peak, greedy.peak);
    less += within.peak < greedy.peak;
    EXPECT_EQ(PlanGreedyWithin(buffers, 64, greedy.peak).offsets, greedy.offsets);
    EXPECT_EQ(PlanGreedyWithin(buffers, 64, greedy.lower_bound - 64).offsets, greedy.offsets)
        << "what cannot be is not tried";
    if (within.peak >= greedy.peak) continue;
    const int64_t between = (within.peak + greedy.peak) / 128 * 64;
    EXPECT_LE(PlanGreedyWithin(buffers, 64, between).peak, between);
  }
  EXPECT_GE(less, 10);
}

TEST(PlanGreedy, ManyBuffers) {
  constexpr uint64_t kSeed = 11;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937_64 random(kSeed);
  const std::vector<LifetimeBuffer> brief = RandomProblem(random, 10000, 100000, 300, 1 << 20);
  ExpectValid(brief, 64, PlanGreedy(brief, 64));
  const std::vector<LifetimeBuffer> all_conflict = RandomProblem(random, 10000, 1, 300, 1 << 20);
  const Placement plan = PlanGreedy(all_conflict, 64);
  ExpectValid(all_conflict, 64, plan);
  EXPECT_EQ(plan.peak, plan.lower_bound);
}

// A cycle of very many requests: an order that most of them do not meet in is worth its work.
TEST(PlanGreedy, AHundredThousandBuffers) {
  constexpr uint64_t kSeed = 12;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937_64 random(kSeed);
  const std::vector<LifetimeBuffer> buffers = RandomProblem(random, 100000, 400000, 200, 1 << 20);
  const Placement plan = PlanGreedy(buffers, 64);
  ExpectValid(buffers, 64, plan);
  EXPECT_LE(plan.peak, plan.lower_bound * 11 / 10);
}

// Where an order would take too long, the order of time is left.
TEST(PlanGreedy, TooManyConflictsForAnOrder) {
  constexpr uint64_t kSeed = 13;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937_64 random(kSeed);
  const std::vector<LifetimeBuffer> buffers = RandomProblem(random, 60000, 60000, 2000, 1 << 20);
  const Placement plan = PlanGreedy(buffers, 64);
  ExpectValid(buffers, 64, plan);
  EXPECT_LE(plan.peak, plan.lower_bound * 14 / 10);
}

TEST(PlanGreedy, MiniMallocInstances) {
  for (const char* name : {"A", "B", "C", "D", "E", "F"}) {
    const NamedProblem problem =
        ReadProblemFile(std::string("memory/planning/testdata/") + name + ".1048576.csv");
    const Placement plan = PlanGreedy(problem.buffers, 1);
    ExpectValid(problem.buffers, 1, plan);
    EXPECT_LE(plan.peak, plan.lower_bound * 14 / 10) << name;
    EXPECT_EQ(plan.offsets, PlanGreedy(problem.buffers, 1).offsets) << name;
  }
}

}  // namespace
}  // namespace tidepool
