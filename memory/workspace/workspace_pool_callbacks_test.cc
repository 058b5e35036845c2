// What a pool asks of the system, a budget or the Reclaimer calls back: what callbacks and other threads may
// do meanwhile.
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_events.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/pool_service.h"
#include "tidepool/memory/workspace/workspace_pool.h"

namespace tidepool {
namespace {

// Far more than is needed, so that what hangs is an error and not a test that never ends.
constexpr auto kLong = std::chrono::seconds(20);

struct Limit {
  explicit Limit(int64_t more_bytes) {
    const int64_t taken = MemoryBudget::Global().Of(Host()).taken_bytes;
    MemoryBudget::Global().SetDeviceLimit(Host(), taken + more_bytes);
  }
  ~Limit() { MemoryBudget::Global().SetDeviceLimit(Host(), MemoryBudget::kUnlimited); }
};

WorkspaceConfig FromBlocks() {
  WorkspaceConfig config = Quiet();
  config.debug_mode = DebugMode::kSpillEverything;
  return config;
}

// Another thread that has a cycle of the pool open. When it is called it does what any thread may do at any
// time: it lets go of an array, ends its cycle, reads numbers, and has a cycle that needs no more memory.
class Beside {
 public:
  explicit Beside(WorkspacePool& pool)
      : thread_([this, &pool] {
          {
            PooledScope scope(pool);
            BufferHandle array = New(1 << 14);
            is_open_.set_value();
            go_.get_future().wait();
            array = {};
          }
          pool.stats();
          {
            PooledScope scope(pool);
            New(1 << 14);
          }
          done_.set_value();
        }) {
    is_open_.get_future().wait();
  }
  ~Beside() {
    if (!called_.exchange(true)) go_.set_value();
    thread_.join();
  }

  // In a callback. The first time waits until it is through, once the test has come to it.
  void Call() {
    if (!armed_ || called_.exchange(true)) return;
    go_.set_value();
    through_ = done_.get_future().wait_for(kLong) == std::future_status::ready;
  }
  void Arm() { armed_ = true; }
  bool through() const { return through_; }

 private:
  std::promise<void> is_open_, go_, done_;
  std::atomic<bool> armed_{false};
  std::atomic<bool> called_{false};
  std::atomic<bool> through_{false};
  std::thread thread_;
};

class PoolCallbacks : public ::testing::TestWithParam<bool> {
 protected:
  PoolCallbacks() : pool_("p", GetParam() ? FromBlocks() : Quiet()) {
    // Kinds are known, and there is nothing that is not in use.
    for (int i = 0; i < 2; ++i) {
      PooledScope scope(pool_);
      New(1 << 14);
    }
    for (int i = 0; i < 2; ++i) ServeMuch();
    pool_.Trim();
  }
  void ServeMuch() {
    PooledScope scope(pool_);
    Serve(512);
  }

  WorkspacePool pool_;
};

TEST_P(PoolCallbacks, ThreadsGoOnWhileOneIsToldThatMemoryRunsShort) {
  Beside beside(pool_);
  const Limit limit(3 << 20);
  const MemoryEventCallback watch([&](const MemoryEvent&) { beside.Call(); });
  beside.Arm();
  EXPECT_THROW(ServeMuch(), OutOfMemoryError);
  EXPECT_TRUE(beside.through());
}

TEST_P(PoolCallbacks, ThreadsGoOnWhileTheReclaimerIsAsked) {
  Beside beside(pool_);
  const Limit limit(3 << 20);
  const auto registered = Reclaimer::Global().Register("cache", [&](ReclaimDepth) -> int64_t {
    beside.Call();
    return 0;
  });
  beside.Arm();
  EXPECT_THROW(ServeMuch(), OutOfMemoryError);
  EXPECT_TRUE(beside.through());
}

TEST_P(PoolCallbacks, ThreadsGoOnWhileMemoryGoesBack) {
  Beside beside(pool_);
  ServeMuch();
  const Limit limit(0);
  const MemoryEventCallback watch([&](const MemoryEvent& event) {
    if (event.kind == MemoryEvent::Kind::kLevel) beside.Call();
  });
  beside.Arm();
  pool_.Trim();
  EXPECT_TRUE(beside.through());
}

// The Reclaimer runs on one thread, and what it calls lets go of an array of the pool that another thread is
// making larger, which waits for the Reclaimer.
TEST_P(PoolCallbacks, WhatTheReclaimerCallsMayLetGoOfArrays) {
  const WorkspaceLease lease = pool_.Lease();
  std::promise<void> running, waiting;
  BufferHandle* cached = nullptr;
  std::atomic<std::thread::id> runs_on;
  const auto registered = Reclaimer::Global().Register("cache", [&](ReclaimDepth) -> int64_t {
    if (std::this_thread::get_id() != runs_on || cached == nullptr) return 0;
    running.set_value();
    const bool asked = waiting.get_future().wait_for(kLong) == std::future_status::ready;
    EXPECT_TRUE(asked);
    *std::exchange(cached, nullptr) = {};
    return 1 << 14;
  });
  std::atomic<bool> asks{false};
  const MemoryEventCallback watch([&](const MemoryEvent& event) {
    if (event.kind == MemoryEvent::Kind::kReclaimBegins && !asks.exchange(true))
      waiting.set_value();
  });
  std::promise<void> ended;
  std::thread reclaims([&] {
    {
      PooledScope scope(pool_);
      BufferHandle array = New(1 << 14);
      cached = &array;
      runs_on = std::this_thread::get_id();
      Reclaimer::Global().RunNow();
    }
    ended.set_value();
  });
  running.get_future().wait();
  const Limit limit(3 << 20);
  {
    WorkspaceScope scope(*lease);
    EXPECT_THROW(Serve(512), OutOfMemoryError);
  }
  EXPECT_EQ(ended.get_future().wait_for(kLong), std::future_status::ready);
  reclaims.join();
}

// While a thread makes the pool larger, what it calls needs memory of the pool as well, and waits for nobody.
TEST_P(PoolCallbacks, WhatTheReclaimerCallsMayHaveCycles) {
  const Limit limit(8 << 10);
  int calls = 0;
  const auto registered = Reclaimer::Global().Register("cache", [&](ReclaimDepth) -> int64_t {
    ++calls;
    PooledScope scope(pool_);
    EXPECT_THROW(New(1 << 14), OutOfMemoryError);
    return 0;
  });
  PooledScope scope(pool_);
  EXPECT_THROW(New(1 << 14), OutOfMemoryError);
  EXPECT_GT(calls, 0);
}

TEST_P(PoolCallbacks, CallbacksLetGoOfArraysOfPoolsAcross) {
  WorkspaceConfig config = pool_.config();
  config.temp_block_size = 4096;
  WorkspacePool a("a", config), b("b", config);
  static thread_local std::vector<BufferHandle>* cache = nullptr;
  const auto let_go = [] {
    if (cache == nullptr || cache->empty()) return;
    std::this_thread::yield();
    cache->clear();
  };
  const auto registered = Reclaimer::Global().Register("cache", [&](ReclaimDepth) -> int64_t {
    let_go();
    return 1;
  });
  const MemoryEventCallback watch([&](const MemoryEvent&) { let_go(); });
  const Limit limit(1600 << 10);
  RunThreads(4, [&](int thread) {
    WorkspacePool& outer = thread % 2 == 0 ? a : b;
    WorkspacePool& inner = thread % 2 == 0 ? b : a;
    std::mt19937 random(thread);
    std::vector<BufferHandle> mine;
    cache = &mine;
    for (int i = 0; i < 100; ++i) {
      try {
        PooledScope scope(outer);
        for (int k = 0; k < 4; ++k) mine.push_back(New(100000 + random() % 100000));
        {
          PooledScope nested(inner);
          std::vector<BufferHandle> arrays;
          for (int k = 0; k < 5; ++k) {
            arrays.push_back(New(100000 + random() % 300000));
            std::memset(arrays.back()->data, k, arrays.back()->bytes);
          }
          for (int k = 0; k < 5; ++k) {
            EXPECT_EQ(static_cast<int>(arrays[k]->data[0]), k);
            EXPECT_EQ(static_cast<int>(arrays[k]->data[arrays[k]->bytes - 1]), k);
          }
        }
        mine.clear();
      } catch (const OutOfMemoryError&) {
      }
      mine.clear();
      if (i % 4 == 0) outer.Trim();
      if (i % 16 == 0) Reclaimer::Global().RunNow();
    }
    cache = nullptr;
  });
  for (WorkspacePool* pool : {&a, &b}) {
    pool->Trim();
    const WorkspacePoolStats stats = pool->stats();
    EXPECT_EQ(stats.leased, 0u);
    EXPECT_EQ(stats.open_bytes, 0u);
    EXPECT_EQ(stats.held_bytes, 0u);
  }
}

// Many find at once that there is not enough, while one is told of the level that the first has reached: they
// share what is taken.
TEST_P(PoolCallbacks, ThreadsThatGrowItAtOnceShareWhatIsTaken) {
  constexpr int kThreads = 16;
  const BufferHandle ballast = New(64 << 20);
  const int64_t taken = MemoryBudget::Global().Of(Host()).taken_bytes;
  const int64_t system = MemoryTracker::Global().system_allocations();
  std::atomic<int> begun{0};
  std::atomic<int> open{0};
  std::atomic<int> calls{0};
  const MemoryEventCallback watch([&](const MemoryEvent&) {
    ++calls;
    // Time for the others to come so far; nothing but the teeth of this test depends on it.
    while (begun < kThreads) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  });
  const Limit limit(taken / 4 + (4 << 10));  // 80 % of it is what is taken and 3 KiB
  RunThreads(kThreads, [&](int) {
    PooledScope scope(pool_);
    ++begun;
    const BufferHandle array = New(1 << 14);
    ++open;
    while (open < kThreads) std::this_thread::yield();
  });
  EXPECT_EQ(calls, 1);
  EXPECT_LE(pool_.stats().held_bytes, size_t{17} << 16) << "a chunk, or a range for each";
  EXPECT_EQ(MemoryTracker::Global().system_allocations() - system, GetParam() ? 1 : kThreads);
}

INSTANTIATE_TEST_SUITE_P(FromRangesAndBlocks, PoolCallbacks, ::testing::Bool(),
                         [](const auto& param) { return param.param ? "Blocks" : "Ranges"; });

}  // namespace
}  // namespace tidepool
