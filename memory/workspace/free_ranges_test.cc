#include "tidepool/memory/workspace/free_ranges.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <new>
#include <random>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "tidepool/memory/workspace/free_ranges_model.h"

void* operator new(size_t bytes) {
  if (!tidepool::may_allocate) std::abort();
  if (void* data = std::malloc(bytes)) return data;
  throw std::bad_alloc();
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, size_t) noexcept { std::free(data); }

namespace tidepool {

thread_local bool may_allocate = true;

namespace {

TEST(FreeRanges, TakesUpToItsEndAndTheSameAgain) {
  FreeRanges ranges(kUnit);
  ranges.Begin(1024, 4096);
  Model model(ranges);
  EXPECT_TRUE(model.Take(1024));
  EXPECT_TRUE(model.Take(2048));
  EXPECT_FALSE(model.Take(64));
  model.Give(0);
  EXPECT_FALSE(model.Take(1088));
  EXPECT_TRUE(model.Take(64));
  EXPECT_TRUE(model.Take(960));
  model.GiveAll();
  EXPECT_TRUE(model.Take(3072));
  EXPECT_EQ(model.lowest(), 1024u);
  EXPECT_EQ(ranges.reached(), 4096u);
}

// There is a list for each size that there may be, and none for these.
TEST(FreeRanges, SizesBeyondAllAddressesAreRefused) {
  for (const size_t unit : {16, 64}) {
    FreeRanges ranges(unit);
    ranges.Begin(0, 1 << 20);
    size_t offset = 0;
    for (const size_t units :
         {144, 200, 300, 500, 700, 1000, 1500, 4096}) {  // in lists of free ones, apart
      ranges.Reserve();
      const FreeRanges::Range large = ranges.Take(units * unit, &offset);
      ranges.Reserve();
      ranges.Take(unit, &offset);
      ranges.Give(large, units * unit);
    }
    for (size_t bytes = size_t{1} << 21; bytes != 0; bytes <<= 1) {
      ranges.Reserve();
      EXPECT_EQ(ranges.Take(bytes, &offset), FreeRanges::Range::kNone) << bytes;
      EXPECT_EQ(ranges.Take(bytes - unit, &offset), FreeRanges::Range::kNone) << bytes;
    }
    EXPECT_EQ(ranges.Take(SIZE_MAX - unit + 1, &offset), FreeRanges::Range::kNone);
    EXPECT_NE(ranges.Take(4096 * unit, &offset), FreeRanges::Range::kNone);
  }
}

TEST(FreeRanges, WhatComesBackIsMergedBeforeMoreIsUsed) {
  FreeRanges ranges(kUnit);
  ranges.Begin(0, size_t{1} << 20);
  Model model(ranges);
  for (int i = 0; i < 64; ++i) EXPECT_TRUE(model.Take(kUnit));
  for (int i = 0; i < 63; ++i) model.Give(0);
  EXPECT_TRUE(model.Take(63 * kUnit));
  EXPECT_EQ(ranges.reached(), 64 * kUnit);
}

TEST(FreeRanges, BeginForgetsWhatWasTaken) {
  FreeRanges ranges(kUnit);
  size_t state = 0;
  for (int round = 0; round < 3; ++round) {
    ranges.Begin(0, 64 * 1000);
    Model model(ranges);
    for (int i = 0; i < 1000; ++i) EXPECT_TRUE(model.Take(kUnit));
    EXPECT_FALSE(model.Take(kUnit));
    EXPECT_EQ(ranges.largest_free(), 0u) << "what was free is no more either";
    for (int i = 0; i < 500; ++i) model.Give(static_cast<size_t>(i));
    ranges.Merge();
    EXPECT_EQ(ranges.largest_free(), kUnit);
    if (round == 0) state = ranges.state_bytes();
    EXPECT_EQ(ranges.state_bytes(), state) << "its records are used again";
    ranges.End();
    EXPECT_FALSE(ranges.begun());
  }
}

TEST(FreeRanges, NothingBelowARaisedBeginIsGiven) {
  std::mt19937_64 random(20261122);
  for (int round = 0; round < 300; ++round) {
    FreeRanges ranges(kUnit);
    ranges.Begin(0, 64 * 1000);
    Model model(ranges);
    for (int i = 0; i < 60; ++i) {
      if (model.size() > 0 && random() % 2 == 0) {
        model.Give(random() % model.size());
      } else {
        model.Take(kUnit * (1 + random() % 20));
      }
    }
    const size_t begin = kUnit * (random() % (std::min<size_t>(model.lowest(), 64000) / kUnit + 1));
    ranges.RaiseBegin(begin);
    for (int i = 0; i < 200; ++i) {
      if (model.size() > 0 && random() % 3 == 0) {
        model.Give(random() % model.size());
      } else {
        model.Take(kUnit * (1 + random() % 20));
      }
      ASSERT_GE(model.lowest(), begin);
    }
  }
}

// What somebody else had taken below is given back like the rest.
TEST(FreeRanges, GivingBelowLeavesWhatWasReserved) {
  for (const size_t gap : {0, 1}) {
    for (size_t taken = 0; taken < 300; ++taken) {
      FreeRanges ranges(kUnit);
      ranges.Begin(1000 * kUnit, 100000 * kUnit);
      size_t offset = 0;
      ranges.Reserve();
      ranges.Take(kUnit, &offset);  // so that the others may end where a slab of records does
      ranges.Reserve();
      std::vector<FreeRanges::Taken> below;
      for (size_t i = 0; i < taken; ++i) below.push_back({kUnit * (i + gap * (i + 1)), kUnit});
      ranges.GiveBelow(absl::MakeSpan(below));
      ASSERT_TRUE(ranges.has_reserved()) << taken << " given below, gaps " << gap;
    }
  }
}

TEST(FreeRanges, WhatIsBelowItsBeginIsGivenToo) {
  std::mt19937_64 random(20261122);
  for (int round = 0; round < 500; ++round) {
    FreeRanges ranges(kUnit);
    const size_t begin = kUnit * (random() % 100);
    ranges.Begin(begin, 64 * 1000);
    Model model(ranges);
    const int before = static_cast<int>(random() % 20);
    for (int i = 0; i < before; ++i) {
      if (model.size() > 0 && random() % 2 == 0) {
        model.Give(random() % model.size());
      } else {
        model.Take(kUnit * (1 + random() % 20));
      }
    }
    std::vector<FreeRanges::Taken> pieces;
    for (size_t at = kUnit * (random() % 3); at + 3 * kUnit <= begin;) {
      const size_t bytes = kUnit * (1 + random() % 3);
      pieces.push_back({at, bytes});
      at += bytes + kUnit * (random() % 3);
    }
    model.GiveBelow(pieces);
    for (int i = 0; i < 300; ++i) {
      if (model.size() > 0 && random() % 2 == 0) {
        model.Give(random() % model.size());
      } else {
        model.Take(kUnit * (1 + random() % 20));
      }
    }
    model.GiveAll();
    EXPECT_TRUE(model.Take(64 * 1000)) << "all of it is one range again";
  }
}

// Of sizes that share a list, also the one that comes last in it.
TEST(FreeRanges, OneThatIsLargeEnoughIsFoundBehindManyThatAreNot) {
  constexpr size_t kSmaller = 1024 * kUnit, kLarger = 1100 * kUnit, kBetween = 1090 * kUnit;
  for (const size_t smaller : {3, 40}) {
    FreeRanges ranges(kUnit);
    ranges.Begin(0, kLarger + smaller * kSmaller + (smaller + 1) * kUnit);
    Model model(ranges);
    EXPECT_TRUE(model.Take(kLarger));
    EXPECT_TRUE(model.Take(kUnit));
    for (size_t i = 0; i < smaller; ++i) EXPECT_TRUE(model.Take(kSmaller) && model.Take(kUnit));
    EXPECT_FALSE(model.Take(kUnit));
    model.Give(0);  // the first of its list then
    for (size_t i = 0; i < smaller; ++i) model.Give(i + 1);
    EXPECT_EQ(ranges.largest_free(), kLarger);
    EXPECT_TRUE(model.Take(kBetween)) << smaller;
    EXPECT_EQ(model.lowest(), 0u) << "where the larger one was";
  }
}

// So that a stream of small ones of ever different sizes stays near what is alive.
TEST(FreeRanges, SmallOnesAreMergedBeforeMoreThanAFewAreKept) {
  FreeRanges ranges(kUnit);
  ranges.Begin(0, size_t{1} << 40);
  Model model(ranges);
  for (int i = 0; i < 3200; ++i) EXPECT_TRUE(model.Take(kUnit));
  const size_t reached = ranges.reached();
  for (int i = 0; i < 102; ++i) model.Give(1000);  // neighbours, more than a 32nd
  for (int i = 0; i < 51; ++i) EXPECT_TRUE(model.Take(2 * kUnit));
  EXPECT_EQ(ranges.reached(), reached);
}

TEST(FreeRanges, ItsBooksTakeFewBytesForEachRange) {
  FreeRanges ranges(kUnit);
  EXPECT_EQ(ranges.state_bytes(), 0u) << "nothing before a request";
  ranges.Begin(0, size_t{1} << 40);
  Model model(ranges);
  for (int i = 0; i < 10000; ++i) EXPECT_TRUE(model.Take(kUnit));
  for (size_t i = 0; i < 5000; ++i) model.Give(i);
  ranges.Merge();
  EXPECT_LE(ranges.state_bytes(), 10000 * 24 * 3 / 2 + 4096u);
  ranges.End();
  ranges.Trim();
  EXPECT_EQ(ranges.state_bytes(), 0u);
}

// Streams of several kinds: never two requests in one place, and the used part near what is alive.
TEST(FreeRanges, RandomStreamsStayApartAndNearWhatIsAlive) {
  std::mt19937_64 random(20261122);
  for (int kind = 0; kind < 4; ++kind) {
    const auto size = [&](int i) -> size_t {
      switch (kind) {
        case 0:  // small ones of few sizes
          return kUnit * (1 + random() % 8);
        case 1:  // of all magnitudes
          return kUnit * (1 + random() % (size_t{1} << (random() % 12)));
        case 2:  // growing
          return kUnit * static_cast<size_t>(1 + i / 50);
        default:  // large ones among small ones
          return random() % 10 == 0 ? kUnit * (2000 + random() % 2000) : kUnit;
      }
    };
    FreeRanges ranges(kUnit);
    ranges.Begin(0, size_t{1} << 40);
    Model model(ranges);
    for (int i = 0; i < 20000; ++i) {
      if (model.size() > 300 || (model.size() > 0 && random() % 100 < 48)) {
        model.Give(random() % model.size());
      } else {
        ASSERT_TRUE(model.Take(size(i)));
      }
    }
    EXPECT_LE(static_cast<double>(ranges.reached()), 1.4 * static_cast<double>(model.most_live()))
        << "kind " << kind;
    const size_t reached = ranges.reached();
    model.GiveAll();
    EXPECT_TRUE(model.Take(reached)) << "all of it is one range again";
    EXPECT_EQ(ranges.reached(), reached);
  }
}

// Of what is free these very ranges, wherever they lie in it, also above all that is taken.
TEST(FreeRanges, TakesWhatItIsToldWhereItIsFree) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 300; ++round) {
    FreeRanges ranges(kUnit);
    ranges.Begin(0, 1000 * kUnit);
    Model model(ranges);
    for (int i = 0; i < 40; ++i) ASSERT_TRUE(model.Take(kUnit * (1 + random() % 20)));
    for (int i = 0; i < 25; ++i) model.Give(random() % model.size());
    std::vector<FreeRanges::Taken> wanted;
    size_t at = 0;
    const auto add_within = [&](size_t end) {  // up to three in each free range
      for (int i = 0; i < 3; ++i) {
        const size_t begin = at + kUnit * (random() % 3);
        const size_t bytes = kUnit * (1 + random() % 4);
        if (random() % 3 == 0 || begin + bytes > end) continue;
        wanted.push_back({begin, bytes});
        at = begin + bytes;
      }
    };
    for (const auto& [offset, range] : model.taken()) {
      add_within(offset);
      at = offset + ranges.bytes(range);
    }
    add_within(ranges.end());
    ranges.Reserve(2 * wanted.size());
    may_allocate = false;
    ranges.TakeAt(absl::MakeSpan(wanted));
    may_allocate = true;
    for (const FreeRanges::Taken& one : wanted) model.Add(one);
    while (model.Take(kUnit * (1 + random() % 8))) {
    }
    while (model.size() > 0) model.Give(random() % model.size());
    EXPECT_TRUE(model.Take(1000 * kUnit)) << "all of it is one range again";
  }
}

}  // namespace
}  // namespace tidepool
