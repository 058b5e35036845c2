// Which cycles are worth a plan.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/workspace/plan_learner.h"
#include "tidepool/memory/workspace/plan_player.h"
#include "tidepool/memory/workspace/planning_effort.h"

namespace tidepool {
namespace {

std::vector<Request> Shape(size_t kind) { return {{64}, {64 * (2 + kind)}, {128}}; }

TEST(PlanLearner, WhatNeverComesAgainIsNotPlannedForLong) {
  for (const WorkspaceConfig& config :
       {WorkspaceConfig::Inference(), WorkspaceConfig::Training()}) {
    Player player(config);
    for (size_t i = 0; i < 5000; ++i) player.Run(Shape(i));
    EXPECT_LE(player->plans_made(), 8u);
    EXPECT_TRUE(player->effort().waits());
    EXPECT_GT(player->effort().put_off(), 4900u);
    // Its memory is learned all the same: the pages hold each of them.
    EXPECT_GE(player->bytes(), 64 * 5000u);
    // What repeats from now on is planned at its second occurrence.
    const uint64_t misses = player.misses();
    for (int i = 0; i < 50; ++i) player.Run(Shape(100000));
    EXPECT_LE(player.misses(), misses + 2);
    for (int i = 0; i < 300; ++i) player.Run(Shape(100000));
    EXPECT_EQ(player->bytes(), 64 * (100002u + 3)) << "and pages fit it";
  }
}

// What grows a little now and then comes some times and never again: its plan is followed, and does not pay.
TEST(PlanLearner, WhatComesTwiceAndNeverAgainIsHardlyPlanned) {
  for (const bool unrecorded : {false, true}) {
    Player player(WorkspaceConfig::Inference());
    if (unrecorded) player.AllowUnrecorded();
    for (size_t i = 0; i < 3000; ++i) {
      player.Run(Shape(i));
      player.Run(Shape(i));
    }
    EXPECT_LE(player->plans_made(), 100u);
    EXPECT_TRUE(player->effort().are_hardly_followed());
    EXPECT_THAT(player->Report(), ::testing::HasSubstr("before their third coming"));
    // What repeats from now on is followed behind its third repetition at the latest.
    const uint64_t misses = player.misses(), made = player->plans_made();
    for (int i = 0; i < 50; ++i) player.Run(Shape(100000));
    EXPECT_LE(player.misses(), misses + 3 * Shape(0).size());
    EXPECT_EQ(player->plans_made(), made + 1);
    // That pays, so what is new is planned at its first coming again.
    for (int i = 0; i < 20000; ++i) player.Run(Shape(100000));
    for (size_t i = 0; i < 100; ++i) player.Run(Shape(200000 + i % 2));
    EXPECT_FALSE(player->effort().are_hardly_followed());
    const uint64_t before = player->plans_made();
    player.Run(Shape(300000));
    player.Run(Shape(300000));
    EXPECT_EQ(player->plans_made(), before + 1);
  }
}

// What the report says is so when it is asked, not when a cycle was new the last time.
TEST(PlanLearner, TheReportForgetsThatPlansWereHardlyFollowedWhenTheyAre) {
  Player player(WorkspaceConfig::Inference());
  for (int turn = 0; turn < 2; ++turn) {
    for (size_t i = 0; i < 100; ++i) player.Run(Shape(i));
  }
  for (size_t i = 0; i < 40; ++i) {
    player.Run(Shape(1000 + i));
    player.Run(Shape(1000 + i));
  }
  ASSERT_THAT(player->Report(), ::testing::HasSubstr("before their third coming"));
  for (int turn = 0; turn < 100; ++turn) {
    for (size_t i = 0; i < 100; ++i) player.Run(Shape(i));
  }
  EXPECT_EQ(player->Report(), "");
}

// Kinds that begin alike and release in orders of their own are planned together, which takes long, and each of them is looked
// at now and then: where pages would not become smaller for it the next ones wait ever longer.
TEST(PlanLearner, PlanningManyKindsTogetherInVainBecomesRare) {
  constexpr size_t kKinds = 200;
  constexpr uint32_t kCommon = 6;
  std::mt19937 random(50);
  std::vector<std::vector<Request>> kinds;
  for (size_t i = 0; i < kKinds; ++i) {
    std::vector<Request> kind;
    for (uint32_t j = 0; j < kCommon; ++j) kind.push_back({10000 * (j + 1), kCommon + 1 + j});
    for (uint32_t j = 0; j + 1 < kCommon; ++j)
      std::swap(kind[j].until, kind[j + random() % (kCommon - j)].until);
    for (uint32_t j = 0; j < kCommon; ++j)
      kind.push_back({64 * (1 + random() % 1000), 2 * kCommon});
    kinds.push_back(kind);
  }
  Player player(WorkspaceConfig::Inference());
  const auto draw = [&](int cycles) {
    const uint64_t before = player.tried();
    for (; cycles > 0; --cycles) player.Run(kinds[random() % kKinds]);
    return player.tried() - before;
  };
  draw(8000);
  const uint64_t misses = player.misses();
  // Where each was looked at as often as planning it with the others is paid by what was served it was 43 times.
  EXPECT_LE(draw(40000), 8u);
  EXPECT_EQ(player.misses(), misses);
}

// Whatever it is for, and in vain or not: planning takes a share of what is served, and some at first.
TEST(PlanLearner, AllPlanningTogetherTakesAShareOfWhatIsServed) {
  std::mt19937_64 random(6);
  // Kinds that need much more in the places they have in common than alone are looked at in vain.
  std::vector<std::vector<Request>> kinds(60);
  for (auto& kind : kinds) {
    kind = {{1000, 4}, {2000, 3}, {3000, 5}};
    for (uint32_t i = 3; i < 100; ++i)
      kind.push_back({16 + random() % 2000, std::min<uint32_t>(i + 1 + random() % 12, 100)});
  }
  Player player(WorkspaceConfig::Inference());
  uint64_t served = 0;
  const auto run = [&](int cycles) {
    for (; cycles > 0; --cycles) {
      player.Run(kinds[random() % kinds.size()]);
      served += 100;
    }
  };
  run(20000);
  EXPECT_LE(player.planned(), (uint64_t{1} << 19) + served / 128 + 6000);
  const uint64_t planned = player.planned();
  run(100000);
  EXPECT_LE(player.planned() - planned, uint64_t{120000} * 100 / 64);
}

// Of two kinds that take turns by twos one plan is always the wrong one, and each is made anew.
TEST(PlanLearner, OnePlanForTwoKindsIsNotMadeForEver) {
  std::vector<Request> one(500, Request{64}), other(500, Request{128});
  Player player(WorkspaceConfig::Training());
  uint64_t served = 0;
  for (int i = 0; i < 6000; ++i) {
    player.Run(i / 2 % 2 == 0 ? one : other);
    served += 500;
  }
  EXPECT_LE(player.planned(), (uint64_t{1} << 19) + served / 128 + 500);
  EXPECT_GE(player.planned(), uint64_t{1} << 18) << "which is enough to find out";
  EXPECT_THAT(player->Report(), ::testing::HasSubstr("more requests are served"));
}

// What comes twice running is expected, however little came of late that was known.
TEST(PlanLearner, WhatComesAgainIsExpectedWherePlansAreWithheld) {
  Player player(WorkspaceConfig::Inference());
  player.AllowUnrecorded();
  player.learner().ExpectOrder();
  size_t kind = 0;
  for (; kind < 2000; ++kind) {
    for (int i = 0; i < 3; ++i) player.Run(Shape(kind));
  }
  const LearnedCycle* planned = nullptr;
  for (int i = 0; i < 600 && planned == nullptr; ++i) {
    player.Run(Shape(kind));
    planned = player->next();
  }
  ASSERT_NE(planned, nullptr);
  player.Run(Shape(kind + 1));
  EXPECT_EQ(player->next(), nullptr) << "another one came";
  player.Run(Shape(kind));
  player.Run(Shape(kind));
  EXPECT_EQ(player->next(), planned);
}

TEST(PlanningEffort, TellsHowMuchIsToBeServedUntilMoreIsPlanned) {
  PlanningEffort effort;
  EXPECT_TRUE(effort.Affords(size_t{1} << 30)) << "as nothing was planned";
  EXPECT_EQ(effort.until_affords(), 0u);
  effort.Spend(size_t{1} << 30);
  EXPECT_FALSE(effort.Affords(10));
  EXPECT_EQ(effort.until_affords(), 1280u);
  effort.Served(1279);
  EXPECT_FALSE(effort.Affords(10));
  EXPECT_EQ(effort.until_affords(), 1u);
  effort.Served(1);
  EXPECT_TRUE(effort.Affords(10));
  EXPECT_EQ(effort.until_affords(), 0u);
}

// A plan of many requests takes long and much memory, so fewer of them are made on trust.
TEST(PlanLearner, LargePlansThatNobodyFollowsAreFew) {
  Player player(WorkspaceConfig::Inference());
  const auto large = [](size_t kind) {
    std::vector<Request> requests(9000, Request{64, 0});
    requests[0].bytes = 64 * (2 + kind);
    return requests;
  };
  for (size_t kind = 0; kind < 3; ++kind) player.Run(large(kind));
  EXPECT_EQ(player->plans_made(), 1u);
  EXPECT_EQ(player->plans().size(), 0u) << "two others came, so it is given up";
  for (size_t kind = 3; kind < 20; ++kind) player.Run(large(kind));
  EXPECT_EQ(player->plans_made(), 1u);
  // Kinds that come again are planned then, however many requests they have.
  for (int round = 0; round < 2; ++round) {
    for (size_t kind = 0; kind < 20; ++kind) player.Run(large(kind));
  }
  EXPECT_EQ(player->plans().size(), 20u);
}

// Memory of plans that were made on trust goes where cycles never come again, but not of one that
// did.
TEST(PlanLearner, PlansThatWereNeverFollowedAreGivenUp) {
  for (const bool one_repeats : {false, true}) {
    Player player(WorkspaceConfig::Inference());
    if (one_repeats) {
      for (int i = 0; i < 3; ++i) player.Run(Shape(0));
    }
    for (size_t i = 1; i <= 500; ++i) player.Run(Shape(i));
    EXPECT_EQ(player->plans().size(), one_repeats ? 1u : 0u);
    EXPECT_LE(player->effort().state_bytes() + player->plans().state_bytes(), 72000u);
    // One of them that comes after all was seen before: it is planned at once.
    const uint64_t misses = player.misses(), made = player->plans_made();
    for (int i = 0; i < 3; ++i) player.Run(Shape(2));
    EXPECT_LE(player.misses(), misses + 1);
    EXPECT_EQ(player->plans_made(), made + 1);
  }
}

// While planning waits nothing is written down until something comes again.
TEST(PlanLearner, WhatRepeatsAfterALongWaitingIsPlannedAtItsThirdComing) {
  Player player(WorkspaceConfig::Inference());
  player.AllowUnrecorded();
  size_t kind = 0;
  while (!player->effort().waits()) {
    EXPECT_TRUE(player->lesson().records);
    player.Run(Shape(kind++));
  }
  for (size_t i = 0; i < 500; ++i) player.Run(Shape(kind++));
  EXPECT_FALSE(player->lesson().records);
  EXPECT_TRUE(player->plans().empty());
  const uint64_t made = player->plans_made(), version = player->version(),
                 put_off = player->effort().put_off();
  player.Run(Shape(100000));
  EXPECT_FALSE(player->lesson().records);
  player.Run(Shape(100000));
  EXPECT_TRUE(player->lesson().records) << "it was seen before";
  EXPECT_NE(player->version(), version) << "so that whoever follows is told";
  EXPECT_EQ(player->effort().put_off(), put_off + 2);
  EXPECT_EQ(player->plans_made(), made);
  player.Run(Shape(100000));
  EXPECT_EQ(player->plans_made(), made + 1);
  const uint64_t misses = player.misses();
  for (int i = 0; i < 100; ++i) player.Run(Shape(100000));
  EXPECT_EQ(player.misses(), misses);
}

// One that comes at times, among others that never come again: at its third coming, and at one more
// for each time that 64 cycles can be doubled until they last from one to the next.
TEST(PlanLearner, WhatComesRarelyAfterALongWaitingIsPlannedAfterAFewComings) {
  for (const int period : {2, 10, 60, 100, 1000, 2000}) {
    Player player(WorkspaceConfig::Inference());
    player.AllowUnrecorded();
    size_t kind = 0;
    for (int i = 0; i < 500; ++i) player.Run(Shape(kind++));
    const uint64_t made = player->plans_made();
    int most = 3;
    for (int cycles = 64; cycles <= period; cycles *= 2) ++most;
    int comings = 0;
    for (; comings <= most && player->plans_made() == made; ++comings) {
      for (int i = 1; i < period; ++i) player.Run(Shape(kind++));
      player.Run(Shape(1000000));
    }
    EXPECT_LE(comings, most) << period;
    EXPECT_GE(comings, 3) << period;
    // What was recorded meanwhile in vain is not for ever.
    for (int i = 0; i < 20000 && player->lesson().records; ++i) player.Run(Shape(kind++));
    EXPECT_FALSE(player->lesson().records) << period;
  }
}

// Who cannot do without is told to record each cycle.
TEST(PlanLearner, CyclesAreRecordedWhereThatWasNotAllowedToEnd) {
  Player player(WorkspaceConfig::Inference());
  for (size_t i = 0; i < 500; ++i) {
    player.Run(Shape(i));
    ASSERT_TRUE(player->lesson().records);
  }
}

// Kinds that come often for a while and then never again: each plan is followed, and none is worth it. They were planned for
// ever, one for each.
TEST(PlanLearner, KindsThatStayAwayArePlannedLessAndLess) {
  for (const size_t times : {3, 40}) {
    Player player(WorkspaceConfig::Inference());
    player.AllowUnrecorded();
    size_t cycles = 0;
    const auto stays_away = [&](size_t count) {
      const uint64_t before = player->plans_made();
      for (const size_t end = cycles + count; cycles < end; ++cycles)
        player.Run(Shape(cycles / times));
      return player->plans_made() - before;
    };
    // Those that were made before the first were lost; from then on one for a thousand cycles like it.
    EXPECT_LE(stays_away(20000), 450u) << times;
    EXPECT_THAT(player->Report(), ::testing::HasSubstr("stayed away before 256"));
    EXPECT_LE(stays_away(80000), 110u) << times;
    // What goes on coming is planned all the same.
    const uint64_t made = player->plans_made();
    for (int i = 0; i < 600; ++i) player.Run(Shape(1000000));
    EXPECT_EQ(player->plans_made(), made + 1) << times;
    const uint64_t misses = player.misses();
    for (int i = 0; i < 200; ++i) player.Run(Shape(1000000));
    EXPECT_EQ(player.misses(), misses);
    // And wins back what was lost, so that what is new is planned at once again.
    for (int i = 0; i < 100000; ++i) player.Run(Shape(1000000 + i % 2));
    EXPECT_TRUE(player->effort().trusts());
    EXPECT_EQ(player->Report(), "");
    const uint64_t before = player->plans_made();
    player.Run(Shape(2000000));
    EXPECT_EQ(player->plans_made(), before + 1);
  }
}

// What comes rarely and regularly keeps its plan, though it is away for longer than what is given up as lost.
TEST(PlanLearner, WhatComesRarelyKeepsItsPlanWhereFewStayAway) {
  Player player(WorkspaceConfig::Training());
  for (int epoch = 0; epoch < 20; ++epoch) {
    for (int i = 0; i < 5000; ++i) player.Run(Shape(1));
    for (int i = 0; i < 3; ++i) player.Run(Shape(2));
    player.Run(Shape(100 + epoch));  // never again
  }
  EXPECT_TRUE(player->effort().trusts());
  EXPECT_EQ(player->effort().planned_at(), 1u);
  const uint64_t made = player->plans_made(), misses = player.misses();
  player.Run(Shape(2));
  EXPECT_EQ(player->plans_made(), made);
  EXPECT_EQ(player.misses(), misses);
}

// Lifetimes of the same sizes that are longer again and again: planning each time does not make them known sooner.
TEST(PlanLearner, AKindWhoseLivesGrowIsPlannedEverMoreRarely) {
  std::mt19937 random(3);
  Player player(WorkspaceConfig::Inference());
  constexpr uint32_t kRequests = 60;
  for (int i = 0; i < 4000; ++i) {
    std::vector<Request> cycle;
    for (uint32_t j = 0; j < kRequests; ++j) {
      const uint32_t until = j + 1 + (random() % 8 == 0 ? random() % 40 : random() % 4);
      cycle.push_back({64 * (1 + j), std::min(until, kRequests)});
    }
    player.Run(cycle);
  }
  EXPECT_LE(player->plans_made(), 20u);
}

TEST(PlanLearner, ManyKindsInTurnsAreAllPlanned) {
  constexpr size_t kKinds = 300;
  Player player(WorkspaceConfig::Inference());
  std::mt19937_64 random(1);
  for (int i = 0; i < 6000; ++i) player.Run(Shape(random() % kKinds));
  EXPECT_EQ(player->plans().size(), kKinds);
  EXPECT_LE(player->plans_made(), kKinds * 5 / 4) << "most were planned once";
  const uint64_t misses = player.misses();
  for (int i = 0; i < 3000; ++i) player.Run(Shape(random() % kKinds));
  EXPECT_LE(player.misses(), misses + 5);
}

}  // namespace
}  // namespace tidepool
