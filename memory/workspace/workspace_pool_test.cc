// Many threads, mixed shapes: what is learned once, what is held.
#include "tidepool/memory/workspace/workspace_pool.h"

#include <atomic>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/workspace/pool_service.h"

namespace tidepool {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

TEST(WorkspacePool, WhatOneThreadHasTaughtAllKnow) {
  WorkspacePool pool("p", Quiet());
  std::thread([&] {
    PooledScope scope(pool);
    Serve(4);
  }).join();
  EXPECT_EQ(pool.stats().plans, 1u);
  const WorkspaceLease held = pool.Lease();  // so that it is another workspace
  std::thread([&] {
    PooledScope scope(pool);
    Serve(4);
  }).join();
  const WorkspacePoolStats stats = pool.stats();
  EXPECT_EQ(stats.workspaces, 2u);
  EXPECT_EQ(stats.plans, 1u);
  EXPECT_EQ(stats.misses, 0u);
  EXPECT_EQ(stats.spills, 13u) << "those of the first cycle";
  EXPECT_EQ(stats.hits, 13u);
}

TEST(WorkspacePool, EachKindIsLearnedOnceWhoeverServesIt) {
  constexpr int kThreads = 8;
  constexpr size_t kKinds = 32;
  WorkspacePool pool("p", Quiet());
  // Kinds are met for the first time at any moment by any number of threads.
  RunThreads(kThreads, [&](int thread) {
    std::mt19937 random(thread);
    for (int i = 0; i < 400; ++i) {
      PooledScope scope(pool);
      Serve(1 + random() % kKinds);
    }
  });
  for (size_t kind = 0; kind < kKinds; ++kind) {
    PooledScope scope(pool);
    Serve(1 + kind);
  }
  const WorkspacePoolStats learned = pool.stats();
  EXPECT_EQ(learned.plans, kKinds);
  EXPECT_EQ(learned.plans_kept, kKinds);
  EXPECT_EQ(learned.cycles, 400u * kThreads + kKinds);
  EXPECT_LE(learned.workspaces, size_t{kThreads});
  EXPECT_EQ(learned.leased, 0u);
  RunThreads(kThreads, [&](int thread) {
    std::mt19937 random(100 + thread);
    for (int i = 0; i < 200; ++i) {
      PooledScope scope(pool);
      Serve(1 + random() % kKinds);
    }
  });
  const WorkspacePoolStats stats = pool.stats();
  EXPECT_EQ(stats.plans, kKinds);
  EXPECT_EQ(stats.misses, learned.misses);
  EXPECT_EQ(stats.spills, learned.spills);
  EXPECT_EQ(stats.open_bytes, 0u);
}

// Each workspace has served the largest kind, and one of them is at it at a time.
TEST(WorkspacePool, HoldsWhatWasOpenAtOnce) {
  constexpr size_t kLarge = 512;
  WorkspacePool pool("p", Quiet());
  for (int round = 0; round < 3; ++round) {
    std::vector<WorkspaceLease> leases;
    for (int i = 0; i < 16; ++i) {
      leases.push_back(pool.Lease());
      WorkspaceScope scope(*leases.back());
      Serve(kLarge);
    }
  }
  pool.Trim();  // the blocks of the first cycle
  {
    PooledScope scope(pool);
    Serve(kLarge);
    const WorkspacePoolStats stats = pool.stats();
    EXPECT_GT(stats.open_bytes, kLarge * 4096 * 3);
    EXPECT_EQ(stats.most_open_bytes, stats.open_bytes);
    EXPECT_LE(stats.held_bytes, stats.most_open_bytes + (size_t{4} << 20));
    EXPECT_EQ(scope.workspace().size(), stats.open_bytes);
  }
  EXPECT_EQ(pool.stats().open_bytes, 0u);
}

// Random sizes, open at the same time, ended in any order: held is what was open at once, and little more.
TEST(WorkspacePool, RangesOfManySizesFitTogether) {
  constexpr size_t kKinds = 32;
  WorkspacePool pool("p", Quiet());
  for (size_t kind = 1; kind <= kKinds; ++kind) {
    PooledScope scope(pool);
    Serve(kind * 16);
  }
  pool.Trim();
  const uint64_t spills = pool.stats().spills;
  const int64_t system = MemoryTracker::Global().system_allocations();
  std::mt19937 random(1);
  struct Open {
    WorkspaceLease lease;
    std::optional<WorkspaceScope> scope;
    BufferHandle first;
  };
  std::vector<std::unique_ptr<Open>> open;
  int64_t after_half = system;
  for (int step = 0; step < 4000; ++step) {
    if (step == 2000) after_half = MemoryTracker::Global().system_allocations();
    if (open.size() == 64) {
      // Scopes end in the reverse order of their beginning; leases in any.
      const size_t keep = random() % 64;
      while (open.size() > keep) open.pop_back();
    }
    auto one = std::make_unique<Open>();
    one->lease = pool.Lease();
    one->scope.emplace(*one->lease);
    one->first = New((1 + random() % kKinds) * 16 * 4096 * 2);  // what tells its kind
    open.push_back(std::move(one));
  }
  while (!open.empty()) open.pop_back();
  const WorkspacePoolStats stats = pool.stats();
  EXPECT_EQ(stats.spills, spills);
  EXPECT_LE(stats.held_bytes, stats.most_open_bytes + stats.most_open_bytes / 10 + (4 << 20));
  EXPECT_LE(MemoryTracker::Global().system_allocations() - after_half, 8) << "it settles";
}

// Held is what cycles need at once, and not the blocks besides that they were learned from.
TEST(WorkspacePool, WhatCyclesWereLearnedFromGoesBack) {
  WorkspacePool pool("p", Quiet());
  const auto serve = [&](size_t first) {
    PooledScope scope(pool);
    BufferHandle a = New(first), b = New(first / 2);
    a = {};
    BufferHandle c = New(first);
  };
  for (int i = 0; i < 2; ++i) serve(32 * kMiB);
  EXPECT_LE(pool.stats().held_bytes, 52 * kMiB) << "not beside the blocks";
  // Another kind has room in what is held.
  for (int i = 0; i < 2; ++i) serve(16 * kMiB);
  for (int i = 0; i < 40; ++i) serve(16 * kMiB);
  EXPECT_LE(pool.stats().held_bytes, 52 * kMiB);
  EXPECT_EQ(pool.stats().plans, 2u);
}

// Where no cycle has a range, the blocks of one that was larger than those after it.
TEST(WorkspacePool, BlocksGoBackWhereNothingIsLearned) {
  WorkspaceConfig config = Quiet();
  config.debug_mode = DebugMode::kSpillEverything;
  WorkspacePool pool("p", config);
  const auto serve = [&](size_t bytes) {
    PooledScope scope(pool);
    New(bytes);
  };
  serve(20 * kMiB);
  for (int i = 0; i < 48; ++i) serve(1000);
  EXPECT_EQ(pool.stats().ranges, 0u);
  EXPECT_LE(pool.stats().held_bytes, 2 * kMiB);
}

// Steady cycles of few threads after a time of many.
TEST(WorkspacePool, RangesThatAreNotOpenAtOnceAnyMoreGoBackInSteps) {
  WorkspacePool pool("p", Quiet());
  const auto serve = [&](int count) {
    std::vector<std::unique_ptr<PooledScope>> open;
    std::vector<BufferHandle> arrays;
    for (int i = 0; i < count; ++i) {
      open.push_back(std::make_unique<PooledScope>(pool));
      arrays.push_back(New(8 * kMiB));
    }
    arrays.clear();
    while (!open.empty()) open.pop_back();
  };
  for (int i = 0; i < 3; ++i) serve(16);
  size_t held = pool.stats().held_bytes;
  EXPECT_GE(held, 128 * kMiB);
  int steps = 0;
  for (int i = 0; i < 2048; ++i) {
    serve(1);
    const size_t now = pool.stats().held_bytes;
    if (i < 128) {
      EXPECT_GE(now, 128 * kMiB) << "they may come again";
    }
    EXPECT_GE(now, held / 2);
    steps += now < held;
    held = now;
  }
  EXPECT_LE(held, 12 * kMiB);
  EXPECT_GE(steps, 3);
  // Where they come again and again they stay.
  const auto asked = [] { return MemoryTracker::Global().system_allocations(); };
  int64_t before = 0;
  for (int i = 0; i < 24 * 1500; ++i) {
    if (i == 12 * 1500) before = asked();
    serve(i % 1500 == 0 ? 16 : 1);
  }
  EXPECT_EQ(asked(), before);
}

// Requests that never repeat: served from a range of the pool once that is seen, with no plan each.
TEST(WorkspacePool, WhatNeverRepeatsIsServedFromFreeRanges) {
  WorkspacePool pool("p", Quiet());
  std::mt19937 random(5);
  for (int cycle = 0; cycle < 1500; ++cycle) {
    PooledScope scope(pool);
    std::vector<BufferHandle> alive(8);
    for (int i = 0; i < 60; ++i) alive[random() % 8] = New(1 + random() % 20000);
  }
  const WorkspacePoolStats stats = pool.stats();
  EXPECT_LE(stats.plans, 8u);
  EXPECT_GT(stats.cycles_not_planned, 1400u);
  EXPECT_GT(stats.hits, stats.spills * 20);
  // What repeats from now on is planned at its third coming: nothing is written down of the first two.
  for (int coming = 1; coming <= 5; ++coming) {
    PooledScope scope(pool);
    Serve(4);
    EXPECT_EQ(pool.stats().plans, stats.plans + (coming > 3)) << coming;
  }
  EXPECT_EQ(pool.stats().plans_kept, 1u);
}

TEST(WorkspacePool, ACycleThatRequestsNothingTakesNothing) {
  WorkspacePool pool("p", Quiet());
  for (int i = 0; i < 10; ++i) {
    { PooledScope scope(pool); }
    PooledScope scope(pool);
    if (i % 2 == 0) Serve(3);
    if (i % 2 == 1) {
      EXPECT_EQ(pool.stats().open_bytes, 0u);
    }
  }
  EXPECT_EQ(pool.stats().plans, 1u);
  EXPECT_EQ(pool.stats().cycles, 20u);
}

TEST(WorkspacePool, KindsThatBeginAlikeAreTakenForTheLargest) {
  WorkspacePool pool("p", Quiet());
  const auto serve = [&](int layers) {
    PooledScope scope(pool);
    Serve(4, layers);
  };
  for (int round = 0; round < 4; ++round) {
    for (int layers : {2, 9, 5}) serve(layers);
  }
  const WorkspacePoolStats learned = pool.stats();
  for (int round = 0; round < 50; ++round) {
    for (int layers : {9, 2, 5, 5}) serve(layers);
  }
  EXPECT_EQ(pool.stats().misses, learned.misses);
  EXPECT_EQ(pool.stats().spills, learned.spills);
}

// All at once: kinds that are new, that repeat, that never do, arrays released elsewhere, memory taken back,
// numbers read, workspaces that come and go.
TEST(WorkspacePool, StandsAllOfItAtOnce) {
  WorkspacePool pool("p", WorkspaceConfig::Inference());
  std::atomic<bool> stop{false};
  std::thread watcher([&] {
    uint64_t cycles = 0;
    for (int i = 0; !stop; ++i) {
      const WorkspacePoolStats stats = pool.stats();
      EXPECT_GE(stats.cycles, cycles);
      EXPECT_LE(stats.open_bytes, stats.held_bytes);
      cycles = stats.cycles;
      if (i % 16 == 0) pool.Trim();
      if (i % 32 == 5) Reclaimer::Global().RunNow();
    }
  });
  RunThreads(6, [&](int thread) {
    std::mt19937 random(thread);
    for (int i = 0; i < 300; ++i) {
      PooledScope scope(pool);
      switch (random() % 4) {
        case 0:
          Serve(random() % 1000 + 1, 1);
          break;
        case 1: {
          BufferHandle x = New(random() % 10000);
          std::thread([moved = std::move(x)]() mutable { moved = {}; }).join();
          Serve(3);
          break;
        }
        default:
          Serve(1 + random() % 8);
      }
    }
  });
  stop = true;
  watcher.join();
  EXPECT_EQ(pool.stats().cycles, 1800u);
  EXPECT_EQ(pool.stats().leased, 0u);
  EXPECT_EQ(pool.stats().open_bytes, 0u);
}

}  // namespace
}  // namespace tidepool
