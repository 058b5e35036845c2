#include "tidepool/memory/provider/small_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/memory/provider/host_provider.h"
#include "tidepool/memory/testing/allocation_counter.h"

namespace tidepool {
namespace {

void* TakeAligned(size_t alignment, size_t bytes) {
  void* memory = nullptr;
  return posix_memalign(&memory, alignment, bytes) == 0 ? memory : nullptr;
}
void Free(void* memory) { std::free(memory); }

struct Held {
  std::byte* data;
  size_t bytes;
  unsigned char fill;
};

bool HoldsItsBytes(const Held& held) {
  for (size_t i = 0; i < held.bytes; ++i) {
    if (held.data[i] != static_cast<std::byte>(held.fill)) return false;
  }
  return true;
}

// Random requests and releases against a map of what is held.
TEST(SmallBlocksTest, BlocksAreApartAlignedAndKeepTheirBytes) {
  SmallBlocks blocks(&TakeAligned, &Free);
  constexpr uint64_t kSeed = 11;
  std::mt19937_64 random(kSeed);
  std::map<std::byte*, Held> held;
  for (int i = 0; i < 200000; ++i) {
    // Phases of growing and of shrinking.
    const bool grows = i / 20000 % 2 == 0;
    if (held.empty() || random() % 100 < (grows ? 60 : 40)) {
      const size_t bytes = random() % (SmallBlocks::kMostBytes + 1);
      std::byte* const data = blocks.Allocate(bytes);
      ASSERT_NE(data, nullptr);
      ASSERT_EQ(reinterpret_cast<uintptr_t>(data) % SmallBlocks::kAlignment, 0u);
      const auto after = held.lower_bound(data);
      if (after != held.end()) {
        ASSERT_LE(data + std::max<size_t>(bytes, 1), after->first);
      }
      if (after != held.begin()) {
        const Held& before = std::prev(after)->second;
        ASSERT_LE(before.data + std::max<size_t>(before.bytes, 1), data);
      }
      const auto fill = static_cast<unsigned char>(random());
      std::memset(data, fill, bytes);
      unsigned char tail[kReadableTailBytes];
      std::memcpy(tail, data + bytes, sizeof(tail));  // may be read, whatever is there
      held[data] = {data, bytes, fill};
    } else {
      auto at = held.lower_bound(held.begin()->first + random() % 100000);
      if (at == held.end()) at = held.begin();
      ASSERT_TRUE(HoldsItsBytes(at->second));
      blocks.Release(at->second.data, at->second.bytes);
      held.erase(at);
    }
  }
  for (const auto& [data, block] : held) {
    ASSERT_TRUE(HoldsItsBytes(block));
    blocks.Release(data, block.bytes);
  }
  EXPECT_LE(blocks.spans(), 8);  // one of each size
  blocks.Trim();
  EXPECT_EQ(blocks.spans(), 0);
}

TEST(SmallBlocksTest, ASpanHoldsHundredsAndGoesWhenItIsEmpty) {
  SmallBlocks blocks(&TakeAligned, &Free);
  EXPECT_EQ(blocks.spans(), 0);
  std::vector<std::byte*> data;
  for (int i = 0; i < 10000; ++i) data.push_back(blocks.Allocate(64));
  EXPECT_LE(blocks.spans() * static_cast<int64_t>(SmallBlocks::kSpanBytes), 10000 * 64 * 105 / 100);
  // The first of each span is left.
  std::mt19937_64 random(5);
  std::shuffle(data.begin() + 1, data.end(), random);
  while (data.size() > 1) {
    blocks.Release(data.back(), 64);
    data.pop_back();
  }
  EXPECT_LE(blocks.spans(), 2);
  blocks.Release(data[0], 64);
  EXPECT_EQ(blocks.spans(), 1);
  // Taking and giving at the edge of a span asks malloc for nothing.
  for (int i = 0; i < 1000; ++i) blocks.Release(blocks.Allocate(64), 64);
  EXPECT_EQ(blocks.spans(), 1);
  // What is in use stays.
  std::byte* const used = blocks.Allocate(64);
  blocks.Trim();
  EXPECT_EQ(blocks.spans(), 1);
  blocks.Release(used, 64);
  blocks.Trim();
  EXPECT_EQ(blocks.spans(), 0);
}

TEST(SmallBlocksTest, ARefusedSpanIsNullAndLeavesTheRestUsable) {
  static bool refuse;
  refuse = true;
  SmallBlocks blocks([](size_t alignment,
                        size_t bytes) { return refuse ? nullptr : TakeAligned(alignment, bytes); },
                     &Free);
  EXPECT_EQ(blocks.Allocate(100), nullptr);
  EXPECT_EQ(blocks.spans(), 0);
  refuse = false;
  std::vector<std::byte*> data = {blocks.Allocate(100)};
  ASSERT_NE(data[0], nullptr);
  refuse = true;
  while (std::byte* more = blocks.Allocate(100)) data.push_back(more);
  EXPECT_EQ(blocks.spans(), 1);
  EXPECT_GT(data.size(), 100u);
  blocks.Release(data.back(), 100);
  EXPECT_EQ(blocks.Allocate(100), data.back());
  for (std::byte* block : data) blocks.Release(block, 100);
  blocks.Trim();
  EXPECT_EQ(blocks.spans(), 0);
}

TEST(SmallBlocksTest, ThreadsFreeWhatOthersMade) {
  SmallBlocks blocks(&TakeAligned, &Free);
  std::mutex mutex;
  std::vector<Held> shared;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      for (int i = 0; i < 20000; ++i) {
        const size_t bytes = random() % 300;
        const Held made{blocks.Allocate(bytes), bytes, static_cast<unsigned char>(random())};
        ASSERT_NE(made.data, nullptr);
        std::memset(made.data, made.fill, bytes);
        Held taken{};
        {
          std::lock_guard<std::mutex> lock(mutex);
          shared.push_back(made);
          if (shared.size() > 500) {
            std::swap(shared[random() % shared.size()], shared.back());
            taken = shared.back();
            shared.pop_back();
          }
        }
        if (taken.data == nullptr) continue;
        ASSERT_TRUE(HoldsItsBytes(taken));
        blocks.Release(taken.data, taken.bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Held& held : shared) {
    EXPECT_TRUE(HoldsItsBytes(held));
    blocks.Release(held.data, held.bytes);
  }
  EXPECT_LE(blocks.spans(), 5);
  blocks.Trim();
  EXPECT_EQ(blocks.spans(), 0);
}

// The provider tells them apart from small blocks of larger alignment.
TEST(SmallBlocksTest, TheHostProviderKeepsEveryAlignment) {
  std::mt19937_64 random(3);
  std::vector<Held> held;
  for (int i = 0; i < 20000; ++i) {
    if (held.size() < 300 || random() % 2 == 0) {
      const size_t bytes = random() % 2000, alignment = size_t{16} << (random() % 9);
      const Held made{HostProvider().Allocate(bytes, alignment), bytes,
                      static_cast<unsigned char>(random())};
      ASSERT_NE(made.data, nullptr);
      ASSERT_EQ(reinterpret_cast<uintptr_t>(made.data) % alignment, 0u) << bytes;
      std::memset(made.data, made.fill, bytes);
      held.push_back(made);
    } else {
      std::swap(held[random() % held.size()], held.back());
      ASSERT_TRUE(HoldsItsBytes(held.back()));
      HostProvider().Release(held.back().data, held.back().bytes);
      held.pop_back();
    }
  }
  for (const Held& block : held) HostProvider().Release(block.data, block.bytes);
}

// A release is the last thing that may need memory: not even the first one of a process does.
TEST(SmallBlocksDeathTest, ReleasesNeedNoMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto releases = [] {
    int64_t allocations = 0;
    for (const size_t alignment : {64, 256, 4096}) {
      for (const size_t bytes : {0, 64, 512}) {
        std::byte* const data = HostProvider().Allocate(bytes, alignment);
        const DeviceProvider::Block many[] = {{HostProvider().Allocate(bytes, 64), bytes},
                                              {HostProvider().Allocate(bytes, alignment), bytes}};
        const int64_t before = AllocationCount();
        HostProvider().Release(data, bytes);
        HostProvider().ReleaseMany(many, 2);
        allocations += AllocationCount() - before;
      }
    }
    std::fprintf(stderr, "%d allocations\n", static_cast<int>(allocations));
    std::_Exit(0);
  };
  EXPECT_EXIT(releases(), testing::ExitedWithCode(0), "^0 allocations");
}

}  // namespace
}  // namespace tidepool
