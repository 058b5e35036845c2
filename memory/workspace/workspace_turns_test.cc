// Kinds of cycles that come in some order.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/workspace/kinds_for_test.h"

namespace tidepool {
namespace {

// Kinds that come in the order in which they came before are begun with their own plans, none of them by trying others'.
TEST(WorkspaceLiveness, KindsInTurnsBeginWithTheirOwnPlans) {
  std::mt19937_64 random(49);
  for (const size_t kinds : {2, 7, 200}) {
    std::vector<Kind> set(kinds);
    for (Kind& kind : set) {
      kind = {{1024, 3}, {2048, 5}};
      Extend(random, 10, 500, &kind);
    }
    Workspace workspace("w", Learning());
    InTurns(workspace, set, 12);
    const WorkspaceStats before = workspace.stats();
    InTurns(workspace, set, 5);
    const WorkspaceStats after = workspace.stats();
    EXPECT_EQ(after.plan_switches, before.plan_switches) << kinds;
    EXPECT_EQ(after.misses, before.misses) << kinds;
    // Another order is learned as soon as it has come once.
    std::shuffle(set.begin(), set.end(), random);
    InTurns(workspace, set, 2);
    const uint64_t switches = workspace.stats().plan_switches;
    InTurns(workspace, set, 5);
    EXPECT_EQ(workspace.stats().plan_switches, switches) << kinds;
    // One in between costs its own beginning, and that of the one behind it.
    Cycle(workspace, set[0]);
    Cycle(workspace, set[0]);
    EXPECT_LE(workspace.stats().plan_switches, switches + 1) << kinds;
    EXPECT_EQ(workspace.stats().misses, before.misses) << kinds;
    // Statistics tell of the cycle that was, not of the one that is expected.
    Workspace alone("alone", Learning());
    for (int i = 0; i < 4; ++i) Cycle(alone, set[0]);
    EXPECT_EQ(workspace.stats().requested_bytes, alone.stats().requested_bytes);
    EXPECT_EQ(workspace.stats().planned_requests, set[0].size());
  }
}

// More than are planned together: each would be planned anew whenever it missed, for ever.
TEST(WorkspaceLiveness, FamiliesThatAreTooLargeStopBeingPlanned) {
  constexpr size_t kKinds = 540;
  std::mt19937_64 random(5);
  Kind common;
  Extend(random, 8, 500, &common);
  std::vector<Kind> kinds(kKinds, common);
  for (Kind& kind : kinds) {
    Extend(random, 4, 500, &kind);
    DrawLives(random, &kind);
  }
  Workspace workspace("w", Learning());
  // What comes in the same order each time follows its own plan from the beginning; this does not.
  const auto to_and_fro = [&](int times) {
    for (; times > 0; --times) {
      InTurns(workspace, kinds, 1);
      std::reverse(kinds.begin(), kinds.end());
    }
  };
  to_and_fro(40);
  const WorkspaceStats before = workspace.stats();
  to_and_fro(10);
  const WorkspaceStats after = workspace.stats();
  EXPECT_LE(after.plans - before.plans, kKinds * 5 / 4);  // not 10 for each
  EXPECT_GT(after.cycles_not_planned, before.cycles_not_planned);
  EXPECT_EQ(after.spills, before.spills);  // free ranges serve them
}

// A longer sequence is the shorter one and more of the same: whatever length comes next, the cycle begins with the longest and
// changes plans nowhere. 200 lengths had thousands of plans made, each of them together with all others.
TEST(WorkspaceLiveness, SequencesOfManyLengthsShareThePlanOfTheLongest) {
  std::mt19937_64 random(200);
  Workspace workspace("lengths", Learning());
  const auto run = [&](int cycles) {
    for (; cycles > 0; --cycles) {
      Kind sequence;
      const uint32_t length = 20 + static_cast<uint32_t>(random() % 200);
      for (uint32_t i = 0; i < length; ++i)
        sequence.push_back({512 + 64 * (i % 7), std::min(i + 3, length)});
      Cycle(workspace, sequence);
    }
  };
  run(2000);
  EXPECT_LE(workspace.stats().plans, 40u);
  const WorkspaceStats before = workspace.stats();
  run(2000);
  const WorkspaceStats after = workspace.stats();
  EXPECT_EQ(after.misses, before.misses);
  EXPECT_EQ(after.plans, before.plans);
  EXPECT_LE(after.plan_switches - before.plan_switches, 20u);
}

// Of kinds that are like nothing that is planned each request looked for a place among those of larger ones, and missed.
TEST(WorkspaceLiveness, WhatIsLikeNoPlanLeavesThemAtOnce) {
  std::mt19937_64 random(31);
  Workspace workspace("unlike", Learning());
  const auto run = [&](int kinds) {
    for (; kinds > 0; --kinds) {
      Kind kind;
      Extend(random, 30, 30, &kind);
      DrawLives(random, &kind);
      for (int i = 0; i < 4; ++i) Cycle(workspace, kind);
    }
  };
  run(500);
  const WorkspaceStats before = workspace.stats();
  run(1000);
  const WorkspaceStats after = workspace.stats();
  EXPECT_LE(after.misses - before.misses, 4000u * 4) << "of 120,000 requests";
  EXPECT_LE(after.plans - before.plans, 50u);
}

// Kinds that leave plans at once miss one request each, and would be in one another's way all the same: small ones begin
// without a plan, others are given up together.
TEST(WorkspaceLiveness, ManyKindsOfManyRequestsThatBeginAlikeAreGivenUp) {
  for (const size_t most_units : {size_t{100}, size_t{10000}}) {
    std::mt19937_64 random(71);
    Kind beginning;
    Extend(random, 10, most_units, &beginning);
    std::vector<Kind> kinds(700, beginning);
    for (Kind& kind : kinds) {
      Extend(random, 30, most_units, &kind);
      DrawLives(random, &kind);
    }
    Workspace workspace("crowd", Learning());
    for (int i = 0; i < 12000; ++i) Cycle(workspace, kinds[random() % kinds.size()]);
    EXPECT_EQ(workspace.stats().plans_kept, 0u) << workspace.PlanReport();
    const WorkspaceStats before = workspace.stats();
    for (int i = 0; i < 1000; ++i) Cycle(workspace, kinds[random() % kinds.size()]);
    EXPECT_EQ(workspace.stats().misses, before.misses) << most_units;
  }
}

// What is ever different begins without a plan, and so does what comes then, until it is known: what repeats at once, kinds in
// turns once their order is, and sequences of which the longest serves all.
TEST(WorkspaceLiveness, PlansAreFollowedAgainBehindWhatWasLikeNone) {
  std::mt19937_64 random(20);
  const auto draw = [&random] {
    Kind kind;
    Extend(random, 30, 30, &kind);
    DrawLives(random, &kind);
    return kind;
  };
  Workspace workspace("w", Learning());
  const auto doubts = [&workspace] {
    return workspace.PlanReport().find("most cycles begin without") != std::string::npos;
  };
  const auto unlike = [&] {
    for (int i = 0; i < 1000; ++i) {
      const Kind kind = draw();
      for (int j = 0; j < 3; ++j) Cycle(workspace, kind);
    }
    EXPECT_TRUE(doubts()) << workspace.PlanReport();
  };
  const auto expect_follows = [&](const char* what, int cycles, const auto& cycle) {
    for (int i = 0; i < cycles; ++i) cycle();
    EXPECT_FALSE(doubts()) << what;
    const WorkspaceStats before = workspace.stats();
    for (int i = 0; i < 400; ++i) cycle();
    EXPECT_EQ(workspace.stats().misses, before.misses) << what;
    EXPECT_EQ(workspace.stats().plan_switches, before.plan_switches) << what;
    EXPECT_EQ(workspace.stats().plans, before.plans) << what;
  };
  unlike();
  const uint64_t misses = workspace.stats().misses;
  for (int i = 0; i < 300; ++i) Cycle(workspace, draw());
  EXPECT_LE(workspace.stats().misses, misses + 60) << "none but of those that are tried";
  const Kind one = draw();
  expect_follows("one kind", 1000, [&] { Cycle(workspace, one); });
  unlike();
  const std::vector<Kind> kinds = {draw(), draw(), draw(), draw()};
  size_t at = 0;
  expect_follows("kinds in turns", 8000, [&] { Cycle(workspace, kinds[at++ % kinds.size()]); });
}

// It was told of the last plan there was.
TEST(WorkspaceLiveness, OfAPlanThatIsForgottenNothingIsTold) {
  std::mt19937_64 random(5);
  Workspace workspace("none", Learning());
  for (int i = 0; i < 500; ++i) {
    Kind kind;
    Extend(random, 10, 1000, &kind);
    Cycle(workspace, kind);
  }
  const WorkspaceStats stats = workspace.stats();
  ASSERT_EQ(stats.plans_kept, 0u);
  EXPECT_EQ(stats.planned_peak_bytes, 0u);
  EXPECT_EQ(stats.planned_requests, 0u);
  EXPECT_EQ(stats.planned_requests, workspace.PlannedRequests().size());
}

}  // namespace
}  // namespace tidepool
