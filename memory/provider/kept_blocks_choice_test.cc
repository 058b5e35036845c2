// Which block serves, which goes back and what is asked for, each in a case of its own.
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/provider/device_queue.h"
#include "tidepool/memory/provider/kept_blocks.h"
#include "tidepool/memory/provider/kept_blocks_model.h"
#include "tidepool/memory/testing/simulated_device.h"

namespace tidepool {
namespace {

const Device kDevice = SimulatedDevice::kDevice;

class KeptBlocksOfModel : public testing::Test {
 protected:
  static constexpr size_t kBytes = 10'000;
  void Release(KeptBlocks& kept, std::byte* data, int queue, size_t bytes = kBytes) {
    device_.QueueWork(queue);
    kept.NoteUsers(data, 1u << queue);
    const DeviceProvider::Block block{data, bytes};
    kept.ReleaseMany(&block, 1);
  }
  ModelDevice device_{SIZE_MAX / 2};
};

// Eight of the oldest are another queue's, which stands still: what nobody uses goes back all the
// same.
TEST_F(KeptBlocksOfModel, AQueueThatStandsStillKeepsNothingOfOthers) {
  KeptBlocks kept(device_, device_, 256, /*most_bytes=*/0);
  const DeviceQueue standing = DeviceQueue::New(kDevice), other = DeviceQueue::New(kDevice);
  std::vector<std::byte*> blocks;
  for (int i = 0; i < 300; ++i) blocks.push_back(kept.Allocate(kBytes, 256));
  for (int i = 0; i < 100; ++i) Release(kept, blocks[static_cast<size_t>(i)], standing.number());
  const int64_t asked = device_.asked;
  for (int i = 100; i < 300; ++i) {
    Release(kept, blocks[static_cast<size_t>(i)], other.number());
    device_.Advance(other.number(), 1);
  }
  kept.TrimUnused();
  EXPECT_EQ(kept.stats().kept_blocks, 100u);
  EXPECT_LE(device_.asked - asked, 3 * 201);  // of each queue one, and what has passed
  EXPECT_EQ(device_.waits, 0);
}

// Of more copies than are asked for at once the others' turn comes.
TEST_F(KeptBlocksOfModel, CopiesAreAskedForInTurn) {
  KeptBlocks kept(device_, device_, 256, /*most_bytes=*/0);
  std::vector<std::byte*> blocks;
  std::vector<QueuePoint> copies;
  for (int i = 0; i < 5 * kMostQueues; ++i) blocks.push_back(kept.Allocate(kBytes, 256));
  for (std::byte* block : blocks) {
    copies.push_back(device_.QueueCopy());
    kept.NoteCopy(block, copies.back());
    Release(kept, block, 0);
    device_.Advance(0, 1);
  }
  const size_t count = blocks.size();
  for (size_t each : {count - 1, count / 2, size_t{0}}) device_.FinishCopy(copies[each]);
  const int64_t asked = device_.asked;
  for (int i = 0; i < 6; ++i) kept.TrimUnused();
  EXPECT_EQ(kept.stats().kept_blocks, count - 3);
  EXPECT_LE(device_.asked - asked, 6 * kMostQueues + 4);
  for (const QueuePoint copy : copies) device_.FinishCopy(copy);
}

// What the source cannot join with what it has got back is given back in full, before anything is
// waited for.
TEST_F(KeptBlocksOfModel, WhatNobodyUsesGoesBackBeforeAnythingIsWaitedFor) {
  KeptBlocks kept(device_, device_, 256, /*most_bytes=*/1 << 20);
  const DeviceQueue standing = DeviceQueue::New(kDevice);
  std::vector<std::byte*> blocks;
  for (int i = 0; i < 5; ++i) blocks.push_back(kept.Allocate(kBytes, 256));
  Release(kept, blocks[0], standing.number());
  for (size_t i = 1; i < 5; ++i) Release(kept, blocks[i], 0);
  device_.Advance(0, 4);
  device_.most_blocks = 2;
  std::byte* const large = kept.Allocate(2 * kBytes + 2000, 256);
  EXPECT_NE(large, nullptr);
  EXPECT_EQ(device_.waits, 0);
  const DeviceProvider::Block block{large, 2 * kBytes + 2000};
  kept.ReleaseMany(&block, 1);
}

// Many wait: the queue's own comes first, then the one that waits longest.
TEST_F(KeptBlocksOfModel, AQueuesOwnBlockIsBeforeAStrangers) {
  KeptBlocks kept(device_, device_, 256, /*most_bytes=*/1 << 20);
  const DeviceQueue a = DeviceQueue::New(kDevice), b = DeviceQueue::New(kDevice);
  std::vector<std::byte*> blocks;
  for (int i = 0; i < 2 * KeptBlocks::kMostWaiting; ++i)
    blocks.push_back(kept.Allocate(kBytes, 256));
  std::byte* const own = blocks[KeptBlocks::kMostWaiting];
  std::byte* const both = blocks[1];
  for (std::byte* block : blocks) {
    device_.QueueWork(a.number());
    device_.QueueWork(b.number());
    const uint32_t users = block == own    ? 1u << b.number()
                           : block == both ? 3u << a.number()
                                           : 1u << a.number();
    kept.NoteUsers(block, users);
    const DeviceProvider::Block each{block, kBytes};
    kept.ReleaseMany(&each, 1);
  }
  const QueueScope scope(b);
  EXPECT_EQ(kept.Allocate(kBytes, 256), own);
  std::byte* const longest = kept.Allocate(kBytes, 256);
  EXPECT_EQ(longest, blocks[0]);
  for (std::byte* block : {own, longest}) Release(kept, block, b.number());
}

// The source refuses: of those that are larger the queue's own is before one that a copy uses, and that before a
// stranger's, however much larger it is.
TEST_F(KeptBlocksOfModel, WhereTheSourceRefusesAQueuesOwnIsBeforeAStrangers) {
  KeptBlocks kept(device_, device_, 256, /*most_bytes=*/1 << 20);
  const DeviceQueue a = DeviceQueue::New(kDevice), b = DeviceQueue::New(kDevice);
  constexpr size_t kStrangers = 13'000, kCopied = 15'000, kOwn = 17'000;
  std::byte* const strangers = kept.Allocate(kStrangers, 256);
  std::byte* const copied = kept.Allocate(kCopied, 256);
  std::byte* const own = kept.Allocate(kOwn, 256);
  const QueuePoint copy = device_.QueueCopy();
  kept.NoteCopy(copied, copy);
  Release(kept, strangers, a.number(), kStrangers);
  Release(kept, copied, b.number(), kCopied);
  device_.Advance(b.number(), 1);
  Release(kept, own, b.number(), kOwn);
  device_.most_blocks = 3;
  const QueueScope scope(b);
  EXPECT_EQ(kept.Allocate(kBytes, 256), own);
  EXPECT_EQ(kept.stats().orders, 0);
  EXPECT_EQ(kept.Allocate(kBytes, 256), copied);
  EXPECT_EQ(kept.Allocate(kBytes, 256), strangers);
  EXPECT_EQ(device_.waits, 0);
  for (std::byte* block : {strangers, copied, own}) Release(kept, block, b.number());
  device_.FinishCopy(copy);
}

// Two threads release blocks of one queue: the one that has the earlier point keeps its block
// later. What it was used for has passed, what comes behind has not.
TEST_F(KeptBlocksOfModel, ABlockIsNotBehindALaterOneOfItsQueue) {
  KeptBlocks kept(device_, device_, 256, /*most_bytes=*/0);
  std::byte* const first = kept.Allocate(kBytes, 256);
  std::byte* const second = kept.Allocate(kBytes, 256);
  std::atomic<bool> has_point{false}, is_kept{false};
  device_.at_point = [&](int) {
    if (has_point.exchange(true)) return;
    // It keeps its block within that if it may.
    for (int i = 0; i < 200 && !is_kept; ++i) std::this_thread::yield();
  };
  std::thread thread([&] {
    while (!has_point) std::this_thread::yield();
    Release(kept, second, 0);
    is_kept = true;
  });
  Release(kept, first, 0);
  thread.join();
  device_.at_point = nullptr;
  device_.Advance(0, 1);
  kept.TrimUnused();
  EXPECT_EQ(kept.stats().kept_blocks, 1u);
}

}  // namespace
}  // namespace tidepool
