#include "tidepool/memory/provider/block_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

namespace tidepool {
namespace {

constexpr int64_t kBlocksInSpan = 240;  // of 64 bytes: a little more

std::vector<std::byte*> Take(int count, size_t bytes) {
  std::vector<std::byte*> blocks;
  for (int i = 0; i < count; ++i) {
    blocks.push_back(AllocateSmallBlock(bytes));
    EXPECT_NE(blocks.back(), nullptr);
    std::memset(blocks.back(), i, bytes);
  }
  return blocks;
}

void Release(const std::vector<std::byte*>& blocks, size_t bytes) {
  for (std::byte* block : blocks) ReleaseSmallBlock(block, bytes);
}

// A thread that has ended keeps nothing, whether it took, freed, or both.
TEST(BlockCacheTest, AThreadThatEndsGivesBackWhatItKept) {
  Release(Take(1, 64), 64);
  const int64_t before = SmallBlockSpans();
  for (int round = 0; round < 50; ++round) {
    std::vector<std::byte*> blocks;
    std::thread([&] { blocks = Take(1000, 64); }).join();
    EXPECT_EQ(std::set<std::byte*>(blocks.begin(), blocks.end()).size(), blocks.size());
    EXPECT_GE(SmallBlockSpans(), before + 1000 / kBlocksInSpan - 1);
    std::thread([&] { Release(blocks, 64); }).join();
    ASSERT_LE(SmallBlockSpans(), before + 1);
  }
}

// What thread-local objects release after the cache has been emptied is not kept.
TEST(BlockCacheTest, ThreadLocalObjectsMayReleaseAfterIt) {
  struct Holder {
    std::vector<std::byte*> blocks;
    ~Holder() {
      Release(blocks, 64);
      Release(Take(40, 64), 64);
    }
  };
  Release(Take(1, 64), 64);
  const int64_t before = SmallBlockSpans();
  for (int round = 0; round < 20; ++round) {
    std::thread([] {
      thread_local Holder holder;  // made before the cache's own, so it goes after it
      holder.blocks.clear();
      holder.blocks = Take(1000, 64);
    }).join();
    ASSERT_LE(SmallBlockSpans(), before + 1);
  }
}

TEST(BlockCacheTest, AThreadKeepsFewBlocks) {
  Release(Take(1, 500), 500);
  const int64_t before = SmallBlockSpans();
  std::vector<std::byte*> blocks = Take(10000, 500);
  std::mt19937_64 random(9);
  std::shuffle(blocks.begin(), blocks.end(), random);
  Release(blocks, 500);
  EXPECT_LE(SmallBlockSpans(), before + 32);
  blocks = Take(100, 500);
  EXPECT_EQ(std::set<std::byte*>(blocks.begin(), blocks.end()).size(), blocks.size());
  // Together, past the thread's own.
  ReleaseSmallBlocks(500, blocks.data(), sizeof(std::byte*), 100);
  EXPECT_LE(SmallBlockSpans(), before + 32);
}

// Blocks wander between threads; each holds what was written until it is released, once or many at once.
TEST(BlockCacheTest, BlocksKeepTheirBytesOnTheirWayThroughThreads) {
  struct Block {
    std::byte* data;
    size_t bytes;
    uint64_t fill;
  };
  std::mutex mutex;
  std::vector<Block> shared;
  const auto check = [](const Block& block) {
    uint64_t fill;
    std::memcpy(&fill, block.data, sizeof(fill));
    ASSERT_EQ(fill, block.fill);
    std::memcpy(&fill, block.data + block.bytes - sizeof(fill), sizeof(fill));
    ASSERT_EQ(fill, block.fill);
  };
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      for (int i = 0; i < 20000; ++i) {
        const size_t bytes = 16 + random() % (SmallBlocks::kMostBytes - 16);
        const Block made{AllocateSmallBlock(bytes), bytes, random()};
        ASSERT_NE(made.data, nullptr);
        std::memcpy(made.data, &made.fill, sizeof(made.fill));
        std::memcpy(made.data + bytes - sizeof(made.fill), &made.fill, sizeof(made.fill));
        std::vector<Block> taken;
        {
          std::lock_guard<std::mutex> lock(mutex);
          shared.push_back(made);
          if (shared.size() > 2000) {
            std::shuffle(shared.end() - 300, shared.end(), random);
            taken.assign(shared.end() - 100, shared.end());
            shared.resize(shared.size() - 100);
          }
        }
        for (const Block& block : taken) check(block);
        // Those of one size with the first go together.
        std::vector<Block> same;
        for (const Block& block : taken) {
          if (SmallBlocks::ClassOf(block.bytes) == SmallBlocks::ClassOf(taken[0].bytes)) {
            same.push_back(block);
          } else {
            ReleaseSmallBlock(block.data, block.bytes);
          }
        }
        if (same.empty()) continue;
        ReleaseSmallBlocks(same[0].bytes, &same[0].data, sizeof(Block),
                           static_cast<int>(same.size()));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Block& block : shared) {
    check(block);
    ReleaseSmallBlock(block.data, block.bytes);
  }
}

}  // namespace
}  // namespace tidepool
