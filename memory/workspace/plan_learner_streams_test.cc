// What the learner makes of long histories.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/workspace/cycle_follower.h"
#include "tidepool/memory/workspace/plan_learner.h"
#include "tidepool/memory/workspace/plan_player.h"
#include "tidepool/memory/workspace/workspace_counters.h"

namespace tidepool {
namespace {

// One more of many alike is observed in a short way. What is decided, and when, is the same as in
// the long one, in which `slow` observes the same cycles.
TEST(PlanLearner, TheShortWayDecidesAsTheLongOne) {
  for (const WorkspaceConfig& config :
       {WorkspaceConfig::Inference(), WorkspaceConfig::Training()}) {
    for (uint64_t seed = 0; seed < 40; ++seed) {
      std::mt19937_64 random(seed);
      Player quick(config), slow(config);
      slow.RecordAll();
      constexpr int kRepetitions[] = {1, 1, 2, 3, 9, 40, 300, 3000};
      for (int step = 0; step < 40; ++step) {
        const size_t kind = random() % 3, size = random() % 8 == 0 ? 1 << 20 : 64 * (2 + kind);
        const auto until = static_cast<uint32_t>(1 + random() % 4);
        const std::vector<Request> requests = {{4096, until}, {size}, {4096}, {64 * (1 + kind)}};
        for (int i = kRepetitions[random() % 8]; i > 0; --i) {
          quick.Run(requests);
          slow.Run(requests);
          ASSERT_EQ(quick->version(), slow->version()) << "seed " << seed << " step " << step;
          ASSERT_EQ(quick->bytes(), slow->bytes()) << "seed " << seed << " step " << step;
          ASSERT_EQ(quick.misses(), slow.misses());
          ASSERT_EQ(quick->plans_made(), slow->plans_made());
          ASSERT_EQ(quick->plans().size(), slow->plans().size());
          ASSERT_EQ(quick->next()->plan->signature(), slow->next()->plan->signature());
          ASSERT_EQ(quick->next()->used_at.get(), slow->next()->used_at.get());
        }
      }
    }
  }
}

// However long another cycle was repeated: what it gets its own look for is its own repetitions.
TEST(PlanLearner, ACycleThatNeedsLessIsLookedAtSoonAfterALongSteadyOne) {
  for (const int before : {1, 100, 5000}) {
    Player player(WorkspaceConfig::Training());
    for (int i = 0; i < before; ++i) player.Run(std::vector<Request>(40, Request{4096}));
    // The plan serves its beginning too.
    Player* const shorter = &player;
    const auto beginning = [shorter] {
      shorter->Make(std::vector<Request>(4, Request{4096}));
      EndedCycle& cycle = shorter->cycle();
      if (cycle.misses > 0 && shorter->learner().next()->plan->requests.size() == 40) {
        cycle.misses = 0;
        shorter->Forgive();
      }
      shorter->Learn();
    };
    for (int i = 0; i < 30; ++i) beginning();
    EXPECT_EQ(player->bytes(), 4 * 4096u) << "after " << before;
  }
}

// The layouts of plans that come later need more memory to be followed, which moves it: what was
// prepared for the cycle before is prepared anew, though the plan is the same.
TEST(CycleFollower, ALessonIsPreparedForThoughTheSameCycleIsExpected) {
  const WorkspaceConfig config = WorkspaceConfig::Inference();
  Player player(config);
  const std::vector<Request> shorter = {{1024}, {64}};
  player.Run(shorter);
  WorkspaceCounters counters;
  CycleFollower follower(config, counters);
  follower.Take(player->lesson());
  EXPECT_FALSE(follower.BeginCycle(1 << 20));
  EXPECT_TRUE(follower.BeginCycle(1 << 20));
  EXPECT_FALSE(follower.BeginCycle(2 << 20)) << "other pages";
  player.Run(std::vector<Request>(500, Request{128}));
  player.Run(shorter);
  ASSERT_EQ(player->next(), follower.followed());
  EXPECT_TRUE(follower.BeginCycle(2 << 20));
  follower.Take(player->lesson());
  EXPECT_FALSE(follower.BeginCycle(2 << 20));
  EXPECT_TRUE(follower.BeginCycle(2 << 20));
}

// ---- effort -----------------------------------------------------------------------------------

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

// ---- lifetimes that are other ones each time
// --------------------------------------------------------

// Twenty requests of 256 KiB, each released before one of the next four.
std::vector<Request> ShortLives(std::mt19937_64& random, size_t first = 1 << 18) {
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 20; ++i) {
    requests.push_back({i == 0 ? first : 1 << 18,
                        i + 1 + static_cast<uint32_t>(random() % 20 == 0 ? 19 - i : random() % 2)});
  }
  return requests;
}

TEST(PlanLearner, APlanFarLargerThanWhatIsAliveIsGivenUpUntilLivesAreRegular) {
  for (const WorkspaceConfig& config :
       {WorkspaceConfig::Inference(), WorkspaceConfig::Training()}) {
    for (const bool unrecorded : {false, true}) {
      Player player(config);
      if (unrecorded) player.AllowUnrecorded();
      std::mt19937_64 random(1);
      for (int i = 0; i < 500; ++i) player.Run(ShortLives(random));
      ASSERT_TRUE(player->plans().empty());
      EXPECT_GE(player->plans_given_up(), 1u);
      EXPECT_LE(player->plans_given_up(), 6u);
      const uint64_t given_up = player->plans_given_up();
      std::mt19937_64 fixed(7);
      const std::vector<Request> regular = ShortLives(fixed);
      int until = 0;
      while (player->plans().empty() && until < 600) player.Run(regular), ++until;
      EXPECT_LE(until, 2 * LoosePlans::kMostRepetitions + 64);
      const uint64_t misses = player.misses();
      for (int i = 0; i < 500; ++i) player.Run(regular);
      EXPECT_EQ(player.misses(), misses);
      EXPECT_EQ(player->plans_given_up(), given_up);
    }
  }
}

// When lives are regular again in two ways that take turns: the plan that comes back is for both.
TEST(PlanLearner, APlanThatComesBackHasTheLongestLivesThatWereSeen) {
  for (const WorkspaceConfig& config :
       {WorkspaceConfig::Inference(), WorkspaceConfig::Training()}) {
    Player player(config);
    std::mt19937_64 random(1);
    for (int i = 0; i < 500; ++i) player.Run(ShortLives(random));
    ASSERT_TRUE(player->plans().empty());
    std::vector<Request> shorter(20, Request{1 << 18}), longer = shorter;
    for (uint32_t i = 0; i < 20; ++i) {
      shorter[i].until = i + 1;
      longer[i].until = std::min(i + 2, 20u);
    }
    int until = 0;
    for (; player->plans().empty() && until < 600; ++until) {
      player.Run(until % 2 == 0 ? longer : shorter);
    }
    ASSERT_FALSE(player->plans().empty());
    const uint64_t misses = player.misses();
    for (int i = 0; i < 6; ++i) player.Run(i % 2 == 0 ? longer : shorter);
    EXPECT_EQ(player.misses(), misses);
  }
}

// Also where pages stay as they are, because another kind needs them.
TEST(PlanLearner, WhoFollowsIsToldThatAPlanWasGivenUp) {
  Player player(WorkspaceConfig::Inference());
  player.learner().KeepOutliers();  // as of a pool, whose cycles have pages of their own
  std::mt19937_64 random(1);
  for (int i = 0; i < 100; ++i) {
    player.Run({{size_t{32} << 20}, {64}});
    const uint64_t version = player->version(), given_up = player->plans_given_up();
    const size_t bytes = player->bytes();
    player.Run(ShortLives(random));
    if (player->plans_given_up() == given_up) continue;
    EXPECT_EQ(player->bytes(), bytes);
    EXPECT_GT(player->version(), version);
  }
  EXPECT_GE(player->plans_given_up(), 1u);
}

// Also where another plan, or room beside it, served what its own does not allow: what cycles are
// expected to be is one that there is.
TEST(PlanLearner, APlanThatIsGivenUpIsNotExpected) {
  Player player(WorkspaceConfig::Inference());
  player.RecordAll();
  std::mt19937_64 random(1);
  for (int i = 0; i < 500; ++i) {
    player.Make(ShortLives(random));
    player.cycle().misses = 0;
    player.Learn();
    ASSERT_TRUE(player->next() == nullptr || player->plans().Holds(player->next())) << i;
  }
  EXPECT_GE(player->plans_given_up(), 1u);
}

// Where nothing is gained: pages of a size that is given, and those that another kind needs.
TEST(PlanLearner, APlanThatCostsNothingStays) {
  {
    Player player(WorkspaceConfig::Inference(), 0, /*initial=*/size_t{64} << 20);
    std::mt19937_64 random(1);
    for (int i = 0; i < 300; ++i) player.Run(ShortLives(random));
    EXPECT_EQ(player->plans_given_up(), 0u);
  }
  {
    Player player(WorkspaceConfig::Inference());
    std::mt19937_64 random(1);
    for (int i = 0; i < 300; ++i) {
      player.Run(ShortLives(random));
      player.Run({{size_t{32} << 20}, {64}});
    }
    EXPECT_EQ(player->plans_given_up(), 0u);
    EXPECT_EQ(player->plans().size(), 2u);
  }
}

// What is remembered of them is bounded.
TEST(PlanLearner, ManyKindsOfWhichPlansAreGivenUpTakeLittleMemory) {
  Player player(WorkspaceConfig::Inference());
  std::mt19937_64 random(1);
  for (size_t kind = 0; kind < 700; ++kind) {
    for (int i = 0; i < 30; ++i) player.Run(ShortLives(random, (1 << 18) + 64 * kind));
  }
  EXPECT_GE(player->plans_given_up(), 600u);
  const std::string why = player->Report();
  EXPECT_EQ(std::count(why.begin(), why.end(), '\n'), 17) << "as many as one reads: " << why;
  EXPECT_NE(why.find(" other kinds likewise"), std::string::npos);
  EXPECT_LE(player->state_bytes(), size_t{1} << 20);
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

// More kinds than there is memory for: some are planned, and they do not take turns at being
// forgotten.
TEST(PlanLearner, BeyondItsMemoryPlansDoNotTakeTurns) {
  Player player(WorkspaceConfig::Inference());
  const auto large = [](size_t kind) {
    std::vector<Request> requests(3000, Request{64});
    requests[0].bytes = 64 * (2 + kind);
    return requests;
  };
  for (int round = 0; round < 4; ++round) {
    for (size_t kind = 0; kind < 400; ++kind) player.Run(large(kind));
  }
  const size_t kept = player->plans().size();
  EXPECT_GT(kept, 50u);
  EXPECT_LT(kept, 400u);
  EXPECT_LE(player->plans().state_bytes(), PlanSet::kMostBytes + PlanSet::kMostBytes / 8);
  const uint64_t misses = player.misses(), made = player->plans_made();
  for (size_t kind = 0; kind < 400; ++kind) player.Run(large(kind));
  EXPECT_LE(player.misses(), misses + 400 - kept + 5);
  EXPECT_LE(player->plans_made(), made + 5);
  // One that repeats at once has a plan whatever there is.
  for (int i = 0; i < 3; ++i) player.Run(large(1000));
  const uint64_t before = player.misses();
  for (int i = 0; i < 10; ++i) player.Run(large(1000));
  EXPECT_EQ(player.misses(), before);
}

}  // namespace
}  // namespace tidepool
