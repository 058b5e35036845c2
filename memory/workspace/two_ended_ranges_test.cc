#include "tidepool/memory/workspace/two_ended_ranges.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/workspace/free_ranges.h"

namespace tidepool {
namespace {

constexpr size_t kUnit = 64;
constexpr size_t kMiB = size_t{1} << 20;

// What is taken, by offset.
struct Taken {
  size_t bytes;
  TwoEndedRanges::Range range;
};
using Live = std::map<size_t, Taken>;

// The largest gap between them in [begin, end).
size_t LargestGap(const Live& live, size_t begin, size_t end) {
  size_t largest = 0;
  for (const auto& [offset, taken] : live) {
    largest = std::max(largest, offset - begin);
    begin = offset + taken.bytes;
  }
  return std::max(largest, end - begin);
}

void Take(TwoEndedRanges& ranges, Live& live, size_t begin, size_t end, size_t bytes) {
  ranges.Reserve();
  size_t offset = SIZE_MAX;
  const TwoEndedRanges::Range range = ranges.Take(bytes, &offset);
  if (range == TwoEndedRanges::Range::kNone) {
    ASSERT_LT(LargestGap(live, begin, end), bytes);
    return;
  }
  ASSERT_GE(offset, begin);
  ASSERT_LE(offset + bytes, end);
  ASSERT_EQ(offset % kUnit, 0u);
  const auto above = live.lower_bound(offset);
  ASSERT_TRUE(above == live.end() || above->first >= offset + bytes);
  ASSERT_TRUE(above == live.begin() ||
              std::prev(above)->first + std::prev(above)->second.bytes <= offset);
  live[offset] = {bytes, range};
}

// Requests of all sizes, at either end; what lies in the way of a plan that is changed to was given
// back before.
TEST(TwoEndedRanges, GivesWhatNobodyHasUntilNothingLargeEnoughIsLeft) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    size_t begin = random() % 2 * (random() % 100 * kUnit);
    const size_t end = begin + (4 + random() % 16) * kMiB;
    TwoEndedRanges ranges(kUnit);
    ranges.Begin(begin, end);
    Live live;
    const auto give = [&](Live::iterator at) {
      ranges.Give(at->second.range, at->second.bytes);
      live.erase(at);
    };
    for (int step = 0; step < 3000; ++step) {
      const bool growing = step / 200 % 2 == 0;
      if (live.empty() || random() % 100 < (growing ? 65u : 35u)) {
        const size_t units = size_t{1} << random() % 14;
        Take(ranges, live, begin, end, kUnit * (units + random() % units));
        if (HasFatalFailure()) return;
      } else {
        give(std::next(live.begin(), static_cast<std::ptrdiff_t>(random() % live.size())));
      }
      size_t lies = begin, bytes = 0;
      for (const auto& [offset, taken] : live) bytes += taken.bytes;
      ASSERT_LE(bytes, ranges.reached() - begin);
      if (random() % 500 == 0) {  // what is free in one piece is known
        ranges.Merge();
        ASSERT_EQ(std::max(ranges.largest_free(), ranges.end() - ranges.top()),
                  LargestGap(live, begin, end));
        // As another plan may be changed to.
        lies = begin + random() % 64 * kUnit;
        while (!live.empty() && live.begin()->first < lies) give(live.begin());
        if (random() % 2 == 0 && lies > begin) ranges.RaiseBegin(begin = lies);
      }
      if (random() % 700 == 0) {  // the middle goes back
        ranges.Merge();
        const size_t cut = ranges.top() + (ranges.end() - ranges.top()) / 2 / kUnit * kUnit;
        const size_t was = ranges.end();
        ranges.SetEnd(cut);
        if (cut < was) live[cut] = {was - cut, TwoEndedRanges::Range::kNone};
        break;  // that is nobody's until the end
      }
    }
    for (int step = 0; step < 500; ++step) {
      const size_t units = size_t{1} << random() % 14;
      ranges.Reserve();
      size_t offset = 0;
      const size_t bytes = kUnit * (units + random() % units);
      const TwoEndedRanges::Range range = ranges.Take(bytes, &offset);
      if (range == TwoEndedRanges::Range::kNone) continue;
      const auto above = live.lower_bound(offset);
      ASSERT_TRUE(above == live.end() || above->first >= offset + bytes);
      ASSERT_TRUE(above == live.begin() ||
                  std::prev(above)->first + std::prev(above)->second.bytes <= offset);
      live[offset] = {bytes, range};
    }
  }
}

// What a cycle leaves its plan with lies below.
TEST(TwoEndedRanges, WhatIsGivenBelowIsServedFromBothEnds) {
  TwoEndedRanges ranges(kUnit);
  ranges.Begin(8 * kMiB, 16 * kMiB);
  Live live;
  Take(ranges, live, 8 * kMiB, 16 * kMiB, 4 * kMiB);
  Take(ranges, live, 8 * kMiB, 16 * kMiB, kUnit);
  EXPECT_EQ(live.rbegin()->first, 16 * kMiB - kUnit);
  EXPECT_EQ(ranges.reached(), 12 * kMiB + kUnit);
  std::vector<TwoEndedRanges::Taken> taken(1);
  taken[0].offset = 2 * kMiB;
  taken[0].bytes = kMiB;
  ranges.Reserve();
  ranges.GiveBelow(absl::MakeSpan(taken));
  live[2 * kMiB] = {kMiB, taken[0].range};
  Take(ranges, live, 0, 16 * kMiB, 5 * kMiB);
  Take(ranges, live, 0, 16 * kMiB, 4 * kMiB - kUnit);
  Take(ranges, live, 0, 16 * kMiB, 2 * kMiB);
  EXPECT_EQ(live.size(), 6u);
  for (const auto& [offset, its] : live) ranges.Give(its.range, its.bytes);
  live.clear();
  Take(ranges, live, 0, 16 * kMiB, 16 * kMiB);
  EXPECT_EQ(live.size(), 1u);
}

// Large ones of 3 to 5 MiB, up to ten of them alive, and a small one after each, which stays.
template <typename Ranges>
size_t ReachedBySmallOnesThatStay(uint64_t seed) {
  std::mt19937_64 random(seed);
  Ranges ranges(kUnit);
  ranges.Begin(0, 4096 * kMiB);
  std::vector<std::pair<typename Ranges::Range, size_t>> large;
  const auto take = [&](size_t bytes) {
    ranges.Reserve();
    size_t offset = 0;
    return ranges.Take(bytes, &offset);
  };
  for (int i = 0; i < 400; ++i) {
    const size_t bytes = 3 * kMiB + random() % (2 * kMiB) / kUnit * kUnit;
    large.emplace_back(take(bytes), bytes);
    take(kUnit * (1 + random() % 64));
    if (large.size() < 10) continue;
    std::swap(large[random() % large.size()], large.back());
    ranges.Give(large.back().first, large.back().second);
    large.pop_back();
  }
  return ranges.reached();
}

TEST(TwoEndedRanges, SmallOnesThatStayLeaveNoGapsBetweenLargeOnes) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    // 40 MiB and a small part are alive on average, 50 at most.
    EXPECT_LE(ReachedBySmallOnesThatStay<TwoEndedRanges>(seed), 66 * kMiB) << seed;
    EXPECT_GE(ReachedBySmallOnesThatStay<FreeRanges>(seed), 70 * kMiB) << seed;
  }
}

}  // namespace
}  // namespace tidepool
