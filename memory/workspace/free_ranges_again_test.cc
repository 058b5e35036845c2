// Ranges that are begun again, by cycles that have given all that they took.
#include <algorithm>
#include <random>

#include "gtest/gtest.h"
#include "tidepool/memory/workspace/free_ranges.h"
#include "tidepool/memory/workspace/free_ranges_model.h"

namespace tidepool {
namespace {

// Cycles of small requests go on with what the one before has given.
TEST(FreeRanges, WhatWasKeptIsThereWhereItGoesOn) {
  constexpr size_t kEnd = 1024 * kUnit;
  FreeRanges ranges(kUnit);
  const auto cycle = [&](size_t end) {
    ranges.BeginAgain(0, end);
    const bool kept = ranges.state_bytes() > 0 && ranges.HasKept(3 * kUnit);
    Model model(ranges);
    for (size_t units : {3, 5, 3, 8}) EXPECT_TRUE(model.Take(units * kUnit));
    model.GiveAll();
    ranges.End();
    return kept;
  };
  EXPECT_FALSE(cycle(kEnd));
  EXPECT_TRUE(cycle(kEnd));
  EXPECT_FALSE(cycle(kEnd / 2)) << "another range";
  EXPECT_TRUE(cycle(kEnd / 2));
  ranges.Lose();
  EXPECT_FALSE(cycle(kEnd / 2)) << "something was not given";
  EXPECT_TRUE(cycle(kEnd / 2));
  ranges.Trim();
  EXPECT_FALSE(cycle(kEnd / 2)) << "its books went";
  // Now and then it begins at the begin, so that what is used becomes less when less is needed.
  int began = 0;
  for (int i = 0; i < 640; ++i) began += !cycle(kEnd / 2);
  EXPECT_EQ(began, 10);
  // What much was used of begins anew each time.
  ranges.BeginAgain(0, 2 * FreeRanges::kLittle);
  {
    Model model(ranges);
    for (size_t i = 0; i < FreeRanges::kLittle / kUnit + 2; ++i) ASSERT_TRUE(model.Take(kUnit));
    model.GiveAll();
  }
  ranges.End();
  ranges.BeginAgain(0, 2 * FreeRanges::kLittle);
  EXPECT_FALSE(ranges.HasKept(kUnit));
  EXPECT_EQ(ranges.reached(), 0u);
}

// Whatever cycles draw: apart, within the range, and near what is alive with what may be kept.
TEST(FreeRanges, RandomCyclesThatGoOnStayApart) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    FreeRanges ranges(kUnit);
    const size_t end = (256 + random() % 4096) * kUnit;
    size_t most_alive = 0, most_reached = 0;
    for (int cycle = 0; cycle < 200; ++cycle) {
      ranges.BeginAgain(0, end);
      Model model(ranges);
      for (int i = 0; i < 60; ++i) {
        if (model.size() == 0 || random() % 100 < 60) {
          if (model.live() < end / 8) {
            EXPECT_TRUE(model.Take((1 + random() % 31) * kUnit)) << seed;
          }
        } else {
          model.Give(random() % model.size());
        }
        most_alive = std::max(most_alive, model.live());
      }
      most_reached = std::max(most_reached, ranges.reached());
      model.GiveAll();
      ranges.End();
    }
    EXPECT_LE(most_reached, 2 * most_alive + (size_t{40} << 10)) << seed;
  }
}

}  // namespace
}  // namespace tidepool
