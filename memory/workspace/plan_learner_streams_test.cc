// What the learner makes of long histories.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
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

// Who follows it would read what is no more there: whatever goes while a cycle is observed, where few cycles are known.
TEST(PlanLearner, WhatIsNextIsOneOfThePlansThatAreKept) {
  for (const size_t kinds : {40, 100, 300}) {
    for (const uint32_t requests : {12u, 30u, 60u}) {
      std::mt19937_64 random(kinds + requests);
      Player player(WorkspaceConfig::Inference());
      player.learner().ExpectOrder();
      player.learner().AllowUnrecorded();
      player.MakeChanges(4);
      std::vector<std::vector<Request>> shapes(kinds);
      for (std::vector<Request>& shape : shapes) {
        for (uint32_t i = 0; i < requests; ++i) {
          const auto until = static_cast<uint32_t>(i + 1 + random() % 8);
          shape.push_back({64 * (1 + random() % 30), std::min(until, requests)});
        }
      }
      const auto is_kept = [&](const LearnedCycle* cycle) {
        return cycle == nullptr || player->plans().Holds(cycle);
      };
      size_t withheld = 0;
      for (int cycle = 0; cycle < 20000; ++cycle) {
        player.Run(shapes[random() % kinds]);
        withheld += player->next() == nullptr && player->plans().size() > 0;
        ASSERT_TRUE(is_kept(player->last())) << cycle;
        ASSERT_TRUE(is_kept(player->next())) << cycle;
      }
      EXPECT_GT(withheld, 100u) << kinds << " kinds of " << requests;
    }
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

// ---- lifetimes that are other ones each time ---------------------------------------------------

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
