#include "tidepool/memory/resource/pool.h"

#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/simulated_device.h"

namespace tidepool {
namespace {

TEST(Pool, ReusesReleasedMemoryWithoutAskingTheSystem) {
  Pool pool(1 << 20, 64);
  pool.Release(pool.Allocate(1000));
  const int64_t before = MemoryTracker::Global().system_allocations();
  for (int i = 0; i < 1000; ++i) pool.Release(pool.Allocate(1 + i * 700));
  EXPECT_EQ(MemoryTracker::Global().system_allocations(), before);
  EXPECT_EQ(pool.used_bytes(), 0);
}

TEST(Pool, NeighboursMergeIntoTheWholeChunk) {
  Pool pool(1 << 20, 64);
  std::vector<Pool::Block*> blocks;
  for (int i = 0; i < 16; ++i) blocks.push_back(pool.Allocate(60000));
  const size_t owned = pool.owned_bytes();
  for (int i = 0; i < 16; i += 2) pool.Release(blocks[i]);
  for (int i = 1; i < 16; i += 2) pool.Release(blocks[i]);
  Pool::Block* whole = pool.Allocate((1 << 20) - 64);
  EXPECT_EQ(pool.owned_bytes(), owned);
  pool.Release(whole);
}

TEST(Pool, TrimGivesEmptyChunksBackAndKeepsOthers) {
  Pool pool(1 << 20, 64);
  Pool::Block* small = pool.Allocate(100);
  Pool::Block* large = pool.Allocate(8 << 20);
  pool.Release(large);
  pool.Trim();
  EXPECT_LE(pool.owned_bytes(), size_t{4} << 20);
  std::memset(small->data, 1, 100);
  pool.Release(small);
  pool.Trim();
  EXPECT_EQ(pool.owned_bytes(), 0);
  pool.Release(pool.Allocate(100));  // still usable
}

TEST(Pool, AChunkThatIsRefusedIsTakenAsLargeAsTheRequest) {
  SimulatedDevice& device = SimulatedDevice::Get();
  device.Reset();
  device.set_capacity(256 << 10);
  {
    Pool pool(1 << 20, SimulatedDevice::kAlignment, {}, device);
    Pool::Block* block = pool.Allocate(1000);
    EXPECT_LE(device.used_bytes(), size_t{128} << 10);
    EXPECT_THROW(pool.Allocate(512 << 10), OutOfMemoryError);
    pool.Release(block);
    pool.Release(pool.Allocate(1000));
  }
  device.Reset();
}

TEST(Pool, ImpossibleSizesAreRefusedAndLeaveThePoolUsable) {
  Pool pool(1 << 16, 64);
  EXPECT_THROW(pool.Allocate(SIZE_MAX), OutOfMemoryError);
  EXPECT_THROW(pool.Allocate(size_t{1} << 58), OutOfMemoryError);
  EXPECT_EQ(pool.used_bytes(), 0);
  pool.Release(pool.Allocate(1));
}

TEST(Pool, BadAlignmentIsAnError) {
  EXPECT_THROW(Pool(4096, 8), Error);
  EXPECT_THROW(Pool(4096, 48), Error);
}

// Random operations against a model: no two live blocks overlap, alignment holds, contents stay.
TEST(Pool, RandomOperationsAgreeWithAModel) {
  const uint32_t seed = 20260101;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (size_t alignment : {16, 64, 4096}) {
    Pool pool(1 << 18, alignment);
    std::vector<std::pair<Pool::Block*, uint8_t>> live;
    std::map<std::byte*, std::byte*> ranges;  // begin -> end
    size_t used = 0;
    for (int step = 0; step < 30000; ++step) {
      if (live.empty() || random() % 100 < 52) {
        const size_t bytes = random() % 8 == 0 ? random() % 300000 : random() % 3000;
        Pool::Block* block = pool.Allocate(bytes);
        ASSERT_GE(block->bytes, bytes);
        ASSERT_EQ(reinterpret_cast<uintptr_t>(block->data) % alignment, 0);
        auto next = ranges.lower_bound(block->data);
        if (next != ranges.end()) {
          ASSERT_LE(block->data + block->bytes, next->first);
        }
        if (next != ranges.begin()) {
          ASSERT_LE(std::prev(next)->second, block->data);
        }
        ranges[block->data] = block->data + block->bytes;
        used += block->bytes;
        live.emplace_back(block, static_cast<uint8_t>(random()));
        std::memset(block->data, live.back().second, block->bytes);
      } else {
        std::swap(live[random() % live.size()], live.back());
        auto [block, value] = live.back();
        live.pop_back();
        for (size_t i = 0; i < block->bytes; i += 97) {
          ASSERT_EQ(static_cast<uint8_t>(block->data[i]), value);
        }
        used -= block->bytes;
        ranges.erase(block->data);
        pool.Release(block);
      }
      ASSERT_EQ(pool.used_bytes(), used);
      ASSERT_EQ(pool.block_count(), live.size());
      if (step % 5000 == 4999) pool.Trim();
    }
  }
}

}  // namespace
}  // namespace tidepool
