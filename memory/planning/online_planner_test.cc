#include "tidepool/memory/planning/online_planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "tidepool/memory/planning/placement_problem.h"
#include "tidepool/memory/planning/plan_validator.h"
#include "tidepool/memory/planning/planning_testing.h"
#include "tidepool/memory/planning/sections.h"

namespace tidepool {
namespace {

// The validator's verdict.
int64_t PeakOf(const std::vector<LifetimeBuffer>& buffers, const SectionedProblem& problem,
               const ItemOffsets& plan) {
  const Placement placement = ToPlacement(problem, plan.offsets, buffers.size(), 1);
  EXPECT_EQ(FindPlacementViolation(buffers, 1, placement), std::nullopt);
  EXPECT_EQ(placement.peak, plan.peak);
  EXPECT_GE(plan.peak, problem.lower_bound);
  return plan.peak;
}

int64_t PeakOf(const std::vector<LifetimeBuffer>& buffers) {
  const SectionedProblem problem = MakeSections(buffers, 1);
  return PeakOf(buffers, problem, PlanOnline(problem));
}

TEST(OnlinePlannerTest, SmallProblems) {
  EXPECT_EQ(PeakOf({}), 0);
  EXPECT_EQ(PeakOf({{0, 5, 10}}), 10);
  EXPECT_EQ(PeakOf({{0, 2, 10}, {2, 4, 10}, {4, 6, 7}}), 10);  // one after the other
  EXPECT_EQ(PeakOf({{0, 8, 4}, {1, 7, 3}, {2, 6, 2}, {3, 5, 1}}), 10);
  // The gap of 3, not that of 5, takes the 3 that comes.
  EXPECT_EQ(PeakOf({{0, 2, 5}, {0, 9, 1}, {0, 2, 3}, {0, 9, 1}, {2, 9, 3}, {3, 9, 5}}), 10);
  // At the top, what is free below it is used too.
  EXPECT_EQ(PeakOf({{0, 9, 10}, {0, 2, 5}, {2, 9, 8}}), 18);
}

// What grows while it lives on fits well in one direction only.
TEST(OnlinePlannerTest, TheBetterDirectionIsTaken) {
  const std::vector<LifetimeBuffer> growing = {{0, 2, 1}, {1, 3, 2}, {2, 4, 4}, {3, 5, 8}};
  std::vector<LifetimeBuffer> shrinking;
  for (const LifetimeBuffer& buffer : growing) {
    shrinking.push_back({5 - buffer.upper, 5 - buffer.lower, buffer.size});
  }
  EXPECT_EQ(PeakOf(growing), PeakOf(shrinking));
}

TEST(OnlinePlannerTest, RandomProblemsAreValidAndNotFarOff) {
  constexpr uint64_t kSeed = 23;
  std::mt19937_64 random(kSeed);
  double sum = 0;
  constexpr int kRounds = 1000;
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<LifetimeBuffer> buffers = RandomProblem(
        random, 1 + static_cast<int>(random() % 200), 1 + static_cast<int64_t>(random() % 300),
        1 + static_cast<int64_t>(random() % 60), 100);
    const SectionedProblem problem = MakeSections(buffers, 1);
    const int64_t peak = PeakOf(buffers, problem, PlanOnline(problem));
    ASSERT_LE(peak, 2 * problem.lower_bound + 1) << round;
    sum +=
        static_cast<double>(peak) / static_cast<double>(std::max<int64_t>(1, problem.lower_bound));
  }
  EXPECT_LT(sum / kRounds, 1.2);
}

TEST(OnlinePlannerTest, AHundredThousand) {
  std::mt19937_64 random(29);
  const std::vector<LifetimeBuffer> buffers = RandomProblem(random, 100000, 400000, 200, 4096);
  const SectionedProblem problem = MakeSections(buffers, 1);
  EXPECT_LT(PeakOf(buffers, problem, PlanOnline(problem)), problem.lower_bound * 14 / 10);
}

// What has its place, from a valid plan moved upward, keeps it; the rest goes around.
TEST(OnlinePlannerTest, WhatIsGivenStays) {
  constexpr uint64_t kSeed = 31;
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 500; ++round) {
    const std::vector<LifetimeBuffer> buffers =
        RandomProblem(random, 1 + static_cast<int>(random() % 100), 100, 40, 100);
    const SectionedProblem problem = MakeSections(buffers, 1);
    MappedVector<int64_t> given = PlanOnline(problem).offsets;
    const auto up = static_cast<int64_t>(random() % 300);
    for (int64_t& offset : given) offset = random() % 3 == 0 ? offset + up : kNoOffset;
    const ItemOffsets plan = PlanOnline(problem, given);
    PeakOf(buffers, problem, plan);
    for (size_t i = 0; i < given.size(); ++i) {
      if (given[i] == kNoOffset) continue;
      ASSERT_EQ(plan.offsets[i], given[i]) << round;
    }
  }
}

}  // namespace
}  // namespace tidepool
