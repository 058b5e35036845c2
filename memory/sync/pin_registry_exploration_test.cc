// Pins under every interleaving: bytes stay while they are used, and go once.
#include <gtest/gtest.h>

#include <cstdio>
#include <iterator>
#include <mutex>
#include <string>
#include <type_traits>

#include "tidepool/memory/sync/pin_registry.h"
#include "tidepool/memory/testing/explorer/explore.h"
#include "tidepool/memory/testing/explorer/mutations.h"
#include "tidepool/memory/testing/explorer/sync.h"

namespace tidepool {

// The light fence is modelled as more than it is, and as less: as a full fence, which it is to the
// heavy one alone; and both as none at all. Then bytes may be left to the last handle, but everything
// else must hold.
struct WithoutLightFences : explorer::Sync {};
template <>
struct AsymmetricFence<WithoutLightFences> {
  static void Light() {}
  static void Heavy() {}
};

namespace {

using explorer::Check;
using explorer::Execution;
using explorer::FailureKind;
using explorer::Result;
using explorer::Sync;

constexpr std::memory_order kRelaxed = std::memory_order_relaxed;

struct Item {
  static constexpr uint8_t kClosePending = 8;
  Sync::Atomic<uint8_t> care{0};
  Sync::Atomic<bool> dead{false};
  Sync::Atomic<int> handles{1};
  Sync::Plain<int> bytes{0};
  Sync::Plain<int> closes{0};
};

// Races with whoever uses the bytes, or gives them back as well.
void GiveBack(Item* item) {
  item->bytes.set(-1);
  item->closes.set(item->closes.get() + 1);
}

void UseBytes(const Item& item) {
  Check(item.bytes.get() == 0, "the bytes that are used are there");
}

using Registry = PinRegistry<Sync, Item, 3>;
using LooseRegistry = PinRegistry<WithoutLightFences, Item, 3>;

// Without light fences the bytes may be left to the last handle.
template <typename Pins>
void CheckClosed(const Item& item) {
  const bool left =
      std::is_same_v<Pins, LooseRegistry> && (item.care.load(kRelaxed) & Item::kClosePending) != 0;
  Check(item.closes.get() == (left ? 0 : 1), "the bytes are given back once");
}

// As PinScope.
template <typename Pins>
class Scope {
 public:
  Scope(Pins& pins, typename Pins::Record& record)
      : pins_(pins), record_(record), begin_(record.depth.load(kRelaxed)) {}
  ~Scope() { pins_.Unpin(record_, begin_, GiveBack); }
  // Whether it may be used.
  bool Pin(Item& item) {
    pins_.Pin(record_, &item);
    pins_.Publish();
    return !item.dead.load(kRelaxed);
  }

 private:
  Pins& pins_;
  typename Pins::Record& record_;
  int32_t begin_;
};

// As CloseClaimed, by a thread that has used the bytes before.
template <typename Pins>
void Close(Pins& pins, Item& item) {
  UseBytes(item);
  item.dead.store(true, kRelaxed);
  if (pins.AnyPinned() && pins.Postpone(&item)) return;
  GiveBack(&item);
}

template <typename Pins>
struct State {
  State() {
    for (auto& record : records) pins.Add(&record);
  }
  void Use(int record, Item& item) {
    Scope<Pins> scope(pins, records[record]);
    if (scope.Pin(item)) UseBytes(item);
  }
  void UseInNestedCalls(int record, Item& item) {
    Scope<Pins> outer(pins, records[record]);
    const bool alive = outer.Pin(item);
    {
      Scope<Pins> inner(pins, records[record]);
      if (inner.Pin(item)) UseBytes(item);
    }
    if (alive) UseBytes(item);
  }

  Pins pins;
  typename Pins::Record records[2];
  Item item, other;
};

template <typename Pins>
void UseMeetsClose(Execution& execution) {
  auto& state = execution.Make<State<Pins>>();
  execution.Thread([&] { state.Use(0, state.item); });
  execution.Thread([&] { Close(state.pins, state.item); });
  execution.AtEnd([&] { CheckClosed<Pins>(state.item); });
}

template <typename Pins>
void NestedUseMeetsClose(Execution& execution) {
  auto& state = execution.Make<State<Pins>>();
  execution.Thread([&] { state.UseInNestedCalls(0, state.item); });
  execution.Thread([&] { Close(state.pins, state.item); });
  execution.AtEnd([&] { CheckClosed<Pins>(state.item); });
}

// One slot serves one item after the other.
template <typename Pins>
void OneUseAfterAnotherMeetsClose(Execution& execution) {
  auto& state = execution.Make<State<Pins>>();
  execution.Thread([&] {
    state.Use(0, state.item);
    state.Use(0, state.other);
  });
  execution.Thread([&] { Close(state.pins, state.item); });
  execution.AtEnd([&] { CheckClosed<Pins>(state.item); });
}

template <typename Pins>
void TwoUsesMeetClose(Execution& execution) {
  auto& state = execution.Make<State<Pins>>();
  execution.Thread([&] { state.Use(0, state.item); });
  execution.Thread([&] { state.Use(1, state.item); });
  execution.Thread([&] { Close(state.pins, state.item); });
  execution.AtEnd([&] { CheckClosed<Pins>(state.item); });
}

// Two items in one scope, one of which may be closed while the scope ends.
template <typename Pins>
void UseOfTwoMeetsClose(Execution& execution) {
  auto& state = execution.Make<State<Pins>>();
  execution.Thread([&] {
    Scope<Pins> scope(state.pins, state.records[0]);
    const bool alive = scope.Pin(state.item);
    if (scope.Pin(state.other) && alive) UseBytes(state.other);
  });
  execution.Thread([&] {
    Close(state.pins, state.item);
    Close(state.pins, state.other);
  });
  execution.AtEnd([&] {
    CheckClosed<Pins>(state.item);
    CheckClosed<Pins>(state.other);
  });
}

// A thread comes with a record of its own while another finishes what was left to it.
template <typename Pins>
void RecordComesWhileClosing(Execution& execution) {
  struct Records {
    Pins pins;
    typename Pins::Record old, fresh;
    Item item;
  };
  auto& state = execution.Make<Records>();
  state.pins.Add(&state.old);
  execution.Thread([&] {
    Scope<Pins> scope(state.pins, state.old);
    if (scope.Pin(state.item)) UseBytes(state.item);
  });
  execution.Thread([&] { Close(state.pins, state.item); });
  execution.Thread([&] { state.pins.Add(&state.fresh); });
  execution.AtEnd([&] { CheckClosed<Pins>(state.item); });
}

// Both threads have a handle; the last one to drop it frees the record, and what is pending with
// it.
template <typename Pins>
void UseMeetsCloseAndTheLastHandle(Execution& execution) {
  auto& state = execution.Make<State<Pins>>();
  Item* item = Sync::New<Item>();
  item->handles.store(2, kRelaxed);
  const auto drop = [item] {
    if (item->handles.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    if (Pins::ClaimPending(item)) GiveBack(item);
    Check(item->closes.get() == 1, "the bytes are given back once");
    Sync::Delete(item);
  };
  execution.Thread([&state, item, drop] {
    state.Use(0, *item);
    drop();
  });
  execution.Thread([&state, item, drop] {
    Close(state.pins, *item);
    drop();
  });
}

// Records come into the registry, and change their thread, while items are closed.
template <typename Pins>
void RecordsComeAndGo(Execution& execution) {
  struct Records {
    Pins pins;
    typename Pins::Record fresh[2];
    Item item;
  };
  auto& state = execution.Make<Records>();
  for (int thread = 0; thread < 2; ++thread) {
    execution.Thread([&state, thread] {
      typename Pins::Record* record = state.pins.TakeFree();
      if (record == nullptr) state.pins.Add(record = &state.fresh[thread]);
      {
        Scope<Pins> scope(state.pins, *record);
        if (scope.Pin(state.item)) UseBytes(state.item);
      }
      state.pins.GiveBack(record);
      if (thread == 1) Close(state.pins, state.item);
    });
  }
  execution.AtEnd([&] { CheckClosed<Pins>(state.item); });
}

// Both threads have it pinned when it is closed, and are done at once.
template <typename Pins>
void TheLastTwoPins(Execution& execution) {
  auto& state = execution.Make<State<Pins>>();
  for (auto& record : state.records) state.pins.Pin(record, &state.item);
  Close(state.pins, state.item);
  for (auto& record : state.records) {
    execution.Thread([&] { state.pins.Unpin(record, 0, GiveBack); });
  }
  execution.AtEnd([&] { Check(state.item.closes.get() == 1, "the bytes are given back once"); });
}

struct Scenario {
  const char* name;
  void (*body)(Execution&);
  int preemptions = 3;
};
template <typename Pins>
constexpr Scenario kScenarios[] = {
    {"use", UseMeetsClose<Pins>},
    {"nested_use", NestedUseMeetsClose<Pins>},
    {"one_use_after_another", OneUseAfterAnotherMeetsClose<Pins>},
    {"use_of_two", UseOfTwoMeetsClose<Pins>},
    {"two_uses", TwoUsesMeetClose<Pins>, 2},
    {"last_two_pins", TheLastTwoPins<Pins>},
    {"record_comes", RecordComesWhileClosing<Pins>, 2},
    {"records_come_and_go", RecordsComeAndGo<Pins>},
    {"last_handle", UseMeetsCloseAndTheLastHandle<Pins>},
};

class PinRegistryExploration : public ::testing::TestWithParam<Scenario> {};

TEST_P(PinRegistryExploration, Holds) {
  const Result result = explorer::Explore(
      {.name = GetParam().name, .preemptions = GetParam().preemptions}, GetParam().body);
  EXPECT_TRUE(result.passed()) << result.report();
  EXPECT_TRUE(result.exhausted) << result.report();
  std::printf("%s\n", result.report().c_str());
}

std::string NameOf(const ::testing::TestParamInfo<Scenario>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(All, PinRegistryExploration, ::testing::ValuesIn(kScenarios<Registry>),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(WithoutLightFences, PinRegistryExploration,
                         ::testing::ValuesIn(kScenarios<LooseRegistry>), NameOf);

// ---- teeth ----

TEST(PinRegistryMutations, AreNoticed) {
  constexpr size_t kCount = std::size(kScenarios<Registry>);
  const explorer::MutationTable table =
      explorer::ExploreMutations({.name = "pins", .preemptions = 1}, [&](Execution& execution) {
        const size_t i = static_cast<size_t>(explorer::Choose(2 * kCount));
        (i < kCount ? kScenarios<Registry>[i] : kScenarios<LooseRegistry>[i - kCount])
            .body(execution);
      });
  EXPECT_TRUE(table.original.passed()) << table.report();
  EXPECT_EQ(table.undetected(), "") << table.report();
}

// ---- negative controls: what it was before ----

enum class Mistake { kOwnPinsDoNotCount, kUnpinHasNoFence };

template <Mistake mistake>
struct OldPins {
  struct Record {
    Sync::Atomic<int32_t> depth{0};
    Sync::Atomic<Item*> slots[3] = {};
  };
  Record* records[2] = {};
  Sync::Mutex mutex;

  void Add(Record* record) { (records[0] == nullptr ? records[0] : records[1]) = record; }
  static void Pin(Record& record, Item* item) {
    const int32_t depth = record.depth.load(kRelaxed);
    record.slots[depth].store(item, kRelaxed);
    record.depth.store(depth + 1, std::memory_order_release);
  }
  static void Publish() { Registry::Publish(); }
  template <typename GiveBack>
  void Unpin(Record& record, int32_t begin, const GiveBack& give_back) {
    const int32_t end = record.depth.load(kRelaxed);
    record.depth.store(begin, std::memory_order_release);
    if (mistake != Mistake::kUnpinHasNoFence) Sync::Fence(std::memory_order_seq_cst);
    for (int32_t i = begin; i < end; ++i) {
      Item* item = record.slots[i].load(kRelaxed);
      if (!item->dead.load(kRelaxed)) continue;
      {
        std::lock_guard<Sync::Mutex> lock(mutex);
        if (item->care.load(kRelaxed) == 0) continue;
        if (IsPinned(item, mistake == Mistake::kOwnPinsDoNotCount ? &record : nullptr)) continue;
        item->care.store(0, kRelaxed);
      }
      give_back(item);
    }
  }
  bool AnyPinned() {
    Sync::Fence(std::memory_order_seq_cst);
    return true;
  }
  bool Postpone(Item* item) {
    if (!IsPinned(item, nullptr)) return false;
    std::lock_guard<Sync::Mutex> lock(mutex);
    if (!IsPinned(item, nullptr)) return false;
    item->care.store(Item::kClosePending, kRelaxed);
    return true;
  }
  bool IsPinned(const Item* item, const Record* own) const {
    for (const Record* record : records) {
      if (record == own) continue;
      const int32_t depth = record->depth.load(std::memory_order_acquire);
      for (int32_t i = 0; i < depth; ++i) {
        if (record->slots[i].load(kRelaxed) == item) return true;
      }
    }
    return false;
  }
};

TEST(PinRegistryBefore, AnInnerScopeThatIgnoresTheOuterOneIsFound) {
  const Result result =
      explorer::Explore({.name = "own"}, NestedUseMeetsClose<OldPins<Mistake::kOwnPinsDoNotCount>>);
  EXPECT_EQ(result.failure, FailureKind::kCheck) << result.report();
}

TEST(PinRegistryBefore, UnpinningWithoutAFenceIsFound) {
  const Result result =
      explorer::Explore({.name = "fence"}, UseMeetsClose<OldPins<Mistake::kUnpinHasNoFence>>);
  EXPECT_EQ(result.failure, FailureKind::kCheck) << result.report();
}

}  // namespace
}  // namespace tidepool
