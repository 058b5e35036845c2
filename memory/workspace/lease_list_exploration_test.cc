// The items of a pool under every interleaving: each is leased by one at a time, none is lost or ended twice,
// and what those that are gone have counted is counted once.
#include "tidepool/memory/workspace/lease_list.h"

#include <cstdio>
#include <memory>
#include <new>

#include "gtest/gtest.h"
#include "tidepool/memory/testing/explorer/explore.h"
#include "tidepool/memory/testing/explorer/sync.h"

namespace tidepool {
namespace {

using explorer::Check;
using explorer::Execution;
using explorer::FailureKind;
using explorer::Result;
using explorer::Sync;

struct Item {
  LeaseLinks<Sync, Item> links;
  Sync::Atomic<int> cycles{0};  // as a workspace's counters are
  Sync::Plain<bool> open{false};
  int* ended = nullptr;  // all items'; nothing is decided by it
};

struct Traits {
  struct End {
    void operator()(Item* item) const {
      Check(!item->open.get(), "nobody has it when it ends");
      ++*item->ended;
      Sync::Delete(item);
    }
  };
  using Owner = std::unique_ptr<Item, End>;
  struct Numbers {
    int cycles = 0;
  };
  static LeaseLinks<Sync, Item>& Links(Item& item) { return item.links; }
  static void CountGone(const Item& item, Numbers* sum) { Count(item, sum); }
  static void Count(const Item& item, Numbers* sum) {
    sum->cycles += item.cycles.load(std::memory_order_relaxed);
  }
};

// As WorkspacePool has it.
template <typename Policy = Sync>
struct Pool {
  using List = LeaseList<Policy, Item, Traits>;

  // One cycle in some item. `has_memory`: for a new one.
  void Serve(bool usable = true, bool has_memory = true) {
    typename List::Owner item = list.Lease([&] {
      if (!has_memory) throw std::bad_alloc();
      typename List::Owner made(Sync::New<Item>());
      made->ended = &ended;
      ++this->made;
      return made;
    });
    Check(!item->open.get(), "one has it at a time");
    item->open.set(true);
    item->cycles.store(item->cycles.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    item->open.set(false);
    list.Return(std::move(item), usable);
  }
  // As at the 16th cycle of one that stays leased.
  void TrimLongIdle() {
    list.CountUses(List::kLooks);
    typename List::Owner item = list.TakeLongIdle(List::kLooks, [](const Item&) { return true; });
    if (item == nullptr) return;
    Check(!item->open.get(), "nobody has it while it gives back");
    item->open.set(true);
    item->open.set(false);
    list.PutBack(std::move(item));
  }
  // True when there was memory for it, or an idle item.
  bool ServeWithoutMemory() {
    try {
      Serve(/*usable=*/true, /*has_memory=*/false);
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }
  void CheckEnd(int cycles, size_t most_items) {
    const auto totals = list.totals();
    Check(totals.numbers.cycles == cycles, "each cycle is counted once");
    Check(totals.leased == 0, "all are back");
    Check(made - ended == static_cast<int>(totals.items), "each item is in the list or has ended");
    Check(totals.items <= most_items, "no more are kept than were leased at once");
  }

  List list;
  int made = 0;
  int ended = 0;
};

template <typename Policy = Sync>
void TwoServeWhileAnotherCloses(Execution& execution) {
  auto& pool = execution.Make<Pool<Policy>>();
  execution.Thread([&pool] {
    pool.Serve();
    pool.Serve();
  });
  execution.Thread([&pool] { pool.Serve(); });
  execution.Thread([&pool] {
    pool.list.Close();
    Check(pool.list.totals().items <= 2, "only what is leased is left");
  });
  execution.AtEnd([&pool] { pool.CheckEnd(3, 0); });
}

template <typename Policy = Sync>
void TwoServeWhileAnotherTrims(Execution& execution) {
  auto& pool = execution.Make<Pool<Policy>>();
  pool.Serve();  // one is idle
  execution.Thread([&pool] {
    pool.Serve();
    pool.Serve();
  });
  execution.Thread([&pool] { pool.Serve(); });
  execution.Thread([&pool] { pool.list.EndIdle(); });
  execution.AtEnd([&pool] {
    pool.CheckEnd(4, 2);
    pool.list.EndIdle();
    pool.CheckEnd(4, 0);
  });
}

// Who serves closes, and the other one goes on for a while.
void OneOfThemClosesAndOneTrims(Execution& execution) {
  auto& pool = execution.Make<Pool<>>();
  execution.Thread([&pool] {
    pool.Serve();
    pool.list.Close();
    pool.Serve();
  });
  execution.Thread([&pool] {
    pool.Serve();
    pool.list.EndIdle();
  });
  execution.AtEnd([&pool] { pool.CheckEnd(3, 0); });
}

// Who keeps its lease takes what is long idle, while others lease it or end it.
void OneTakesWhatIsLongIdle(Execution& execution) {
  auto& pool = execution.Make<Pool<>>();
  pool.Serve();  // one is idle
  execution.Thread([&pool] { pool.TrimLongIdle(); });
  execution.Thread([&pool] {
    pool.Serve();
    pool.TrimLongIdle();
  });
  execution.Thread([&pool] { pool.list.Close(); });
  execution.AtEnd([&pool] { pool.CheckEnd(2, 0); });
}

// Who goes through all of them finds each that stays once, and none that is gone.
void OneVisitsWhileOthersComeAndGo(Execution& execution) {
  auto& pool = execution.Make<Pool<>>();
  pool.Serve();  // one is idle
  execution.Thread([&pool] {
    const uint64_t visit = pool.list.BeginVisit();
    int found = 0;
    while (pool.list.Visit(visit, 1, [&](Item& item) {
      Check(item.cycles.load(std::memory_order_relaxed) <= 3, "it is there");
      ++found;
      return true;
    })) {
    }
    Check(found <= 3, "none is found twice");
  });
  execution.Thread([&pool] { pool.Serve(/*usable=*/false); });
  execution.Thread([&pool] { pool.Serve(); });
  execution.AtEnd([&pool] {
    pool.CheckEnd(3, 2);
    const size_t items = pool.list.totals().items;
    size_t found = 0;
    const uint64_t visit = pool.list.BeginVisit();
    Check(!pool.list.Visit(visit, 9, [&](Item&) { return ++found > 0; }), "there are no others");
    Check(found == items, "all are found");
  });
}

// What cannot be made throws, at either of two times; idle items are leased all the same.
void MemoryRunsOut(Execution& execution) {
  auto& pool = execution.Make<Pool<>>();
  auto& served = execution.Make<Sync::Plain<int>>(0);
  execution.Thread([&pool, &served] {
    for (int i = 0; i < 2; ++i) {
      if (explorer::Choose(2) == 0) {
        pool.Serve();
        served.set(served.get() + 1);
      } else {
        served.set(served.get() + pool.ServeWithoutMemory());
      }
    }
  });
  execution.Thread([&pool] { pool.Serve(); });
  execution.Thread([&pool] { pool.list.EndIdle(); });
  execution.AtEnd([&pool, &served] {
    pool.CheckEnd(served.get() + 1, 2);
    pool.Serve();
    pool.CheckEnd(served.get() + 2, 2);
  });
}

// What goes back open is gone at once. Whoever reads meanwhile sees counts that never fall.
void SomeAreNotUsableAndOneWatches(Execution& execution) {
  auto& pool = execution.Make<Pool<>>();
  execution.Thread([&pool] {
    pool.Serve(/*usable=*/false);
    pool.Serve();
  });
  execution.Thread([&pool] { pool.Serve(); });
  execution.Thread([&pool] {
    const auto before = pool.list.totals();
    Check(before.leased <= before.items && before.items <= 2, "none is there twice");
    const auto after = pool.list.totals();
    Check(after.numbers.cycles >= before.numbers.cycles, "counters never fall");
  });
  execution.AtEnd([&pool] { pool.CheckEnd(3, 2); });
}

TEST(LeaseListExplored, EachIsLeasedByOneAndEndsOnce) {
  struct {
    const char* name;
    void (*body)(Execution&);
    int preemptions;
  } const scenarios[] = {
      {"two serve, another closes", TwoServeWhileAnotherCloses<>, 3},
      {"two serve, another trims", TwoServeWhileAnotherTrims<>, 4},
      {"one closes, one trims", OneOfThemClosesAndOneTrims, 5},
      {"one takes what is long idle", OneTakesWhatIsLongIdle, 4},
      {"one visits", OneVisitsWhileOthersComeAndGo, 4},
      {"memory runs out", MemoryRunsOut, 3},
      {"some are not usable", SomeAreNotUsableAndOneWatches, 3},
  };
  for (const auto& scenario : scenarios) {
    const Result result =
        Explore({.name = scenario.name, .preemptions = scenario.preemptions}, scenario.body);
    EXPECT_TRUE(result.passed() && result.exhausted) << result.report();
    std::printf("%s\n", result.report().c_str());
  }
}

// There is no memory order to weaken: all is under the lock.
struct WithoutLocks : Sync {
  struct Mutex {
    void lock() {}
    void unlock() {}
  };
};
TEST(LeaseListExplored, TheLockIsNeeded) {
  for (auto body :
       {TwoServeWhileAnotherCloses<WithoutLocks>, TwoServeWhileAnotherTrims<WithoutLocks>}) {
    const Result result = explorer::Explore({}, body);
    EXPECT_EQ(result.failure, FailureKind::kDataRace) << result.report();
  }
}

}  // namespace
}  // namespace tidepool
