// What may be written away, under every interleaving: what is pinned stays, nothing is lost on the way, one brings it.
#include "tidepool/memory/spill/spill_state.h"

#include <cstdio>

#include "gtest/gtest.h"
#include "tidepool/memory/testing/explorer/explore.h"
#include "tidepool/memory/testing/explorer/mutations.h"
#include "tidepool/memory/testing/explorer/sync.h"

namespace tidepool {
namespace {

using explorer::Check;
using explorer::Execution;
using explorer::MutationTable;
using explorer::Result;
using explorer::Sync;

using State = SpillState<Sync>;
using Found = State::Found;

constexpr int kGone = -1;

// As an array that waits in a file has it.
struct Thing {
  State state;
  Sync::Plain<int> memory{7};
  Sync::Plain<int> file{kGone};
  Sync::Plain<bool> written{false};  // beside everybody, until somebody ends it

  // False: it could not be brought, and is away still.
  bool Pin(bool fails = false) {
    Found found = Found::kHere;
    Check(state.Pin(&found), "who may wait gets it");
    if (found == Found::kHere) return true;
    if (found == Found::kGoing) {
      EndWrite();
      state.Brought();
      return true;
    }
    if (fails) {
      memory.set(kGone);
      state.StaysAway();
      return false;
    }
    if (found == Found::kAway) memory.set(file.get());
    state.Brought();
    return true;
  }
  void Read(int least) {
    if (!Pin()) return;
    Check(memory.get() >= least, "what is pinned is there, with what was written before");
    state.Unpin();
  }
  void Increment() {
    if (!Pin()) return;
    const int before = memory.get();
    Check(before >= 7, "what is pinned is there");
    memory.set(before + 1);
    state.Unpin();
  }
  void Spill(bool fails = false) {
    Found found = Found::kHere;
    if (!state.BeginSpill(&found)) return;
    if (found == Found::kGoing) EndWrite();
    if (found == Found::kHere) {
      if (fails) return state.StaysHere();
      file.set(memory.get());
    }
    memory.set(kGone);
    state.Spilled();
  }
  // The device reads the memory until somebody ends that, so nobody may write there before.
  void WriteEarly() {
    Found found = Found::kHere;
    if (!state.BeginSpill(&found)) return;
    if (found == Found::kComing) return state.Comes();
    if (found == Found::kHere) written.set(true);
    state.Goes();
  }
  void EndWrite() {
    Check(written.get(), "one ends it");
    written.set(false);
    file.set(memory.get());
  }
  void Prefetch(bool fails = false) {
    if (!state.BeginComing()) return;
    if (fails) return state.StaysAway();
    memory.set(file.get());
    state.Comes();
  }
  void CheckEnd(int value) {
    Check(state.pins() == 0, "nobody has it pinned");
    if (!Pin()) return;
    Check(memory.get() == value, "nothing was lost");
    state.Unpin();
    Spill();
    Check(!state.has_memory() && !state.is_here() && file.get() == value, "and it may go");
  }
};

void OneWritesWhileTwoSpill(Execution& execution) {
  auto& thing = execution.Make<Thing>();
  execution.Thread([&thing] {
    thing.Increment();
    thing.Increment();
  });
  execution.Thread([&thing] {
    thing.Spill();
    thing.Spill();
  });
  execution.Thread([&thing] { thing.Spill(); });
  execution.AtEnd([&thing] { thing.CheckEnd(9); });
}

void TwoReadWhatIsAway(Execution& execution) {
  auto& thing = execution.Make<Thing>();
  thing.Spill();
  execution.Thread([&thing] { thing.Read(7); });
  execution.Thread([&thing] { thing.Read(7); });
  execution.Thread([&thing] { thing.Spill(); });
  execution.AtEnd([&thing] { thing.CheckEnd(7); });
}

void OneIsAheadOneUsesOneSpills(Execution& execution) {
  auto& thing = execution.Make<Thing>();
  thing.Spill();
  execution.Thread([&thing] {
    thing.Prefetch();
    thing.Prefetch();
  });
  execution.Thread([&thing] {
    thing.Increment();
    thing.Read(8);
  });
  execution.Thread([&thing] { thing.Spill(); });
  execution.AtEnd([&thing] { thing.CheckEnd(8); });
}

// Whatever fails, the next one does it.
void SomeFail(Execution& execution) {
  auto& thing = execution.Make<Thing>();
  thing.Spill();
  execution.Thread([&thing] {
    if (thing.Pin(explorer::Choose(2) == 1)) thing.state.Unpin();
  });
  execution.Thread([&thing] { thing.Read(7); });
  execution.Thread([&thing] {
    thing.Spill(explorer::Choose(2) == 1);
    thing.Prefetch(explorer::Choose(2) == 1);
  });
  execution.AtEnd([&thing] { thing.CheckEnd(7); });
}

void OneIsWrittenEarly(Execution& execution) {
  auto& thing = execution.Make<Thing>();
  execution.Thread([&thing] {
    thing.WriteEarly();
    thing.WriteEarly();
  });
  execution.Thread([&thing] {
    thing.Increment();
    thing.Increment();
  });
  execution.Thread([&thing] { thing.Spill(); });
  execution.AtEnd([&thing] { thing.CheckEnd(9); });
}

// Who may not wait gets it or nothing.
void OneMayNotWait(Execution& execution) {
  auto& thing = execution.Make<Thing>();
  execution.Thread([&thing] {
    Found found = Found::kHere;
    if (!thing.state.Pin(&found, /*may_wait=*/false)) return;
    if (found != Found::kHere) {
      if (found == Found::kAway) thing.memory.set(thing.file.get());
      if (found == Found::kGoing) thing.EndWrite();
      thing.state.Brought();
    }
    Check(thing.memory.get() == 7, "it is there");
    thing.state.Unpin();
  });
  execution.Thread([&thing] {
    thing.Spill();
    thing.Prefetch();
  });
  execution.AtEnd([&thing] { thing.CheckEnd(7); });
}

struct Scenario {
  const char* name;
  void (*body)(Execution&);
  int preemptions, spurious_failures;
};
constexpr Scenario kScenarios[] = {
    {"one writes, two spill", OneWritesWhileTwoSpill, 2, 1},
    {"two read what is away", TwoReadWhatIsAway, 3, 1},
    {"one ahead, one uses, one spills", OneIsAheadOneUsesOneSpills, 3, 0},
    {"some fail", SomeFail, 2, 0},
    {"one is written early", OneIsWrittenEarly, 2, 0},
    {"one may not wait", OneMayNotWait, 4, 1},
};

TEST(SpillStateExplored, WhatIsPinnedStaysAndNothingIsLost) {
  for (const Scenario& scenario : kScenarios) {
    const Result result = Explore({.name = scenario.name,
                                   .preemptions = scenario.preemptions,
                                   .spurious_failures = scenario.spurious_failures},
                                  scenario.body);
    EXPECT_TRUE(result.passed() && result.exhausted) << result.report();
    std::printf("%s\n", result.report().c_str());
  }
}

// Each order and each notification is needed: what none of these notices has none to weaken.
TEST(SpillStateExplored, EachOrderIsNeeded) {
  const auto all = [](Execution& execution) {
    constexpr int kWhich[] = {0, 1, 2, 4};
    kScenarios[kWhich[explorer::Choose(4)]].body(execution);
  };
  const MutationTable table = explorer::ExploreMutations(
      {.name = "spill state", .preemptions = 2, .spurious_failures = 0}, all);
  EXPECT_TRUE(table.original.passed()) << table.original.report();
  EXPECT_EQ(table.undetected(), "") << table.report();
  std::printf("%s\n", table.report().c_str());
}

}  // namespace
}  // namespace tidepool
