// Ranges of a pool's memory: apart, as long as they are out, whatever goes back to the system meanwhile.
#include "tidepool/memory/workspace/pool_memory.h"

#include <array>
#include <atomic>
#include <cstring>
#include <random>
#include <string>
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
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/memory/workspace/pool_service.h"

namespace tidepool {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

std::array<size_t, 3> PlacesOf(const PoolMemory::Range& range) {
  return {0, range.bytes / 2, range.bytes - 1};
}

struct Memory {
  explicit Memory(DeviceProvider& provider_ = HostProvider(), const std::string& name = "pool")
      : provider(provider_),
        owner(MemoryOwner::Process().Child(name)),
        memory(name, config, 256, provider, owner) {}
  size_t held() const { return memory.usage().held_bytes; }
  int64_t charged() const {
    return MemoryBudget::Global().Of(owner, provider.device()).taken_bytes;
  }

  const WorkspaceConfig config = Quiet();
  DeviceProvider& provider;
  MemoryOwner& owner;
  PoolMemory memory;
};

TEST(PoolMemory, WhatLiesBelowAnOpenRangeGoesBackWhenTrimmed) {
  Memory pool;
  for (int round = 0; round < 3; ++round) {
    const PoolMemory::Range giant = pool.memory.Take(100 * kMiB);
    const PoolMemory::Range small = pool.memory.Take(50 << 10);
    std::memset(small.data, 7, small.bytes);
    std::memset(giant.data, 8, 4096);
    pool.memory.Give(giant);
    EXPECT_GE(pool.held(), 100 * kMiB);
    EXPECT_GE(pool.memory.Trim(), 95 * kMiB);
    EXPECT_LE(pool.held(), 5 * kMiB);
    EXPECT_EQ(pool.charged(), static_cast<int64_t>(pool.held()));
    EXPECT_EQ(pool.memory.Trim(), 0u);
    // Small ones leave it as it is, one that is about as large takes it again.
    const PoolMemory::Range other = pool.memory.Take(2 * kMiB);
    std::memset(other.data, 9, other.bytes);
    EXPECT_LE(pool.held(), 9 * kMiB);
    const PoolMemory::Range again = pool.memory.Take(90 * kMiB);
    EXPECT_GE(again.data, giant.data);
    EXPECT_LT(again.data, small.data) << "in its place";
    std::memset(again.data, 10, again.bytes);
    EXPECT_EQ(pool.charged(), static_cast<int64_t>(pool.held()));
    for (size_t i : {size_t{0}, small.bytes - 1}) EXPECT_EQ(small.data[i], std::byte{7});
    for (size_t i : {size_t{0}, other.bytes - 1}) EXPECT_EQ(other.data[i], std::byte{9});
    pool.memory.Give(small);
    pool.memory.Give(again);
    pool.memory.Give(other);
    if (round > 0) pool.memory.Trim();
  }
  EXPECT_EQ(pool.held(), 0u);
}

TEST(PoolMemory, TheReclaimerTakesWhatLiesBelowAnOpenRange) {
  Memory pool;
  const PoolMemory::Range giant = pool.memory.Take(64 * kMiB);
  const PoolMemory::Range small = pool.memory.Take(4096);
  pool.memory.Give(giant);
  EXPECT_GE(Reclaimer::Global().RunNow(), static_cast<int64_t>(60 * kMiB));
  EXPECT_LE(pool.held(), 5 * kMiB);
  pool.memory.Give(small);
}

// Without anybody asking for it.
TEST(PoolMemory, WhatLiesBelowAnOpenRangeGoesBackInSomeThousandRanges) {
  Memory pool;
  const PoolMemory::Range giant = pool.memory.Take(64 * kMiB);
  const PoolMemory::Range small = pool.memory.Take(4096);
  pool.memory.Give(giant);
  for (int i = 0; i < 3 * 4096; ++i) pool.memory.Give(pool.memory.Take(10000));
  EXPECT_LE(pool.held(), 9 * kMiB);
  // Where they come again and again it stays.
  for (int i = 0; i < 3 * 4096; ++i) {
    if (i % 1000 == 0) pool.memory.Give(pool.memory.Take(60 * kMiB));
    pool.memory.Give(pool.memory.Take(10000));
  }
  EXPECT_GE(pool.held(), 60 * kMiB);
  pool.memory.Give(small);
}

// A hole with nothing above it any more is not there to be taken.
TEST(PoolMemory, HolesAtTheEndGoWithTheEnd) {
  Memory pool;
  const PoolMemory::Range giant = pool.memory.Take(64 * kMiB);
  const PoolMemory::Range small = pool.memory.Take(4096);
  pool.memory.Give(giant);
  pool.memory.Trim();
  pool.memory.Give(small);
  for (const size_t bytes : {size_t{10000}, 20 * kMiB}) {
    for (int i = 0; i < 4096; ++i) {
      const PoolMemory::Range range = pool.memory.Take(bytes);
      for (const size_t at : PlacesOf(range)) range.data[at] = std::byte{1};
      pool.memory.Give(range);
    }
  }
  EXPECT_LE(pool.held(), 32 * kMiB);
}

// What comes to lie where a hole is takes memory for itself, not for all of it.
TEST(PoolMemory, OfAHoleWhatIsNeededIsFilled) {
  Memory pool(HostProvider(), "tight");
  const PoolMemory::Range giant = pool.memory.Take(100 * kMiB);
  const PoolMemory::Range small = pool.memory.Take(4096);
  pool.memory.Give(giant);
  pool.memory.Trim();
  MemoryBudget::Global().SetOwnerLimit(pool.owner, Host(),
                                       pool.charged() + static_cast<int64_t>(80 * kMiB));
  const size_t held = pool.held();
  const PoolMemory::Range other = pool.memory.Take(60 * kMiB);
  EXPECT_LT(other.data, small.data);
  EXPECT_LE(pool.held(), held + 60 * kMiB + 8192);
  std::memset(other.data, 1, other.bytes);
  EXPECT_THROW(pool.memory.Take(60 * kMiB), OutOfMemoryError);
  pool.memory.Give(other);
  const PoolMemory::Range again = pool.memory.Take(70 * kMiB);
  EXPECT_LT(again.data, small.data) << "beside what is filled";
  std::memset(again.data, 1, again.bytes);
  pool.memory.Give(again);
  pool.memory.Give(small);
  MemoryBudget::Global().SetOwnerLimit(pool.owner, Host(), MemoryBudget::kUnlimited);
}

// A hole whose memory is refused is left alone, and what is asked for taken elsewhere; and is there
// the next time.
TEST(PoolMemory, WithoutMemoryForAHoleItGrowsAtItsEnd) {
  SimulatedDevice& device = SimulatedDevice::Get();
  device.Reset();
  device.set_reserve_bytes(64 * kMiB);
  {
    Memory pool(device);
    const PoolMemory::Range giant = pool.memory.Take(10 * kMiB);
    const PoolMemory::Range small = pool.memory.Take(4096);
    pool.memory.Give(giant);
    pool.memory.Trim();
    device.faults().FailRequest(0);
    const PoolMemory::Range above = pool.memory.Take(9 * kMiB);
    EXPECT_EQ(device.faults().failed(), 1);
    EXPECT_GT(above.data, small.data);
    device.faults().Clear();
    const PoolMemory::Range within = pool.memory.Take(9 * kMiB);
    EXPECT_LT(within.data, small.data);
    EXPECT_EQ(device.used_bytes(), pool.held());
    for (const PoolMemory::Range& range : {small, above, within}) pool.memory.Give(range);
  }
  device.Reset();
}

// As far as there are any, and in nobody's way once they are released.
TEST(PoolMemory, BlocksLieInFreeRanges) {
  Memory pool;
  const auto asked = [] { return MemoryTracker::Global().system_allocations(); };
  pool.memory.Give(pool.memory.Take(64 * kMiB));
  const int64_t before = asked();
  const size_t held = pool.held();
  const PoolMemory::Range range = pool.memory.Take(8 * kMiB);
  std::vector<Allocation> blocks;
  for (const size_t bytes : {20 * kMiB, size_t{1000}, 30 * kMiB}) {
    blocks.push_back(AllocateOrThrow(pool.memory.blocks(), bytes, 256));
    std::memset(blocks.back().data, 3, bytes);
  }
  EXPECT_EQ(asked(), before);
  EXPECT_EQ(pool.memory.usage().ranges, 1u);
  EXPECT_EQ(pool.memory.usage().range_bytes, range.bytes);
  // What does not fit is the system's.
  const Allocation more = AllocateOrThrow(pool.memory.blocks(), 10 * kMiB, 256);
  EXPECT_GE(pool.held(), held + 10 * kMiB);
  std::memset(more.data, 4, 10 * kMiB);
  pool.memory.blocks().Release(blocks[0].token, 20 * kMiB, 256);
  pool.memory.blocks().Release(blocks[2].token, 30 * kMiB, 256);
  const int64_t with_more = asked();
  const PoolMemory::Range other = pool.memory.Take(30 * kMiB);
  EXPECT_EQ(asked(), with_more);
  EXPECT_GE(pool.held(), held + 10 * kMiB) << "as long as free ranges do it stays";
  pool.memory.blocks().Release(more.token, 10 * kMiB, 256);
  pool.memory.blocks().Release(blocks[1].token, 1000, 256);
  // Before ranges grow chunks that nobody uses go.
  const PoolMemory::Range third = pool.memory.Take(40 * kMiB);
  EXPECT_LE(pool.held(), 102 * kMiB);
  EXPECT_EQ(pool.charged(), static_cast<int64_t>(pool.held()));
  for (const PoolMemory::Range& each : {range, other, third}) pool.memory.Give(each);
  pool.memory.Trim();
  EXPECT_EQ(pool.held(), 0u);
}

// By ends of cycles, with ranges or without.
TEST(PoolMemory, ChunksThatNobodyUsesGoUnlessTheyAreWantedAgain) {
  Memory pool;
  const auto end_cycles = [&](int count) {
    for (int i = 0; i < count; ++i) pool.memory.Give({});
  };
  const auto use = [&] {
    const Allocation block = AllocateOrThrow(pool.memory.blocks(), 20 * kMiB, 256);
    pool.memory.blocks().Release(block.token, 20 * kMiB, 256);
  };
  use();
  end_cycles(24);
  EXPECT_GE(pool.held(), 20 * kMiB);
  end_cycles(24);
  EXPECT_EQ(pool.held(), 0u);
  const auto asked = [] { return MemoryTracker::Global().system_allocations(); };
  for (const int period : {100, 500, 1000}) {
    int64_t before = 0;
    for (int i = 0; i < 20; ++i) {
      if (i == 10) before = asked();
      use();
      end_cycles(period);
    }
    EXPECT_EQ(asked(), before) << "each " << period << " cycles";
  }
  end_cycles(1100);
  EXPECT_EQ(pool.held(), 0u);
}

// Ranges and blocks of all sizes in any order, trimmed at any moment, on a device that refuses now and then and ends the
// test when memory is used that it has back.
TEST(PoolMemory, RangesStayWhatTheyAreWhateverGoesBack) {
  SimulatedDevice& device = SimulatedDevice::Get();
  for (const bool on_device : {false, true}) {
    for (uint32_t seed = 0; seed < (on_device ? 12 : 3); ++seed) {
      device.Reset();
      device.set_reserve_bytes(64 * kMiB);
      std::mt19937 random(seed);
      {
        Memory pool(on_device ? static_cast<DeviceProvider&>(device) : HostProvider(), "model");
        struct Out {
          PoolMemory::Range range;
          std::byte value;
          void* block;  // null: it is a range
        };
        std::vector<Out> out;
        size_t open = 0;
        // With the readable tail.
        const auto bytes_of = [&](const PoolMemory::Range& range) {
          return on_device ? device.Hidden(range.data, range.bytes + kReadableTailBytes)
                           : range.data;
        };
        const auto fill = [&](const PoolMemory::Range& range, std::byte value) {
          for (const size_t at : PlacesOf(range)) bytes_of(range)[at] = value;
        };
        const auto give = [&](size_t which) {
          const Out one = std::exchange(out[which], out.back());
          out.pop_back();
          for (const size_t at : PlacesOf(one.range)) {
            ASSERT_EQ(bytes_of(one.range)[at], one.value);
          }
          if (one.block != nullptr) {
            return pool.memory.blocks().Release(one.block, one.range.bytes, 256);
          }
          open -= one.range.bytes;
          pool.memory.Give(one.range);
        };
        for (int step = 0; step < 1500; ++step) {
          const uint32_t what = random() % 32;
          if (on_device && seed % 2 == 1 && step % 50 == 0)
            device.faults().FailRequest(random() % 8, 2);
          if (what == 0) pool.memory.Trim();
          if (what == 1) pool.memory.Give({});
          if (what < 16 && out.size() < 24) {
            const size_t bytes = 1 + random() % (what < 6    ? 12 * kMiB
                                                 : what < 10 ? 2 * kMiB
                                                             : 50000);
            try {
              PoolMemory::Range range;
              void* token = nullptr;
              if (random() % 3 == 0) {
                const Allocation block = AllocateOrThrow(pool.memory.blocks(), bytes, 256);
                range.data = block.data;
                range.bytes = bytes;
                token = block.token;
              } else {
                range = pool.memory.Take(bytes);
                open += range.bytes;
              }
              const auto value = static_cast<std::byte>(random());
              fill(range, value);
              out.push_back({range, value, token});
            } catch (const OutOfMemoryError&) {
              ASSERT_TRUE(on_device);
            }
          } else if (!out.empty()) {
            give(random() % 4 == 0 ? out.size() - 1 : random() % out.size());
          }
          ASSERT_EQ(pool.memory.usage().range_bytes, open);
          ASSERT_GE(pool.held(), open);
          ASSERT_EQ(pool.charged(), static_cast<int64_t>(pool.held()));
          if (on_device) {
            ASSERT_EQ(device.used_bytes(), pool.held());
          }
        }
        device.faults().Clear();
        while (!out.empty()) give(out.size() - 1);
        pool.memory.Trim();
        EXPECT_EQ(pool.held(), 0u);
      }
      EXPECT_EQ(device.used_bytes(), 0u);
    }
  }
  device.Reset();
}

// The same on many threads.
TEST(PoolMemory, ThreadsTakeAndGiveWhileItIsTrimmed) {
  Memory pool(HostProvider(), "threads");
  std::atomic<int> running{4};
  std::thread trims([&] {
    while (running > 0) {
      pool.memory.Trim();
      Reclaimer::Global().RunNow();
      const PoolMemory::Usage usage = pool.memory.usage();
      EXPECT_GE(usage.held_bytes, usage.range_bytes);
    }
  });
  RunThreads(4, [&](int thread) {
    std::mt19937 random(thread);
    std::vector<PoolMemory::Range> out;
    for (int step = 0; step < 600; ++step) {
      if (random() % 4 == 0) {
        const size_t bytes = 1 + random() % (random() % 2 == 0 ? 8 * kMiB : 20000);
        const Allocation block = AllocateOrThrow(pool.memory.blocks(), bytes, 256);
        block.data[0] = block.data[bytes - 1] = static_cast<std::byte>(thread + 11);
        std::this_thread::yield();
        ASSERT_EQ(block.data[0], static_cast<std::byte>(thread + 11));
        ASSERT_EQ(block.data[bytes - 1], static_cast<std::byte>(thread + 11));
        pool.memory.blocks().Release(block.token, bytes, 256);
      }
      if (random() % 2 == 0 && out.size() < 8) {
        out.push_back(pool.memory.Take(1 + random() % (random() % 2 == 0 ? 8 * kMiB : 20000)));
        const PoolMemory::Range& range = out.back();
        for (const size_t at : PlacesOf(range)) {
          range.data[at] = static_cast<std::byte>(thread + 1);
        }
      } else if (!out.empty()) {
        const PoolMemory::Range range = std::exchange(out[random() % out.size()], out.back());
        out.pop_back();
        for (const size_t at : PlacesOf(range)) {
          ASSERT_EQ(range.data[at], static_cast<std::byte>(thread + 1));
        }
        pool.memory.Give(range);
      }
    }
    for (const PoolMemory::Range& range : out) pool.memory.Give(range);
    --running;
  });
  trims.join();
  pool.memory.Trim();
  EXPECT_EQ(pool.held(), 0u);
  EXPECT_EQ(pool.charged(), 0);
}

}  // namespace
}  // namespace tidepool
