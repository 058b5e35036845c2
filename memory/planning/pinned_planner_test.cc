#include "tidepool/memory/planning/pinned_planner.h"

#include <algorithm>
#include <cstdio>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/planning/greedy_planner.h"
#include "tidepool/memory/planning/plan_validator.h"

namespace tidepool {
namespace {

TEST(PinnedPlanner, WithoutPinsItIsTheGreedyPlanner) {
  const std::vector<LifetimeBuffer> buffers = {{0, 2, 100}, {1, 4, 64}, {2, 6, 200}};
  EXPECT_EQ(PlanAround(buffers, {}, 64).offsets, PlanGreedy(buffers, 64).offsets);
}

TEST(PinnedPlanner, WhatIsPinnedStaysAndTheRestGoesAround) {
  const std::vector<LifetimeBuffer> buffers = {{0, 9, 64}, {1, 3, 64}, {2, 5, 128}, {5, 9, 128}};
  const std::vector<PinnedBuffer> pins = {{0, 128}};
  const Placement placement = PlanAround(buffers, pins, 64);
  EXPECT_EQ(FindPlacementViolation(buffers, 64, placement), std::nullopt);
  EXPECT_EQ(placement.offsets[0], 128);
  EXPECT_EQ(placement.peak, 256);  // the lower bound is 256 as well
}

// Pins are taken from a valid plan of the same buffers, so they fit; the rest is planned anew.
TEST(PinnedPlanner, RandomProblemsStayValid) {
  const uint64_t seed = 20261121;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 2000; ++round) {
    const int64_t alignment = round % 2 == 0 ? 64 : 1;
    std::vector<LifetimeBuffer> buffers(1 + random() % 40);
    for (LifetimeBuffer& buffer : buffers) {
      buffer.lower = static_cast<int64_t>(random() % 30);
      buffer.upper = buffer.lower + 1 + static_cast<int64_t>(random() % 10);
      buffer.size = static_cast<int64_t>(random() % 1000);
    }
    const Placement before = PlanGreedy(buffers, alignment);
    std::vector<PinnedBuffer> pins;
    for (size_t i = 0; i < buffers.size(); ++i) {
      if (random() % 4 == 0) pins.push_back({i, before.offsets[i] + 640 * alignment});
    }
    const Placement placement = PlanAround(buffers, pins, alignment);
    ASSERT_EQ(FindPlacementViolation(buffers, alignment, placement), std::nullopt) << round;
    for (const PinnedBuffer& pin : pins) {
      if (buffers[pin.buffer].size == 0) continue;
      ASSERT_EQ(placement.offsets[pin.buffer], pin.offset);
    }
  }
}

// Pins of one set of lifetimes under another: what is kept can be planned around, what is left out
// overlaps something that is kept, and pins that are apart are all kept.
TEST(PinnedPlanner, PinsThatAreApartAreThoseThatCanBePlannedAround) {
  const uint64_t seed = 20261123;
  std::mt19937_64 random(seed);
  size_t left_out = 0;
  for (int round = 0; round < 1000; ++round) {
    const int64_t alignment = round % 2 == 0 ? 64 : 1;
    std::vector<LifetimeBuffer> buffers(1 + random() % 30);
    for (LifetimeBuffer& buffer : buffers) {
      buffer.lower = static_cast<int64_t>(random() % 30);
      buffer.upper = buffer.lower + 1 + static_cast<int64_t>(random() % 10);
      buffer.size = static_cast<int64_t>(random() % 1000);
    }
    const Placement before = PlanGreedy(buffers, alignment);
    std::vector<PinnedBuffer> pins;
    for (size_t i = 0; i < buffers.size(); ++i) {
      if (random() % 2 == 0) pins.push_back({i, before.offsets[i]});
    }
    ASSERT_EQ(PinsThatAreApart(buffers, pins, alignment).size(), pins.size());
    for (LifetimeBuffer& buffer : buffers) buffer.upper += static_cast<int64_t>(random() % 5);
    const std::vector<PinnedBuffer> kept = PinsThatAreApart(buffers, pins, alignment);
    const Placement placement = PlanAround(buffers, kept, alignment);
    ASSERT_EQ(FindPlacementViolation(buffers, alignment, placement), std::nullopt) << round;
    const auto overlap = [&](const PinnedBuffer& a, const PinnedBuffer& b) {
      const LifetimeBuffer &x = buffers[a.buffer], &y = buffers[b.buffer];
      return x.lower < y.upper && y.lower < x.upper &&
             a.offset < b.offset + AlignedSize(y.size, alignment) &&
             b.offset < a.offset + AlignedSize(x.size, alignment);
    };
    for (const PinnedBuffer& pin : pins) {
      const auto same = [&](const PinnedBuffer& other) { return other.buffer == pin.buffer; };
      if (std::any_of(kept.begin(), kept.end(), same)) continue;
      ++left_out;
      ASSERT_TRUE(std::any_of(kept.begin(), kept.end(),
                              [&](const PinnedBuffer& other) { return overlap(pin, other); }));
    }
  }
  EXPECT_GT(left_out, 100u);
}

// Of many buffers: pins of a few that are alive together, or of all.
TEST(PinnedPlanner, ManyBuffersStayValid) {
  const uint64_t seed = 20261122;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  for (const int share : {1, 4, 1000}) {
    for (const int64_t longest : {50, 4000}) {  // the latter: too many conflicts for an order
      const int count = longest == 50 ? 20000 : 40000;
      std::vector<LifetimeBuffer> buffers(count);
      for (LifetimeBuffer& buffer : buffers) {
        buffer.lower = static_cast<int64_t>(random() % count);
        buffer.upper = buffer.lower + 1 + static_cast<int64_t>(random() % longest);
        buffer.size = static_cast<int64_t>(random() % 1000);
      }
      const Placement before = PlanGreedy(buffers, 64);
      std::vector<PinnedBuffer> pins;
      for (size_t i = 0; i < buffers.size(); ++i) {
        if (random() % share == 0) pins.push_back({i, before.offsets[i] + 6400});
      }
      const Placement placement = PlanAround(buffers, pins, 64);
      ASSERT_EQ(FindPlacementViolation(buffers, 64, placement), std::nullopt) << share;
      for (const PinnedBuffer& pin : pins) {
        if (buffers[pin.buffer].size == 0) continue;
        ASSERT_EQ(placement.offsets[pin.buffer], pin.offset);
      }
    }
  }
}

// Each pair of pins that meets is found, wherever it is among many, and no other.
TEST(PinnedPlanner, FindsTheOnePairThatOverlaps) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<LifetimeBuffer> buffers(2 + random() % 60);
    for (LifetimeBuffer& buffer : buffers) {
      buffer.lower = static_cast<int64_t>(random() % 100);
      buffer.upper = buffer.lower + 1 + static_cast<int64_t>(random() % 20);
      buffer.size = 1 + static_cast<int64_t>(random() % 10);
    }
    const Placement before = PlanGreedy(buffers, 1);
    std::vector<PinnedBuffer> pins;
    for (size_t i = 0; i < buffers.size(); ++i) pins.push_back({i, before.offsets[i]});
    EXPECT_NO_THROW(PlanAround(buffers, pins, 1));
    pins[random() % pins.size()].offset = static_cast<int64_t>(random() % 30);
    Placement moved = before;
    for (const PinnedBuffer& pin : pins) moved.offsets[pin.buffer] = pin.offset;
    moved.peak = 0;
    for (size_t i = 0; i < buffers.size(); ++i) {
      moved.peak = std::max(moved.peak, moved.offsets[i] + buffers[i].size);
    }
    if (FindPlacementViolation(buffers, 1, moved).has_value()) {
      EXPECT_THROW(PlanAround(buffers, pins, 1), Error) << round;
    } else {
      EXPECT_NO_THROW(PlanAround(buffers, pins, 1)) << round;
    }
  }
}

TEST(PinnedPlanner, RefusesPinsThatCannotBe) {
  const std::vector<LifetimeBuffer> buffers = {{0, 4, 64}, {2, 6, 64}};
  auto message = [&](std::vector<PinnedBuffer> pins) -> std::string {
    try {
      PlanAround(buffers, pins, 64);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_NE(message({{2, 0}}).find("buffer 2 of 2"), std::string::npos);
  EXPECT_NE(message({{0, -64}}).find("offset -64"), std::string::npos);
  EXPECT_NE(message({{0, 32}}).find("multiple of 64"), std::string::npos);
  EXPECT_NE(message({{0, 64}, {1, 64}}).find("overlap"), std::string::npos);
  EXPECT_EQ(message({{0, 64}, {1, 0}}), "accepted");
  EXPECT_NE(message({{0, 0}, {0, 64}}).find("buffer 0 is pinned twice"), std::string::npos);
  EXPECT_NE(message({{0, INT64_MAX / 64 * 64}}).find("expected a multiple of 64 below 2^62"),
            std::string::npos);
  EXPECT_EQ(message({{0, (int64_t{1} << 62) - 64}}), "accepted");
}

// Sizes are rounded up to the alignment; lifetimes are half open; what has no bytes is in nobody's way.
TEST(PinnedPlanner, WhatOverlaps) {
  auto accepted = [](std::vector<LifetimeBuffer> buffers, std::vector<PinnedBuffer> pins) {
    try {
      PlanAround(buffers, pins, 64);
      return true;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
      return false;
    }
  };
  EXPECT_FALSE(accepted({{0, 4, 65}, {2, 6, 64}}, {{0, 0}, {1, 64}}));
  EXPECT_TRUE(accepted({{0, 4, 65}, {2, 6, 64}}, {{0, 0}, {1, 128}}));
  EXPECT_TRUE(accepted({{0, 2, 65}, {2, 6, 64}}, {{0, 0}, {1, 64}}));
  EXPECT_TRUE(accepted({{0, 4, 64}, {2, 6, 0}}, {{0, 0}, {1, 0}}));
}

}  // namespace
}  // namespace tidepool
