// Blocks that are kept behind what uses them, on a device whose work is delayed and reordered. Work that uses bytes
// again unordered, and a block that goes back to the device under work, end the test.
#include "tidepool/memory/provider/kept_blocks.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_queue.h"
#include "tidepool/memory/testing/simulated_device.h"

namespace tidepool {
namespace {

const Device kDevice = SimulatedDevice::kDevice;
constexpr size_t kBytes = 100'000, kMost = size_t{64} << 20;
constexpr int kSeeds = 24;

int64_t Unreferenced() {
  return MemoryTracker::Global().CurrentBytes(kDevice, MemoryKind::kUnreferenced);
}

class KeptBlocksTest : public testing::Test {
 protected:
  void SetUp() override { Restart(1); }
  void TearDown() override { device_.Reset(); }

  void Restart(uint64_t seed, size_t most_bytes = kMost) {
    device_.Reset();
    device_.set_keeps_blocks(most_bytes);
    device_.set_asynchronous(seed);
  }
  KeptBlocks::Stats Stats() const { return device_.kept_blocks()->stats(); }
  std::byte* Take(size_t bytes = kBytes) {
    return device_.Allocate(bytes, SimulatedDevice::kAlignment);
  }
  void Fill(std::byte* block, int value, int queue, size_t bytes = kBytes) {
    std::byte* const hidden = device_.Hidden(block, bytes);
    device_.QueueKernel(
        {{block, block + bytes, true}}, [=] { std::memset(hidden, value, bytes); }, queue);
  }
  // Of whatever length: it runs when somebody waits for it, and now and then before.
  void QueueLongKernel(int queue, std::atomic<bool>* begun) {
    device_.QueueKernel(
        {}, [=] { *begun = true; }, queue);
  }
  int ByteOf(const std::byte* block, size_t bytes = kBytes) {
    std::vector<std::byte> seen(bytes);
    device_.CopyToHost(seen.data(), block, bytes);
    EXPECT_EQ(std::count(seen.begin(), seen.end(), seen[0]), static_cast<int64_t>(bytes));
    return static_cast<int>(seen[0]);
  }

  SimulatedDevice& device_ = SimulatedDevice::Get();
};

TEST_F(KeptBlocksTest, ACopyIntoAFreshBlockIsNotBehindTheComputeQueue) {
  const std::vector<std::byte> host(kBytes, std::byte{7});
  int waited = 0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    Restart(static_cast<uint64_t>(seed));
    std::atomic<bool> begun = false;
    QueueLongKernel(0, &begun);
    std::byte* const block = Take();
    device_.WaitFor(
        device_.QueueCopyFromHost(block, host.data(), kBytes, device_.EarlierUses(block, kBytes)));
    waited += begun;
    EXPECT_EQ(ByteOf(block), 7);
    device_.Release(block, kBytes);
  }
  EXPECT_LT(waited, kSeeds * 3 / 4);
}

// The copy begins behind the kernel that used the block, not behind what the queue has besides.
TEST_F(KeptBlocksTest, AReleaseLetsACopyBegin) {
  const std::vector<std::byte> host(kBytes, std::byte{7});
  int waited = 0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    Restart(static_cast<uint64_t>(seed));
    const DeviceQueue side = DeviceQueue::New(kDevice);
    std::atomic<bool> begun = false;
    QueueLongKernel(0, &begun);
    std::byte* block;
    {
      const QueueScope scope(side);
      block = Take();
      Fill(block, 3, side.number());
    }
    device_.NoteUsers(block, 1u << side.number());
    device_.Release(block, kBytes);
    QueueLongKernel(side.number(), &begun);
    const QueueScope scope(side);
    EXPECT_EQ(Take(), block);
    device_.WaitFor(
        device_.QueueCopyFromHost(block, host.data(), kBytes, device_.EarlierUses(block, kBytes)));
    waited += begun;
    EXPECT_EQ(ByteOf(block), 7);
    device_.Release(block, kBytes);
  }
  EXPECT_LT(waited, kSeeds * 3 / 4);
}

// Its end is known, and nothing can be queued there any more, nor asked.
TEST_F(KeptBlocksTest, ABlockThatAQueueUsedWhichHasEnded) {
  for (int seed = 0; seed < kSeeds; ++seed) {
    Restart(static_cast<uint64_t>(seed));
    std::byte* block;
    uint32_t users;
    {
      const DeviceQueue side = DeviceQueue::New(kDevice);
      const QueueScope scope(side);
      block = Take();
      Fill(block, 3, side.number());
      users = 1u << side.number();
      if (seed % 2 == 0) side.Wait();
    }
    device_.NoteUsers(block, users);
    device_.Release(block, kBytes);
    EXPECT_EQ(Stats().kept_blocks, 1u);
    std::byte* const again = Take();
    Fill(again, 4, 0);
    EXPECT_EQ(ByteOf(again), 4);
    device_.Release(again, kBytes);
  }
}

TEST_F(KeptBlocksTest, WorkOfAnotherQueueComesBehindTheEarlierUsers) {
  for (int seed = 0; seed < kSeeds; ++seed) {
    Restart(static_cast<uint64_t>(seed));
    const DeviceQueue a = DeviceQueue::New(kDevice), b = DeviceQueue::New(kDevice);
    // As many as wait at most, so that the next one is used again.
    std::vector<std::byte*> blocks;
    for (int i = 0; i < KeptBlocks::kMostWaiting; ++i) blocks.push_back(Take());
    for (std::byte* block : blocks) {
      Fill(block, 1, 0);
      device_.ComputeAfter(a.number(), device_.ComputePoint(0));
      Fill(block, 2, a.number());
      device_.NoteUsers(block, 1u << a.number());
      device_.Release(block, kBytes);
    }
    std::byte* again;
    {
      const QueueScope scope(b);
      again = Take();
      EXPECT_NE(std::find(blocks.begin(), blocks.end(), again), blocks.end());
      Fill(again, 3, b.number());
    }
    EXPECT_EQ(ByteOf(again), 3);
    device_.NoteUsers(again, 1u << b.number());
    device_.Release(again, kBytes);
  }
}

// A copy reads the block when it is released; the kernel that writes it next begins behind that.
TEST_F(KeptBlocksTest, WorkComesBehindCopiesOfTheBlock) {
  for (int seed = 0; seed < kSeeds; ++seed) {
    Restart(static_cast<uint64_t>(seed));
    std::vector<std::byte> host(kBytes);
    std::byte* block = Take();
    Fill(block, 5, 0);
    const QueuePoint copied =
        device_.QueueCopyToHost(host.data(), block, kBytes, device_.ComputePoint(0));
    device_.Release(block, kBytes);
    std::vector<std::byte*> blocks;
    for (int i = 0; i < KeptBlocks::kMostWaiting; ++i) blocks.push_back(Take());
    for (std::byte* other : blocks) Fill(other, 6, 0);
    device_.WaitFor(copied);
    EXPECT_EQ(host[kBytes - 1], std::byte{5});
    for (std::byte* other : blocks) device_.Release(other, kBytes);
  }
}

TEST_F(KeptBlocksTest, OneQueueUsesItsBlocksAgainWithoutWaiting) {
  std::byte* const first = Take();
  Fill(first, 1, 0);
  device_.Release(first, kBytes);
  const int64_t orders = device_.counters().orders;
  for (int i = 0; i < 20; ++i) {
    std::byte* const block = Take(kBytes - 64 * static_cast<size_t>(i));
    EXPECT_EQ(block, first);
    Fill(block, i, 0, 1000);
    device_.Release(block, kBytes);
  }
  EXPECT_EQ(device_.counters().orders, orders);
  EXPECT_EQ(Stats().taken, 1);
  EXPECT_EQ(Stats().used_again, 20);
}

// A loop of uploads has blocks that take turns, and no more than that.
TEST_F(KeptBlocksTest, UploadsTakeTurnsWithBlocks) {
  const std::vector<std::byte> host(kBytes);
  const auto upload = [&] {
    std::byte* const block = Take();
    const QueuePoint earlier = device_.EarlierUses(block, kBytes);
    device_.ComputeAfter(0, device_.QueueCopyFromHost(block, host.data(), kBytes, earlier));
    Fill(block, 1, 0);  // for what reads it
    device_.Release(block, kBytes);
  };
  for (int i = 0; i < 50; ++i) upload();
  EXPECT_GE(Stats().taken, 2);
  EXPECT_LE(Stats().taken, KeptBlocks::kMostFilled + 1);
  // Nor do those of another queue's grow without end.
  const DeviceQueue side = DeviceQueue::New(kDevice);
  for (int i = 0; i < 50; ++i) {
    std::byte* const block = Take(3 * kBytes);
    device_.ComputeAfter(side.number(), device_.ComputePoint(0));
    Fill(block, 2, side.number());
    device_.NoteUsers(block, 1u << side.number());
    device_.Release(block, 3 * kBytes);
  }
  EXPECT_LE(Stats().taken, KeptBlocks::kMostFilled + 1 + KeptBlocks::kMostWaiting);
  device_.WaitFor(device_.ComputePoint(0));  // before the host's bytes go
}

TEST_F(KeptBlocksTest, MemoryGoesBackBehindItsPoints) {
  const int64_t before = Unreferenced();
  const size_t used = device_.used_bytes();
  std::vector<std::byte*> blocks;
  for (size_t i = 1; i < 6; ++i) blocks.push_back(Take(i * kBytes));
  for (size_t i = 1; i < 6; ++i) {
    Fill(blocks[i - 1], 1, 0);
    device_.Release(blocks[i - 1], i * kBytes);
  }
  const size_t kept = Stats().kept_bytes;
  EXPECT_GE(kept, 15 * kBytes);
  EXPECT_EQ(Unreferenced() - before, static_cast<int64_t>(kept));
  EXPECT_EQ(device_.kept_blocks()->Trim(), kept);
  EXPECT_EQ(Unreferenced(), before);
  EXPECT_EQ(device_.used_bytes(), used);
}

TEST_F(KeptBlocksTest, TheReclaimerTakesWhatNobodyUses) {
  std::byte* const blocks[] = {Take(), Take()};
  Fill(blocks[0], 1, 0);
  const QueuePoint first = device_.ComputePoint(0);
  device_.Release(blocks[0], kBytes);
  Fill(blocks[1], 1, 0);
  device_.Release(blocks[1], kBytes);
  device_.WaitFor(first);
  const size_t kept = Stats().kept_bytes;
  EXPECT_GE(Reclaimer::Global().RunNow(), static_cast<int64_t>(kBytes));
  EXPECT_LT(Stats().kept_bytes, kept);
  device_.WaitFor(device_.ComputePoint(0));
  Reclaimer::Global().RunNow();
  EXPECT_EQ(Stats().kept_bytes, 0u);
  EXPECT_EQ(Stats().counted_bytes, 0u);
}

TEST_F(KeptBlocksTest, WhatABlockHasBeyondTheRequestIsCounted) {
  device_.Release(Take(10 * kBytes), 10 * kBytes);
  EXPECT_EQ(Stats().counted_bytes, Stats().kept_bytes);
  std::byte* const smaller = Take(9 * kBytes);
  EXPECT_EQ(Stats().used_again, 1);
  EXPECT_NEAR(static_cast<double>(Stats().counted_bytes), kBytes, 2 * KeptBlocks::kUnit);
  device_.Release(smaller, 9 * kBytes);
  EXPECT_EQ(Stats().counted_bytes, Stats().kept_bytes);
}

TEST_F(KeptBlocksTest, NoMoreIsKeptThanAllowed) {
  Restart(4, 3 * kBytes);
  std::vector<std::byte*> blocks;
  for (int i = 0; i < 10; ++i) blocks.push_back(Take());
  for (std::byte* block : blocks) {
    Fill(block, 1, 0);
    device_.WaitFor(device_.ComputePoint(0));
    device_.Release(block, kBytes);
    EXPECT_LE(Stats().kept_bytes, 3 * kBytes);
  }
  EXPECT_GE(Stats().kept_blocks, 1u);
}

// What nobody uses goes back before more is taken: sizes that come once do not pile up.
TEST_F(KeptBlocksTest, SizesThatDoNotComeBackMakeRoom) {
  for (int i = 0; i < 60; ++i) {
    const size_t bytes = kBytes + static_cast<size_t>(i) * 20'000;
    std::byte* const block = Take(bytes);
    EXPECT_LE(Stats().kept_bytes, 4 * bytes);
    device_.Release(block, bytes);
  }
}

TEST_F(KeptBlocksTest, LackOfMemoryDrainsIt) {
  constexpr size_t kAll = 1'040'000;  // of the capacity
  device_.set_capacity(size_t{1} << 20);
  std::vector<std::byte*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(Take());
  for (std::byte* block : blocks) {
    Fill(block, 1, 0);
    device_.Release(block, kBytes);
  }
  std::byte* large = Take(kAll);
  ASSERT_NE(large, nullptr);
  EXPECT_EQ(Stats().kept_blocks, 0u);
  EXPECT_EQ(Take(kAll), nullptr);
  Fill(large, 2, 0, kAll);
  device_.Release(large, kAll);
  // Another queue's serve before they are drained.
  const DeviceQueue side = DeviceQueue::New(kDevice);
  const QueueScope scope(side);
  large = Take(8 * kBytes);
  ASSERT_NE(large, nullptr);
  Fill(large, 3, side.number(), 8 * kBytes);
  EXPECT_EQ(ByteOf(large, 8 * kBytes), 3);
  device_.Release(large, 8 * kBytes);
}

TEST_F(KeptBlocksTest, BlocksThatAreAlignedFurther) {
  for (const size_t alignment : {size_t{512}, size_t{4096}, kMaxAlignment}) {
    std::byte* const block = device_.Allocate(kBytes, alignment);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0u);
    Fill(block, 9, 0);
    EXPECT_EQ(ByteOf(block), 9);
    device_.Release(block, kBytes);
  }
  EXPECT_EQ(Stats().live_blocks, 0u);
}

// The device refuses something in the middle of releases and requests.
TEST_F(KeptBlocksTest, EveryRefusalLeavesOrderAndBooksRight) {
  const size_t used = device_.used_bytes();
  for (int64_t n = 0; n < 60; ++n) {
    Restart(static_cast<uint64_t>(n));
    const DeviceQueue side = DeviceQueue::New(kDevice);
    device_.faults().FailRequest(n);
    for (int i = 0; i < 12; ++i) {
      std::optional<QueueScope> scope;
      if (i % 3 == 1) scope.emplace(side);
      const int queue = scope ? side.number() : 0;
      std::byte* const block = Take();
      if (block == nullptr) continue;
      Fill(block, i, queue);
      device_.NoteUsers(block, 1u << queue);
      device_.Release(block, kBytes);
    }
    const bool happened = device_.faults().failed() > 0;
    device_.faults().Clear();
    EXPECT_EQ(Stats().live_blocks, 0u);
    device_.kept_blocks()->Trim();
    EXPECT_EQ(device_.used_bytes(), used);
    if (!happened) return;
  }
  ADD_FAILURE() << "more than 60 requests";
}

TEST_F(KeptBlocksTest, ThreadsWithAQueueEach) {
  Restart(5, 10 * kBytes);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const DeviceQueue queue = t == 0 ? DeviceQueue::First(kDevice) : DeviceQueue::New(kDevice);
      const QueueScope scope(queue);
      std::mt19937 random(static_cast<unsigned>(t));
      std::vector<std::byte> host(4 * kBytes, std::byte{1});
      for (int i = 0; i < 150; ++i) {
        const size_t bytes = kBytes / 2 * (1 + random() % 8);
        std::byte* const block = Take(bytes);
        if (random() % 2 == 0) {
          const QueuePoint earlier = device_.EarlierUses(block, bytes);
          device_.ComputeAfter(queue.number(),
                               device_.QueueCopyFromHost(block, host.data(), bytes, earlier));
        }
        Fill(block, t, queue.number(), bytes);
        if (random() % 16 == 0) device_.kept_blocks()->TrimUnused();
        if (random() % 32 == 0) device_.kept_blocks()->Trim();
        device_.NoteUsers(block, 1u << queue.number());
        device_.Release(block, bytes);
      }
      device_.WaitFor(device_.ComputePoint(queue.number()));  // before the host's bytes go
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Stats().live_blocks, 0u);
  EXPECT_EQ(Stats().counted_bytes, Stats().kept_bytes);
}

}  // namespace
}  // namespace tidepool
