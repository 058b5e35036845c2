// Holds under every interleaving, with the pins that they go with: bytes stay while they are held, and go
// once.
#include <gtest/gtest.h>

#include <cstdio>
#include <iterator>

#include "tidepool/memory/sync/hold_registry.h"
#include "tidepool/memory/sync/pin_registry.h"
#include "tidepool/memory/testing/explorer/explore.h"
#include "tidepool/memory/testing/explorer/mutations.h"
#include "tidepool/memory/testing/explorer/sync.h"

namespace tidepool {
namespace {

using explorer::Check;
using explorer::Execution;
using explorer::Sync;

struct Item {
  static constexpr uint8_t kClosePending = 8, kHeld = 64;
  Sync::Atomic<uint8_t> care{0};
  Sync::Atomic<uint32_t> version{0};
  Sync::Atomic<bool> dead{false};
  Sync::Plain<int> bytes{0};
};

// Holds, pins and items, with CloseClaimed (memory/buffer.cc), FinishPendingClose (memory/pins.cc) and
// the HeldBytes of memory/held_bytes.cc around them.
template <typename Policy = Sync>
struct State {
  using Pins = PinRegistry<Sync, Item, 2>;

  State() {
    for (auto& record : records) pins.Add(&record);
  }
  // A hold may end on another thread than it began on.
  bool Begin() {
    holds.Begin(&item);
    return !item.dead.load(std::memory_order_relaxed);
  }
  void End() {
    if (holds.End(&item)) Finish();
  }
  void Hold() {
    if (Begin()) UseBytes();
    End();
  }
  void Pin() {
    pins.Pin(records[0], &item);
    pins.Publish();
    if (!item.dead.load(std::memory_order_relaxed)) UseBytes();
    pins.Unpin(records[0], 0, [this](Item*) { Finish(); });
  }
  void Close() {
    UseBytes();
    item.dead.store(true, std::memory_order_relaxed);
    if (pins.AnyPinned() && pins.Postpone(&item)) return;
    Finish();
  }

  void UseBytes() { Check(item.bytes.get() == 0, "the bytes that are used are there"); }
  // Races with whoever uses the bytes.
  void Finish() {
    if (holds.MayBeHeld(&item) && holds.LeaveToHolds(&item)) return;
    Check(item.bytes.get() == 0, "the bytes are given back once");
    item.bytes.set(1);
  }
  void CheckClosed() {
    Check(item.bytes.get() == 1, "the bytes are given back");
    Check(!holds.MayBeHeld(&item), "nobody holds it");
  }

  Item item;
  Pins pins;
  typename Pins::Record records[1];
  HoldRegistry<Policy, Item> holds;
};

// ---- scenarios ----

template <typename Policy = Sync>
void HoldMeetsClose(Execution& execution) {
  auto& state = execution.Make<State<Policy>>();
  execution.Thread([&] { state.Hold(); });
  execution.Thread([&] { state.Close(); });
  execution.AtEnd([&] { state.CheckClosed(); });
}

void HoldsOneAfterAnother(Execution& execution) {
  auto& state = execution.Make<State<>>();
  execution.Thread([&] {
    state.Hold();
    state.Hold();
  });
  execution.Thread([&] { state.Close(); });
  execution.AtEnd([&] { state.CheckClosed(); });
}

void TwoHoldsEnd(Execution& execution) {
  auto& state = execution.Make<State<>>();
  execution.Thread([&] { state.Hold(); });
  execution.Thread([&] { state.Hold(); });
  execution.Thread([&] { state.Close(); });
  execution.AtEnd([&] { state.CheckClosed(); });
}

// Begun by one thread, ended by another, as tensors are released anywhere.
void AHoldIsPassedOn(Execution& execution) {
  auto& state = execution.Make<State<>>();
  Check(state.Begin(), "it is alive");
  execution.Thread([&] {
    state.UseBytes();
    state.End();
  });
  execution.Thread([&] { state.Close(); });
  execution.AtEnd([&] { state.CheckClosed(); });
}

void HoldPinAndClose(Execution& execution) {
  auto& state = execution.Make<State<>>();
  execution.Thread([&] { state.Hold(); });
  execution.Thread([&] { state.Pin(); });
  execution.Thread([&] { state.Close(); });
  execution.AtEnd([&] { state.CheckClosed(); });
}

struct Scenario {
  const char* name;
  void (*body)(Execution&);
  int preemptions;
};
constexpr Scenario kScenarios[] = {
    {"hold_close", HoldMeetsClose<>, 3},    {"hold_hold_close", HoldsOneAfterAnother, 3},
    {"passed_close", AHoldIsPassedOn, 3},   {"two_holds_close", TwoHoldsEnd, 2},
    {"hold_pin_close", HoldPinAndClose, 2},
};

class HoldRegistryExploration : public ::testing::TestWithParam<Scenario> {};

TEST_P(HoldRegistryExploration, Holds) {
  const explorer::Result result =
      Explore({.name = GetParam().name, .preemptions = GetParam().preemptions}, GetParam().body);
  EXPECT_TRUE(result.passed()) << result.report();
  EXPECT_TRUE(result.exhausted && !result.yields_left_out) << result.report();
  std::printf("%s\n", result.report().c_str());
}

INSTANTIATE_TEST_SUITE_P(All, HoldRegistryExploration, ::testing::ValuesIn(kScenarios),
                         [](const auto& info) { return info.param.name; });

TEST(HoldRegistryMutations, AreNoticed) {
  const explorer::MutationTable table =
      explorer::ExploreMutations({.name = "holds", .preemptions = 2}, [](Execution& execution) {
        kScenarios[explorer::Choose(std::size(kScenarios))].body(execution);
      });
  std::printf("%s\n", table.report().c_str());
  EXPECT_TRUE(table.original.passed()) << table.report();
  // What pins need, pin_registry_exploration_test.cc shows.
  for (const explorer::MutationTable::Row& row : table.rows) {
    EXPECT_TRUE(row.detected() || !row.where.starts_with("hold_registry.h")) << row.text();
  }
}

// The lock, which the table does not leave out.
struct WithoutLocks : explorer::Sync {
  struct Mutex {
    void lock() {}
    void unlock() {}
  };
};
TEST(HoldRegistryMutations, TheLockIsNeeded) {
  const explorer::Result result = explorer::Explore({}, HoldMeetsClose<WithoutLocks>);
  EXPECT_EQ(result.failure, explorer::FailureKind::kDataRace) << result.report();
}

}  // namespace
}  // namespace tidepool
