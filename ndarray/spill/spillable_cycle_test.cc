// Arrays that are used in the same order again and again, under a budget that has room for a part of them: how many are brought, beside
// caches that the test has itself, and whether anybody waits for them.
#include <algorithm>
#include <cstdint>
#include <list>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/spill/plan_counters.h"
#include "tidepool/memory/spill/spill_file.h"
#include "tidepool/memory/spill/spillables.h"
#include "tidepool/memory/spill/use_cycle.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/spill/spillable_array.h"
#include "tidepool/ndarray/spill/spillable_runs.h"

namespace tidepool {
namespace {

using testing::HasSubstr;

// ---- caches of the test's own ------------------------------------------------------------------------------

class LeastRecent {
 public:
  explicit LeastRecent(size_t room) : room_(room) {}
  // Whether it had to be brought.
  bool Use(int thing) {
    const auto found = std::find(here_.begin(), here_.end(), thing);
    const bool is_here = found != here_.end();
    if (is_here) here_.erase(found);
    if (here_.size() == room_) here_.pop_front();
    here_.push_back(thing);
    return !is_here;
  }
  const std::list<int>& here() const { return here_; }

 private:
  const size_t room_;
  std::list<int> here_;
};

// The fewest that have to be brought for all of `uses`: whatever is used last of those that are here, or never, goes.
int Fewest(std::set<int> here, size_t room, const std::vector<int>& uses) {
  int brought = 0;
  const auto next = [&](int thing, size_t from) {
    return std::find(uses.begin() + static_cast<std::ptrdiff_t>(from), uses.end(), thing) -
           uses.begin();
  };
  for (size_t i = 0; i < uses.size(); ++i) {
    if (here.count(uses[i]) > 0) continue;
    ++brought;
    while (here.size() >= room) {
      here.erase(*std::max_element(here.begin(), here.end(),
                                   [&](int a, int b) { return next(a, i) < next(b, i); }));
    }
    here.insert(uses[i]);
  }
  return brought;
}

std::vector<int> Times(const std::vector<int>& order, int times) {
  std::vector<int> uses;
  for (int i = 0; i < times; ++i) uses.insert(uses.end(), order.begin(), order.end());
  return uses;
}

struct Drawn {
  int arrays = 0;
  size_t room = 0;
  std::vector<int> order;
};

Drawn Draw(uint64_t seed) {
  std::mt19937_64 random(seed);
  Drawn drawn;
  drawn.arrays = 3 + static_cast<int>(random() % 8);
  drawn.room = 1 + random() % static_cast<uint64_t>(drawn.arrays);
  const bool sweeps = random() % 3 == 0;
  const int uses = 2 + static_cast<int>(random() % 30);
  for (int i = 0; i < uses; ++i) {
    drawn.order.push_back(sweeps
                              ? i % drawn.arrays
                              : static_cast<int>(random() % static_cast<uint64_t>(drawn.arrays)));
  }
  return drawn;
}

// ---- how many are brought -----------------------------------------------------------------------------------

// The two cycles that have no plan yet, as least recent use goes. Returns what the second one brings.
int64_t LearnOrder(const Drawn& drawn, SpillableRun& run, LeastRecent& model) {
  for (int i = 0; i < drawn.arrays; ++i) model.Use(i);
  int64_t brought = 0;
  for (int cycle = 0; cycle < 2; ++cycle) {
    brought = 0;
    for (const int i : drawn.order) brought += model.Use(i);
    EXPECT_EQ(run.Cycle(drawn.order), brought);
  }
  return brought;
}

// Two cycles go by least recent use, and all that come after bring the fewest that there can be.
TEST(SpillableCycle, APlanBringsAsFewAsCanBe) {
  constexpr int kCycles = 4;
  int64_t fewer = 0;
  for (uint64_t seed = 1; seed <= 80; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Drawn drawn = Draw(seed);
    SpillableRun run("fewest", drawn.arrays, drawn.room);
    run.spillables.set_ahead(false);
    LeastRecent model(drawn.room);
    const int64_t by_least_recent_use = LearnOrder(drawn, run, model);
    const int fewest =
        Fewest({model.here().begin(), model.here().end()}, drawn.room, Times(drawn.order, kCycles));
    int64_t brought = 0;
    for (int cycle = 0; cycle < kCycles; ++cycle) brought += run.Cycle(drawn.order);
    EXPECT_EQ(brought, fewest);
    EXPECT_LE(brought, kCycles * by_least_recent_use);
    fewer += kCycles * by_least_recent_use - brought;
    const SpillPlanCounters plan = run.spillables.stats().plan;
    EXPECT_EQ(plan.followed_cycles, kCycles);
    EXPECT_EQ(plan.followed_uses, kCycles * static_cast<int64_t>(drawn.order.size()));
    EXPECT_EQ(plan.mispredictions, 0);
    EXPECT_EQ(plan.ahead + plan.early_writes, 0);
    if (HasFailure()) return;
  }
  EXPECT_GT(fewer, 500);
}

// What is read ahead takes the room of one array: no more are brought than with one less. A plan that brings more in all than least recent use would
// makes no room ahead any more; what it then begins with may be as much as there is room for behind.
TEST(SpillableCycle, WhatIsReadAheadTakesTheRoomOfOne) {
  constexpr int kCycles = 4, kMore = 8;
  int64_t ahead = 0;
  for (uint64_t seed = 1; seed <= 80; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Drawn drawn = Draw(seed);
    SpillableRun run("ahead", drawn.arrays, drawn.room);
    LeastRecent model(drawn.room);
    const int64_t by_least_recent_use = LearnOrder(drawn, run, model);
    const int with_one_less =
        Fewest({model.here().begin(), model.here().end()}, std::max<size_t>(1, drawn.room - 1),
               Times(drawn.order, kCycles));
    int64_t brought = 0;
    for (int cycle = 0; cycle < kCycles; ++cycle) brought += run.Cycle(drawn.order);
    EXPECT_LE(brought, with_one_less);
    for (int cycle = 0; cycle < kMore; ++cycle) brought += run.Cycle(drawn.order);
    EXPECT_LE(brought, (kCycles + kMore) * by_least_recent_use + static_cast<int64_t>(drawn.room));
    const SpillPlanCounters plan = run.spillables.stats().plan;
    EXPECT_EQ(plan.followed_cycles, kCycles + kMore);
    EXPECT_EQ(plan.in_vain, 0);
    ahead += plan.in_time + plan.late;
    if (HasFailure()) return;
  }
  EXPECT_GT(ahead, 500);
}

// One large array goes instead of several small ones that are used later.
TEST(SpillableCycle, NoMoreGoesThanIsMissing) {
  SpillableRun run("sizes", 0, 6);
  run.spillables.set_ahead(false);
  for (const int64_t parts : {4, 4, 1, 1}) run.Add(parts * SpillableRun::kElements);
  for (int cycle = 0; cycle < 4; ++cycle) run.Cycle({0, 1, 2, 3});
  for (int cycle = 0; cycle < 3; ++cycle) EXPECT_EQ(run.Cycle({0, 1, 2, 3}), 2);
  EXPECT_TRUE(run.arrays[2].is_here() && run.arrays[3].is_here());
}

TEST(SpillableCycle, ArraysOfAllSizesBringNoMoreThanByLeastRecentUse) {
  constexpr int kCycles = 12;
  int64_t by_plan = 0, by_least_recent_use = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Drawn drawn = Draw(seed);
    std::mt19937_64 random(seed);
    const size_t room = 4 + drawn.room;
    SpillableRun run("all sizes", 0, room);
    for (int i = 0; i < drawn.arrays; ++i)
      run.Add(static_cast<int64_t>(1 + random() % 4) * SpillableRun::kElements);
    for (int cycle = 0; cycle < 2; ++cycle) run.Cycle(drawn.order);
    const int64_t before = kCycles * run.brought_bytes;
    int64_t brought = 0;
    for (int cycle = 0; cycle < kCycles; ++cycle) {
      run.Cycle(drawn.order);
      brought += run.brought_bytes;
    }
    EXPECT_LE(brought, before + static_cast<int64_t>(room) * SpillableRun::kBytes);
    by_plan += brought;
    by_least_recent_use += before;
    if (HasFailure()) return;
  }
  EXPECT_LT(by_plan, by_least_recent_use * 9 / 10);
}

// ---- who waits ----------------------------------------------------------------------------------------------

// Where the file is done before the next use, nobody waits: neither for what comes nor for what goes.
TEST(SpillableCycle, NobodyWaitsForAFileThatIsDoneInTime) {
  for (const bool writes : {false, true}) {
    SCOPED_TRACE(writes ? "written" : "read");
    SpillableRun run("in time", 8, 4);
    run.writes = writes;
    run.waits = true;
    const std::vector<int> order = {0, 1, 2, 3, 4, 5, 6, 7};
    for (int cycle = 0; cycle < 4; ++cycle) run.Cycle(order);
    const SpillablesStats before = run.spillables.stats();
    const SpillFileStats file = run.file.stats();
    for (int cycle = 0; cycle < 5; ++cycle) EXPECT_GT(run.Cycle(order), 0);
    const SpillablesStats after = run.spillables.stats();
    EXPECT_EQ(after.stalls, before.stalls);
    EXPECT_EQ(after.plan.late, before.plan.late);
    EXPECT_GT(after.plan.in_time, before.plan.in_time);
    EXPECT_EQ(run.file.stats().written.stalls, file.written.stalls);
    EXPECT_EQ(run.file.stats().read.stalls, file.read.stalls);
    EXPECT_EQ(after.plan.early_writes > before.plan.early_writes, writes);
    EXPECT_EQ(after.plan.early_in_vain, 0);
    EXPECT_THAT(after.ToString(),
                HasSubstr("spill plan: 7 of 9 cycles followed it (56 uses), 0 left it"));
  }
}

// What is read ahead never takes the room of what is used before it.
TEST(SpillableCycle, NothingGoesThatIsUsedBeforeWhatComes) {
  SpillableRun run("before", 6, 3);
  const std::vector<int> order = {0, 1, 2, 0, 1, 3, 0, 1, 4, 0, 1, 5};
  for (int cycle = 0; cycle < 4; ++cycle) run.Cycle(order);
  for (int cycle = 0; cycle < 3; ++cycle) {
    for (const int i : order) {
      EXPECT_TRUE(i >= 2 || run.arrays[static_cast<size_t>(i)].is_here()) << i;
      run.Use(i);
    }
    run.spillables.EndCycle();
  }
}

// ---- cycles that differ -------------------------------------------------------------------------------------

TEST(SpillableCycle, ADifferentCycleGoesByLeastRecentUseAndIsLearned) {
  SpillableRun run("differs", 6, 3);
  const std::vector<int> order = {0, 1, 2, 3, 4, 5}, other = {0, 1, 5, 5, 2, 2, 3, 4};
  for (int cycle = 0; cycle < 4; ++cycle) run.Cycle(order);
  EXPECT_EQ(run.spillables.stats().plan.followed_cycles, 2);
  run.Cycle(other);
  EXPECT_EQ(run.spillables.stats().plan.mispredictions, 1);
  EXPECT_EQ(run.spillables.stats().plan.followed_cycles, 2);
  for (int cycle = 0; cycle < 3; ++cycle) run.Cycle(other);
  EXPECT_EQ(run.spillables.stats().plan.followed_cycles, 4);
  EXPECT_EQ(run.spillables.stats().plan.mispredictions, 1);
  run.CheckAll();
}

// What each step makes, keeps for the next one, or frees.
TEST(SpillableCycle, ArraysThatAreMadeAndFreedInEachCycle) {
  SpillableRun run("made anew", 4, 3);
  int64_t brought = 0;
  for (int cycle = 0; cycle < 8; ++cycle) {
    const int64_t before = run.spillables.stats().returns;
    run.Use(0);
    run.Add();  // used once more, and freed
    run.Use(1);
    run.Use(4);
    run.Free(4);
    run.Use(2);
    run.Use(3);
    run.Renew(3);  // the next cycle has this one
    run.spillables.EndCycle();
    brought = run.spillables.stats().returns - before;
  }
  const SpillPlanCounters plan = run.spillables.stats().plan;
  EXPECT_EQ(plan.mispredictions, 0);
  EXPECT_GE(plan.followed_cycles, 4);
  EXPECT_GT(brought, 0);
  run.CheckAll();
}

TEST(SpillableCycle, ACycleOfTooManyUsesIsNotLearnedAndSaysSo) {
  SpillableRun run("too many", 2, 2);
  for (int cycle = 0; cycle < 3; ++cycle) {
    for (size_t i = 0; i <= internal::UseCycle::kMostUses; ++i) run.arrays[i % 2].Read();
    run.spillables.EndCycle();
  }
  const SpillablesStats stats = run.spillables.stats();
  EXPECT_EQ(stats.plan.followed_cycles, 0);
  EXPECT_EQ(stats.plan.unrecorded_cycles, 3);
  EXPECT_THAT(stats.ToString(), HasSubstr("3 cycles had more uses than are recorded"));
}

}  // namespace
}  // namespace tidepool
