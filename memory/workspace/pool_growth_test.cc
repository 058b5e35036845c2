// How a pool's spans grow where memory is refused and where holes could not be cut off.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/host_provider.h"
#include "tidepool/memory/resource/memory_resource.h"
#include "tidepool/memory/testing/failing_provider.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/memory/workspace/pool_memory.h"

namespace tidepool {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

struct Memory {
  explicit Memory(const char* name)
      : owner(MemoryOwner::Process().Child(name)),
        memory(name, WorkspaceConfig::Inference(), kMaxAlignment, HostProvider(), owner) {}
  MemoryOwner& owner;
  PoolMemory memory;
};

// A span that others have grown while the budget refused one thread is not cut back under them:
// each range has its memory, with what its holder wrote there, until it is given back.
TEST(PoolGrowth, RefusalsTakeNoMemoryFromOtherThreads) {
  Memory pool("refused in threads");
  MemoryBudget::Global().SetOwnerLimit(pool.owner, Host(), static_cast<int64_t>(6 * kMiB));
  std::vector<size_t> kinds(24);
  std::mt19937_64 sizes(7);
  for (size_t& bytes : kinds) bytes = 20000 + sizes() % 1'500'000;
  std::atomic<int> refused{0}, wrong{0};
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, thread] {
      std::mt19937_64 random(thread);
      for (int i = 0; i < 3000; ++i) {
        const size_t bytes = kinds[random() % kinds.size()];
        const auto mark = static_cast<std::byte>(random());
        try {
          const PoolMemory::Range range = pool.memory.Take(bytes);
          for (size_t at = 0; at < bytes; at += 4096) range.data[at] = mark;
          range.data[bytes - 1] = mark;
          if (random() % 8 == 0) std::this_thread::yield();
          for (size_t at = 0; at < bytes; at += 4096) wrong += range.data[at] != mark;
          wrong += range.data[bytes - 1] != mark;
          pool.memory.Give(range);
          if (random() % 64 == 0) pool.memory.Trim();
        } catch (const OutOfMemoryError&) {
          ++refused;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(refused, 0);
  MemoryBudget::Global().SetOwnerLimit(pool.owner, Host(), MemoryBudget::kUnlimited);
}

// Where pages are large the end of a hole above all ranges may be within one that stays. The span
// grows on there.
TEST(PoolGrowth, AHoleThatCouldNotBeCutOffIsFilledByWhatComesNext) {
  Memory pool("hole at the end");
  const auto take = [&](size_t bytes) {
    const PoolMemory::Range range = pool.memory.Take(bytes);
    std::memset(range.data, 1, range.bytes);
    return range;
  };
  const PoolMemory::Range low = take(150 * kMiB + 64), gap = take(30 * kMiB), small = take(4096);
  pool.memory.Give(gap);
  const PoolMemory::Range high = take(220 * kMiB);
  pool.memory.Give(high);
  pool.memory.Give(small);
  pool.memory.Trim();
  const PoolMemory::Range next = take(10 * kMiB);
  EXPECT_EQ(next.span, low.span);
  pool.memory.Give(low);
  const PoolMemory::Range large = take(360 * kMiB);
  EXPECT_LE(pool.memory.usage().held_bytes, 407 * kMiB);  // 370 MiB and a tenth
  pool.memory.Give(next);
  pool.memory.Give(large);
  pool.memory.Trim();
  EXPECT_EQ(pool.memory.usage().held_bytes, 0u);
}

// A cycle that ends while memory is taken for another was open beside it: so much was open at once.
TEST(PoolGrowth, WhatEndsWhileItGrowsCountsAsOpenBesideIt) {
  SimulatedDevice& device = SimulatedDevice::Get();
  for (const bool in_hole : {false, true}) {
    device.Reset();
    {
      MemoryOwner& owner = MemoryOwner::Process().Child("ends meanwhile");
      const WorkspaceConfig config = WorkspaceConfig::Inference();
      PoolMemory memory("ends meanwhile", config, kMaxAlignment, device, owner);
      PoolMemory::Range small;
      if (in_hole) {
        const PoolMemory::Range giant = memory.Take(40 * kMiB);
        small = memory.Take(4096);
        memory.Give(giant);
        memory.Trim();
      }
      const PoolMemory::Range first = memory.Take(in_hole ? 60 * kMiB : 30 * kMiB);
      int ended = 0;
      const Reclaimer::Registration ends =
          Reclaimer::Global().Register("ends", [&](ReclaimDepth) -> int64_t {
            if (ended++ > 0) return 0;
            memory.Give(first);
            return 1;
          });
      device.faults().FailRequest(0);
      const PoolMemory::Range next = memory.Take(40 * kMiB);
      EXPECT_GE(ended, 1);
      const PoolMemory::Usage usage = memory.usage();
      EXPECT_GE(usage.most_range_bytes, in_hole ? 100 * kMiB : 70 * kMiB);
      EXPECT_LE(usage.held_bytes, usage.most_range_bytes * 11 / 10 + (size_t{100} << 10));
      memory.Give(next);
      if (in_hole) {
        EXPECT_LT(next.data, small.data);
        memory.Give(small);
      }
    }
    device.Reset();
  }
}

// A chunk of blocks goes before a span grows, and while it goes another thread gives the range that
// does instead: the ledger has the chunk no more then.
TEST(PoolGrowth, WhatGoesWhereNothingGrowsInTheEndLeavesTheLedgerToo) {
  FailingProvider host(Host());
  MemoryOwner& owner = MemoryOwner::Process().Child("does not grow");
  const WorkspaceConfig config = WorkspaceConfig::Inference();
  {
    PoolMemory memory("does not grow", config, kMaxAlignment, host, owner);
    const PoolMemory::Range first = memory.Take(4 * kMiB);
    const Allocation block = AllocateOrThrow(memory.blocks(), kMiB, kMaxAlignment);
    memory.blocks().Release(block.token, kMiB, kMaxAlignment);
    const size_t held = memory.usage().held_bytes;
    EXPECT_GE(held, 5 * kMiB);
    bool given = false;
    host.set_before_unreserving([&] {
      if (!std::exchange(given, true)) memory.Give(first);
    });
    const PoolMemory::Range second = memory.Take(4 * kMiB);
    EXPECT_TRUE(given);
    EXPECT_EQ(second.data, first.data);
    EXPECT_LE(memory.usage().held_bytes, held - kMiB);
    EXPECT_EQ(memory.usage_in_passing().held_bytes, memory.usage().held_bytes);
    EXPECT_EQ(MemoryTracker::Global().Snapshot().Of("does not grow").total.current_bytes,
              static_cast<int64_t>(memory.usage().held_bytes));
    memory.Give(second);
    host.set_before_unreserving(nullptr);
  }
}

}  // namespace
}  // namespace tidepool
