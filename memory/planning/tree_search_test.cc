#include "tidepool/memory/planning/tree_search.h"

#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/planning/plan_validator.h"
#include "tidepool/memory/planning/planning_testing.h"

namespace tidepool {
namespace {

using Result = TreeSearch::Result;

bool NeverStop() { return false; }

std::vector<int32_t> AnyRank(size_t count, std::mt19937_64& random) {
  std::vector<int32_t> rank(count);
  std::iota(rank.begin(), rank.end(), 0);
  for (size_t i = count; i > 1; --i) std::swap(rank[i - 1], rank[random() % i]);
  return rank;
}

// The answers just below the optimum, at it and above, with one search object for all, so that
// what it remembers is tested too. With an unlucky rank a search may take for ever, so one that
// has room to spare may spend its budget; `spent` counts that.
void ExpectExact(const std::vector<LifetimeBuffer>& buffers, int64_t optimum,
                 std::mt19937_64& random, int& spent) {
  const SectionedProblem problem = MakeSections(buffers, 1);
  TreeSearch search(problem);
  const std::vector<int32_t> rank = AnyRank(problem.items.size(), random);
  ASSERT_EQ(search.Run(optimum - 1, rank, 1000000, NeverStop), Result::kDoesNotFit);
  ASSERT_EQ(search.Run(optimum, rank, 1000000, NeverStop), Result::kFits);
  const Placement placement = ToPlacement(problem, search.offsets(), buffers.size(), 1);
  ASSERT_EQ(FindPlacementViolation(buffers, 1, placement), std::nullopt);
  ASSERT_EQ(placement.peak, optimum);
  ASSERT_EQ(search.Run(optimum - 1, rank, 1000000, NeverStop), Result::kDoesNotFit);
  const Result above = search.Run(optimum + 1, rank, 100000, NeverStop);
  ASSERT_NE(above, Result::kDoesNotFit);
  if (above != Result::kFits) {
    ++spent;
    return;
  }
  const Placement loose = ToPlacement(problem, search.offsets(), buffers.size(), 1);
  ASSERT_EQ(FindPlacementViolation(buffers, 1, loose), std::nullopt);
  ASSERT_LE(loose.peak, optimum + 1);
}

TEST(TreeSearch, ExactOnRandomProblems) {
  constexpr uint64_t kSeed = 99;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937_64 random(kSeed);
  int spent = 0;
  for (int round = 0; round < 5000; ++round) {
    const int count = std::uniform_int_distribution<int>(1, 8)(random);
    const int64_t horizon = std::uniform_int_distribution<int64_t>(1, 14)(random);
    std::vector<LifetimeBuffer> buffers = RandomProblem(random, count, horizon, 1 + horizon / 2, 9);
    ++buffers.front().size;  // not all empty
    ASSERT_NO_FATAL_FAILURE(ExpectExact(buffers, ExhaustiveOptimum(buffers, 1), random, spent))
        << round;
  }
  EXPECT_EQ(spent, 0);
}

// Problems without any room are the ones whose optimum is above the live bound: here every way of
// refuting must be right.
TEST(TreeSearch, ExactOnTightProblems) {
  constexpr uint64_t kSeed = 100;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937_64 random(kSeed);
  int above_live_bound = 0;
  int spent = 0;
  for (int round = 0; round < 3000; ++round) {
    const int count = std::uniform_int_distribution<int>(10, 60)(random);
    const int64_t height = std::uniform_int_distribution<int64_t>(4, 7)(random);
    const std::vector<LifetimeBuffer> buffers = TightProblem(random, count, height);
    int64_t optimum = height;
    while (!FitsInHeight(buffers, optimum)) ++optimum;
    above_live_bound += optimum > height;
    ASSERT_NO_FATAL_FAILURE(ExpectExact(buffers, optimum, random, spent)) << round;
  }
  EXPECT_LE(spent, 10);
  EXPECT_GT(above_live_bound, 100);
}

TEST(TreeSearch, ReportsASpentBudgetAndAStop) {
  constexpr uint64_t kSeed = 4;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937_64 random(kSeed);
  const std::vector<LifetimeBuffer> buffers = RandomProblem(random, 300, 200, 60, 1000);
  const SectionedProblem problem = MakeSections(buffers, 1);
  TreeSearch search(problem);
  const std::vector<int32_t> rank = AnyRank(problem.items.size(), random);
  EXPECT_EQ(search.Run(problem.lower_bound, rank, 5, NeverStop), Result::kBudgetSpent);
  EXPECT_EQ(search.nodes(), 5);
  int asked = 0;
  EXPECT_EQ(search.Run(problem.lower_bound, rank, 1000000,
                       [&asked] {
                         ++asked;
                         return true;
                       }),
            Result::kStopped);
  EXPECT_EQ(asked, 1);
}

TEST(TreeSearch, HandlesNothing) {
  const SectionedProblem problem = MakeSections({}, 1);
  TreeSearch search(problem);
  EXPECT_EQ(search.Run(0, {}, 1, NeverStop), Result::kFits);
}

// 4000 buffers, each alive with the next: the deepest recursion allowed.
TEST(TreeSearch, SurvivesDepth) {
  std::vector<LifetimeBuffer> buffers;
  for (int64_t i = 0; i < 4000; ++i) buffers.push_back({i, i + 2, 1 + i % 7});
  const SectionedProblem problem = MakeSections(buffers, 1);
  ASSERT_TRUE(TreeSearch::CanSearch(problem));
  TreeSearch search(problem);
  std::vector<int32_t> rank(buffers.size());
  std::iota(rank.begin(), rank.end(), 0);
  const Result result = search.Run(problem.lower_bound * 2, rank, 100000, NeverStop);
  ASSERT_EQ(result, Result::kFits);
  const Placement placement = ToPlacement(problem, search.offsets(), buffers.size(), 1);
  EXPECT_EQ(FindPlacementViolation(buffers, 1, placement), std::nullopt);
  buffers.push_back({0, 1, 1});
  EXPECT_FALSE(TreeSearch::CanSearch(MakeSections(buffers, 1)));
}

}  // namespace
}  // namespace tidepool
