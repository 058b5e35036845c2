// Kinds of cycles that attackers found to be in each other's way.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/memory/workspace/kinds_for_test.h"

namespace tidepool {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// Kinds that are alike in some sizes and differ in lifetimes.
TEST(WorkspaceLiveness, KindsWithOtherLivesStopMissing) {
  std::mt19937_64 random(16);
  std::vector<Kind> sixteen(16, Kind(30)), drawn(500, Kind(40));
  const auto lives = [&random](Kind& kind, bool sizes) {
    for (uint32_t i = 0; i < kind.size(); ++i) {
      if (sizes) kind[i].bytes = i < 2 ? 1024 * (i + 1) : 64 + 64 * (random() % 500);
      kind[i].until = static_cast<uint32_t>(i + 1 + random() % (kind.size() - i));
    }
  };
  for (Kind& kind : sixteen) lives(kind, true);
  lives(drawn[0], true);
  for (Kind& kind : drawn) kind = drawn[0], lives(kind, false);
  const std::vector<std::vector<Kind>> sets = {
      {{{64, 1}, {64, 2}, {64, 3}}, {{64, 2}, {64, 3}, {64, 3}}, {{64, 3}, {64, 3}, {64, 3}}},
      {{{1024, 3}, {28672, 3}, {18432, 3}},
       {{1024, 2}, {28672, 2}, {18432, 3}},
       {{1024, 2}, {28672, 3}, {18432, 3}}},
      {{{64, 1}, {64, 2}, {64, 5}, {128, 5}, {2048, 5}},
       {{64, 5}, {64, 5}, {64, 5}, {128, 5}, {2048, 5}},
       {{64, 1}, {64, 3}, {64, 3}, {128, 4}, {2048, 5}}},
      {{{64, 2}, {64, 2}}, {{64, 1}, {128, 3}, {256, 3}}, {{64, 2}, {256, 2}}},
      sixteen,
      drawn};
  for (size_t set = 0; set < sets.size(); ++set) {
    for (const int running : {1, 4, 0}) {  // 0: in random order
      Workspace workspace("w", Learning());
      int number = 0;
      const auto cycle = [&] {
        const size_t kinds = sets[set].size();
        const size_t next = running == 0 ? random() : static_cast<size_t>(number++ / running);
        Cycle(workspace, sets[set][next % kinds]);
      };
      for (int i = 0; i < 10000; ++i) cycle();
      const WorkspaceStats before = workspace.stats();
      for (int i = 0; i < 10000; ++i) cycle();
      EXPECT_LE(workspace.stats().misses - before.misses, 10u)
          << "set " << set << " running " << running;
      EXPECT_LE(workspace.stats().plans - before.plans, 20u)
          << "set " << set << " running " << running;
    }
  }
}

// Families that are too large to be planned anew whenever one of them misses.
TEST(WorkspaceLiveness, LargeFamiliesInTurnsStopMissing) {
  struct Family {
    size_t kinds, common, own;
  };
  for (const Family& family : {Family{300, 30, 10}, {400, 4, 6}, {12, 1000, 10}}) {
    std::mt19937_64 random(family.kinds);
    Kind common;
    Extend(random, family.common, 1000, &common);
    std::vector<Kind> kinds(family.kinds, common);
    for (Kind& kind : kinds) {
      Extend(random, family.own, 1000, &kind);
      for (uint32_t i = 0; i < kind.size(); ++i) {
        const size_t most =
            random() % 3 == 0 ? kind.size() - i : std::min<size_t>(4, kind.size() - i);
        kind[i].until = static_cast<uint32_t>(i + 1 + random() % most);
      }
    }
    Workspace workspace("w", Learning());
    InTurns(workspace, kinds, 12);
    const WorkspaceStats before = workspace.stats();
    InTurns(workspace, kinds, 3);
    EXPECT_EQ(workspace.stats().misses, before.misses) << family.kinds;
    EXPECT_EQ(workspace.stats().plans, before.plans) << family.kinds;
  }
}

// Kinds that come for some cycles and then stay away for hundreds or thousands: the largest were
// forgotten each time, and missed when they came back.
TEST(WorkspaceLiveness, KindsInRareBurstsStopMissing) {
  for (const size_t kinds : {2, 12, 40, 120}) {
    for (const bool alike : {false, true}) {
      std::mt19937_64 random(kinds);
      std::vector<Kind> set;
      Kind first;
      if (alike) Extend(random, 9, 500, &first);
      for (size_t k = 0; k < kinds; ++k) {
        Kind kind = first;
        Extend(random, 12 - kind.size(), 500, &kind);
        DrawLives(random, &kind);
        set.push_back(kind);
      }
      Workspace workspace("w", Learning());
      size_t at = 0;
      // A kind comes for so many cycles on average, and then stays away for 500 to 3,400.
      const uint64_t burst = 20 + 1000 / kinds;
      const auto cycles = [&](int count) {
        for (; count > 0; --count) {
          if (random() % burst == 0) at = random() % kinds;
          Cycle(workspace, set[at]);
        }
      };
      cycles(60000);
      const WorkspaceStats before = workspace.stats();
      cycles(20000);
      EXPECT_LE(workspace.stats().misses - before.misses, 20u) << kinds << " alike " << alike;
      EXPECT_LE(workspace.stats().plans - before.plans, 20u) << kinds << " alike " << alike;
      // One that goes on alone has what it needs alone in the end.
      Workspace fresh("fresh", Learning());
      for (int i = 0; i < 10; ++i) Cycle(fresh, set[0]);
      for (int i = 0; i < 40000; ++i) Cycle(workspace, set[0]);
      EXPECT_LE(workspace.size(), fresh.size() * 11 / 10 + 64) << kinds << " alike " << alike;
    }
  }
}

// The same sizes in the same order, and other lives: nobody can tell which it is until something is
// released. What one of them is planned for while it comes alone is not enough for the next, so in
// the end it is planned for all.
TEST(WorkspaceLiveness, KindsOfTheSameSizesInBurstsStopMissing) {
  for (const size_t kinds : {2, 5, 12}) {
    for (const int burst : {100, 600, 5000}) {
      for (const bool in_turns : {true, false}) {
        std::mt19937_64 random(kinds);
        Kind sizes;
        Extend(random, 12, 500, &sizes);
        std::vector<Kind> set(kinds, sizes);
        for (Kind& kind : set) DrawLives(random, &kind);
        Workspace workspace("w", Learning());
        size_t number = 0;
        const auto bursts = [&](size_t count) {
          for (; count > 0; --count) {
            const Kind& kind = set[(in_turns ? number++ : random()) % kinds];
            for (int i = 0; i < burst; ++i) Cycle(workspace, kind);
          }
        };
        bursts(30 + 4 * kinds);
        const WorkspaceStats before = workspace.stats();
        bursts(40);
        const WorkspaceStats after = workspace.stats();
        EXPECT_LE(after.misses - before.misses, 4u)
            << kinds << " kinds, burst " << burst << " in turns " << in_turns;
        EXPECT_LE(after.plans - before.plans, 4u)
            << kinds << " kinds, burst " << burst << " in turns " << in_turns;
        if (burst > 100) continue;
        // One that goes on alone has what it needs alone in the end.
        Workspace fresh("fresh", Learning());
        for (int i = 0; i < 10; ++i) Cycle(fresh, set[0]);
        for (int i = 0; i < 20000; ++i) Cycle(workspace, set[0]);
        EXPECT_LE(workspace.size(), fresh.size() * 11 / 10 + 64)
            << kinds << " in turns " << in_turns;
      }
    }
  }
}

// Hundreds of kinds with one beginning, none of them for long: what one is planned for by itself
// was in the way of all others, and planning it took what would have been spent on ending their
// misses.
TEST(WorkspaceLiveness, ManyKindsOfOneBeginningInShortBurstsSettleSoon) {
  constexpr size_t kKinds = 300;
  for (const size_t common : {3, 30}) {
    for (const bool same_lives : {true, false}) {
      std::mt19937_64 random(1);
      Kind first;
      Extend(random, common, 500, &first);
      std::vector<Kind> set(kKinds, first);
      const auto draw = [&random](size_t begin, Kind* kind) {
        for (size_t i = begin; i < kind->size(); ++i) {
          const size_t most =
              random() % 3 == 0 ? kind->size() - i : std::min<size_t>(4, kind->size() - i);
          (*kind)[i].until = static_cast<uint32_t>(i + 1 + random() % most);
        }
      };
      for (Kind& kind : set) {
        Extend(random, 10, 500, &kind);
        draw(0, &kind);
        if (same_lives) std::copy_n(set[0].begin(), common, kind.begin());
      }
      Workspace workspace("w", Learning());
      uint64_t missed = 0;
      const auto bursts = [&](size_t count) {
        for (; count > 0; --count) {
          const Kind& kind = set[random() % kKinds];
          for (int i = 0; i < 10; ++i) {
            const uint64_t before = workspace.stats().misses;
            Cycle(workspace, kind);
            missed += workspace.stats().misses > before;
          }
        }
      };
      bursts(8 * kKinds);  // of each, on average
      missed = 0;
      bursts(20 * kKinds);
      EXPECT_LE(missed, 60u) << "0.1 % " << common << " common, same lives " << same_lives;
    }
  }
}

// Large requests that the plan does not have take the place that it keeps free, instead of lying outside beside it.
TEST(WorkspaceLiveness, LargeRequestsBesideThePlanMakeTheCycleLeaveIt) {
  for (const WorkspaceConfig& base : {WorkspaceConfig::Inference(), WorkspaceConfig::Training()}) {
    WorkspaceConfig config = base;
    config.plan_search_seconds = 0;
    Workspace workspace("w", config, Device{DeviceType::Named("simulated"), 0});
    const auto cycle = [&](int count, size_t bytes, size_t second = 1000) {
      WorkspaceScope scope(workspace);
      std::vector<BufferHandle> alive;
      alive.push_back(BufferHandle(AllocateHere(1000)));
      alive.push_back(BufferHandle(AllocateHere(second)));
      for (int i = 0; i < count; ++i) alive.push_back(BufferHandle(AllocateHere(bytes)));
    };
    for (int i = 0; i < 3; ++i) cycle(8, 4 * kMiB);
    const uint64_t before = workspace.stats().spills;
    cycle(6, 5 * kMiB);
    EXPECT_EQ(workspace.stats().spills, before);
    // What is small beside the pages may lie outside: the rest of the cycle follows its plan.
    for (int i = 0; i < 3; ++i) cycle(8, 4 * kMiB);
    const uint64_t bytes = workspace.stats().spilled_bytes;
    cycle(8, 4 * kMiB, 100000);
    EXPECT_LT(workspace.stats().spilled_bytes, bytes + kMiB);
  }
}

// What was noted of one very long cycle goes with Trim() and Destroy(), also where a handle is left.
TEST(WorkspaceKinds, TrimGivesBackTheBookkeepingOfALongCycle) {
  const auto noted = [] {
    return MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kWorkspace);
  };
  const int64_t before = noted();
  Workspace workspace("w", WorkspaceConfig::Inference());
  const auto small = [&] {
    WorkspaceScope scope(workspace);
    for (int i = 0; i < 10; ++i) BufferHandle(AllocateHere(64));
  };
  for (const bool destroys : {false, true}) {
    BufferHandle left;
    {
      WorkspaceScope scope(workspace);
      std::vector<BufferHandle> alive;
      for (int i = 0; i < 200000; ++i) alive.push_back(BufferHandle(AllocateHere(64)));
      left = alive[1000];
    }
    for (int i = 0; i < 3; ++i) small();
    EXPECT_GT(noted(), before + 20 * static_cast<int64_t>(kMiB));
    left.Reset();
    for (int i = 0; i < 300; ++i) small();  // the plan of the long one is forgotten
    if (destroys) {
      workspace.Destroy();
    } else {
      workspace.Trim();
    }
    EXPECT_LT(noted(), before + static_cast<int64_t>(kMiB));
    const uint64_t hits = workspace.stats().hits;
    for (int i = 0; i < 5; ++i) small();
    EXPECT_GE(workspace.stats().hits, hits + 40);
  }
}

// Plans that were saved are followed from the first cycle on, whichever kind comes first.
TEST(WorkspaceKinds, LoadedPlansServeEachKindAtOnce) {
  std::mt19937_64 random(7);
  struct Request {
    size_t bytes;
    uint32_t until;
  };
  std::vector<std::vector<Request>> kinds(20, std::vector<Request>(30));
  for (auto& kind : kinds) {
    for (uint32_t i = 0; i < kind.size(); ++i) {
      kind[i] = {i < 3 ? 4096 : 64 + 64 * (random() % 300),
                 static_cast<uint32_t>(i + 1 + random() % (kind.size() - i))};
    }
  }
  WorkspaceConfig config = WorkspaceConfig::Inference();
  config.plan_search_seconds = 0;
  const auto run = [&](Workspace& workspace, size_t which) {
    const auto& kind = kinds[which];
    WorkspaceScope scope(workspace);
    std::vector<BufferHandle> arrays;
    for (uint32_t i = 0; i < kind.size(); ++i) {
      for (uint32_t j = 0; j < i; ++j) {
        if (kind[j].until == i) arrays[j].Reset();
      }
      arrays.push_back(BufferHandle(AllocateHere(kind[i].bytes)));
    }
  };
  Workspace first("w", config);
  for (int i = 0; i < 4000; ++i) run(first, random() % kinds.size());
  const std::string path = testing::TempDir() + "kinds.plans";
  first.SavePlans(path);
  Workspace second("w", config);
  ASSERT_EQ(second.LoadPlans(path).plans, kinds.size());
  for (int i = 0; i < 200; ++i) run(second, random() % kinds.size());
  EXPECT_EQ(second.stats().misses, 0u);
  EXPECT_EQ(second.stats().spills, 0u);
}

// More kinds than are planned together are in one another's way: they missed for ever, each looked through all plans for
// another one, and was planned again in vain (2.5 ms for 20 requests of 10,000 kinds in random order). Where such cycles are
// small hardly any of them begins with a plan.
TEST(WorkspaceKinds, MoreKindsThanArePlannedTogetherAreGivenUp) {
  std::mt19937_64 random(7);
  Kind beginning;
  Extend(random, 6, 10000, &beginning);
  std::vector<Kind> kinds;
  for (int i = 0; i < 700; ++i) {
    kinds.push_back(beginning);
    Extend(random, 6, 10000, &kinds.back());
    DrawLives(random, &kinds.back());
  }
  Workspace workspace("crowd", Learning());
  const auto crowd = testing::HasSubstr(absl::StrCat(
      "where more kinds begin with ", kinds[0][0].bytes, " bytes than are planned together (512"));
  const auto run = [&](size_t of, int cycles) {
    for (int i = 0; i < cycles; ++i) Cycle(workspace, kinds[random() % of]);
  };
  run(400, 4000);
  EXPECT_THAT(workspace.PlanReport(), testing::Not(crowd));
  run(kinds.size(), 8000);
  EXPECT_THAT(workspace.PlanReport(), crowd);
  EXPECT_THAT(workspace.PlanReport(), testing::HasSubstr("no plans since cycle"));
  EXPECT_EQ(workspace.stats().plans_kept, 0u);
  // No plan, no miss, and the pages hold it all.
  const WorkspaceStats before = workspace.stats();
  run(kinds.size(), 2000);
  const WorkspaceStats after = workspace.stats();
  EXPECT_EQ(after.misses, before.misses);
  EXPECT_EQ(after.plans, before.plans);
  EXPECT_LE(after.spills - before.spills, 20u);
  // Few of them are planned again, whatever their order, in little more than the cycles that show that they are few.
  run(100, 3000);
  const WorkspaceStats again = workspace.stats();
  EXPECT_EQ(again.plans_kept, 100u);
  EXPECT_THAT(workspace.PlanReport(), testing::Not(crowd));
  run(100, 500);
  EXPECT_EQ(workspace.stats().misses, again.misses);
  // And given up again where that was wrong.
  run(kinds.size(), 8000);
  EXPECT_THAT(workspace.PlanReport(), testing::HasSubstr("given up 2 times"));
}

// Where each kind comes in its turn it begins with its own plan, so few are in others' way, however many they are.
TEST(WorkspaceKinds, AnyNumberOfKindsInTurnsKeepTheirPlans) {
  std::mt19937_64 random(8);
  Kind beginning;
  Extend(random, 4, 100, &beginning);
  std::vector<Kind> kinds;
  for (int i = 0; i < 900; ++i) {
    kinds.push_back(beginning);
    Extend(random, 4, 100, &kinds.back());
    DrawLives(random, &kinds.back());
  }
  Workspace workspace("turns", Learning());
  InTurns(workspace, kinds, 12);
  const WorkspaceStats before = workspace.stats();
  EXPECT_GT(before.plans_kept, kinds.size() * 9 / 10);
  InTurns(workspace, kinds, 2);
  EXPECT_LE(workspace.stats().misses - before.misses, kinds.size() / 20);
  EXPECT_THAT(workspace.PlanReport(), testing::Not(testing::HasSubstr("no plans since")));
}

}  // namespace
}  // namespace tidepool
