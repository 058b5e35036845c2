#include "tidepool/memory/planning/interval_fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "tidepool/memory/planning/fit_list.h"
#include "tidepool/memory/planning/placement_problem.h"
#include "tidepool/memory/planning/planning_testing.h"
#include "tidepool/memory/planning/sections.h"

namespace tidepool {
namespace {

// The other index is the oracle: each item gets the same place, whatever the order and the fit.
TEST(IntervalFitTest, GivesTheOffsetsOfFitList) {
  constexpr uint64_t kSeed = 17;
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 300; ++round) {
    const int count = static_cast<int>(random() % 400);
    const int64_t horizon = 1 + static_cast<int64_t>(random() % 3000);
    const int64_t longest = 1 + static_cast<int64_t>(random() % horizon);
    const SectionedProblem problem =
        MakeSections(RandomProblem(random, count, horizon, longest, 100), 1);
    IntervalFit by_time(problem);
    for (int order = 0; order < 3; ++order) {  // the second and the third after Clear
      MappedVector<SectionItem> items = problem.items;
      std::shuffle(items.begin(), items.end(), random);
      FitList by_offset;
      by_time.Clear();
      for (size_t i = 0; i < items.size(); ++i) {
        const FitList::Fit fit = random() % 2 == 0 ? FitList::Fit::kFirst : FitList::Fit::kBest;
        const int64_t offset = by_offset.FindOffset(items[i], fit);
        ASSERT_EQ(by_time.FindOffset(items[i], fit), offset)
            << "round " << round << ", order " << order << ", item " << i;
        by_offset.Insert(items[i], offset);
        by_time.Insert(items[i], offset);
      }
    }
  }
}

// Work, not time: many short lifetimes cost each what they meet, and the estimate is about right.
TEST(IntervalFitTest, WorkGrowsWithTheConflictsOnly) {
  std::mt19937_64 random(5);
  const auto work = [&](int count) {
    const SectionedProblem problem =
        MakeSections(RandomProblem(random, count, 4 * count, 100, 1000), 1);
    EXPECT_TRUE(IntervalFit::IsFasterFor(problem));
    IntervalFit by_time(problem);
    MappedVector<SectionItem> items = problem.items;
    std::shuffle(items.begin(), items.end(), random);
    for (const SectionItem& item : items) {
      by_time.Insert(item, by_time.FindOffset(item, FitList::Fit::kFirst));
    }
    EXPECT_LT(by_time.work(), 3 * WorkOfOrder(problem));
    EXPECT_GT(by_time.work(), WorkOfOrder(problem) / 3);
    return by_time.work();
  };
  EXPECT_LT(work(80000), 10 * work(10000));  // not 64 times
}

TEST(IntervalFitTest, FewItemsAndThoseThatAllMeetAreLeftToFitList) {
  std::mt19937_64 random(6);
  EXPECT_FALSE(IntervalFit::IsFasterFor(MakeSections(RandomProblem(random, 500, 2000, 10, 9), 1)));
  EXPECT_FALSE(IntervalFit::IsFasterFor(MakeSections(RandomProblem(random, 5000, 1, 9, 9), 1)));
}

}  // namespace
}  // namespace tidepool
