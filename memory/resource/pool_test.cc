#include "tidepool/memory/resource/pool.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/resource/fit_tree.h"
#include "tidepool/memory/resource/pages_resource.h"
#include "tidepool/memory/resource/testing/address_resource.h"
#include "tidepool/memory/testing/simulated_device.h"

namespace tidepool {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

PagesOptions Untouched() {
  PagesOptions options;
  options.prefault = false;
  return options;
}

struct HostPool {
  explicit HostPool(size_t chunk_bytes, size_t alignment = 64)
      : pool(pages, chunk_bytes, alignment) {}
  PagesResource pages{Untouched()};
  Pool pool;
};

void AllocateAndRelease(MemoryResource& resource, size_t bytes) {
  const Allocation block = resource.Allocate(bytes, 16);
  ASSERT_TRUE(block) << bytes;
  resource.Release(block.token, bytes, 16);
}

TEST(Pool, ReusesReleasedMemoryWithoutAskingTheSystem) {
  HostPool host(kMiB);
  AllocateAndRelease(host.pool, 1000);
  const int64_t before = MemoryTracker::Global().system_allocations();
  for (int i = 0; i < 1000; ++i) AllocateAndRelease(host.pool, 1 + i * 700);
  EXPECT_EQ(MemoryTracker::Global().system_allocations(), before);
  EXPECT_EQ(host.pool.used_bytes(), 0);
}

// From 1 byte to hundreds of MiB: a size that was released is there for the next request of it.
void EverySizeIsReused(MemoryResource& upstream) {
  for (const size_t chunk_bytes : {64 * size_t{1024}, kMiB, 16 * kMiB}) {
    for (size_t bytes = 1; bytes < 600 * kMiB; bytes += 1 + bytes / 9) {
      Pool pool(upstream, chunk_bytes, 256);
      AllocateAndRelease(pool, bytes);
      const size_t owned = pool.owned_bytes();
      for (int i = 0; i < 3; ++i) AllocateAndRelease(pool, bytes);
      ASSERT_EQ(pool.owned_bytes(), owned) << bytes << " bytes in chunks of " << chunk_bytes;
      ASSERT_LE(owned, std::max(bytes, chunk_bytes) + 64 * 1024 + 64);
    }
  }
}
TEST(Pool, EverySizeIsReusedOnTheHost) {
  PagesResource pages(Untouched());
  EverySizeIsReused(pages);
}
TEST(Pool, EverySizeIsReusedOnADevice) {
  SimulatedDevice& device = SimulatedDevice::Get();
  device.Reset();
  device.set_capacity(size_t{1} << 40);
  {
    PagesResource pages(Untouched(), device);
    EverySizeIsReused(pages);
  }
  EXPECT_EQ(device.used_bytes(), 0);
  device.Reset();
}

// Also where the hole lies between neighbours that stay.
TEST(Pool, AHoleServesItsOwnSizeAgain) {
  for (size_t bytes = 64; bytes <= 300000; bytes += 64 * (1 + bytes / 640)) {
    AddressResource addresses;
    Pool pool(addresses, kMiB, 64);
    std::vector<Allocation> blocks;
    const size_t count = 2 * kMiB / bytes + 3;
    for (size_t i = 0; i < count; ++i) blocks.push_back(pool.Allocate(bytes, 64));
    const size_t owned = pool.owned_bytes();
    for (size_t i = 0; i < count; i += 3) {
      pool.Release(blocks[i].token, bytes, 64);
      blocks[i] = pool.Allocate(bytes, 64);
      ASSERT_EQ(pool.owned_bytes(), owned) << bytes;
    }
    for (const Allocation& block : blocks) pool.Release(block.token, bytes, 64);
  }
}

TEST(Pool, NeighboursMergeIntoTheWholeChunk) {
  HostPool host(kMiB);
  std::vector<Allocation> blocks;
  for (int i = 0; i < 16; ++i) blocks.push_back(host.pool.Allocate(60000, 64));
  const size_t owned = host.pool.owned_bytes();
  for (int i = 0; i < 16; i += 2) host.pool.Release(blocks[i].token, 60000, 64);
  for (int i = 1; i < 16; i += 2) host.pool.Release(blocks[i].token, 60000, 64);
  AllocateAndRelease(host.pool, kMiB - 64);
  EXPECT_EQ(host.pool.owned_bytes(), owned);
}

TEST(Pool, TrimGivesEmptyChunksBackAndKeepsOthers) {
  HostPool host(kMiB);
  Pool& pool = host.pool;
  const Allocation small = pool.Allocate(100, 64);
  AllocateAndRelease(pool, 8 * kMiB);
  EXPECT_GE(pool.Trim(), 8 * kMiB);
  EXPECT_LE(pool.owned_bytes(), 2 * kMiB);
  std::memset(small.data, 1, 100);
  pool.Release(small.token, 100, 64);
  pool.Trim();
  EXPECT_EQ(pool.owned_bytes(), 0);
  AllocateAndRelease(pool, 100);  // still usable
}

// What the last uses did not touch goes, also while they take other blocks.
TEST(Pool, TrimIdleGivesBackWhatTheLastUsesDidNotTouch) {
  AddressResource addresses;
  Pool pool(addresses, kMiB, 64);
  AllocateAndRelease(pool, 97 * kMiB);
  EXPECT_EQ(pool.TrimIdle(2), 0);
  for (int use = 0; use < 2; ++use) {
    AllocateAndRelease(pool, 100);
    const size_t bytes = pool.TrimIdle(2);
    EXPECT_EQ(bytes > 0, use == 1) << use;
  }
  EXPECT_LE(pool.owned_bytes(), kMiB + 4096);
  // A block that lives through a use is in use.
  const Allocation kept = pool.Allocate(50 * kMiB, 64);
  for (int use = 0; use < 5; ++use) pool.TrimIdle(1);
  EXPECT_GE(pool.owned_bytes(), 50 * kMiB);
  pool.Release(kept.token, 50 * kMiB, 64);
  EXPECT_EQ(pool.TrimIdle(1), 0);
  EXPECT_GE(pool.TrimIdle(1), 50 * kMiB);
  EXPECT_EQ(pool.owned_bytes(), 0);
}

TEST(Pool, ChunksThatAreTooSmallGoBeforeALargerOneComes) {
  AddressResource addresses;
  Pool pool(addresses, kMiB, 64);
  for (size_t size = 2; size <= 200; ++size) {
    AllocateAndRelease(pool, size * kMiB);
    ASSERT_LE(pool.owned_bytes(), size * kMiB * 11 / 10 + kMiB + 4096);
  }
}

// A small block that lives long does not hold the chunk of a large one.
TEST(Pool, SmallBlocksKeepOutOfLargeChunks) {
  AddressResource addresses;
  Pool pool(addresses, kMiB, 64);
  AllocateAndRelease(pool, 97 * kMiB);
  const Allocation small = pool.Allocate(100, 64);
  const Allocation large = pool.Allocate(97 * kMiB, 64);
  EXPECT_LE(pool.owned_bytes(), 98 * kMiB + 8192);
  pool.Release(large.token, 97 * kMiB, 64);
  EXPECT_GE(pool.Trim(), 97 * kMiB);
  pool.Release(small.token, 100, 64);
}

TEST(Pool, AChunkThatIsRefusedIsTakenAsLargeAsTheRequest) {
  SimulatedDevice& device = SimulatedDevice::Get();
  device.Reset();
  device.set_capacity(256 << 10);
  {
    PagesResource pages(Untouched(), device);
    Pool pool(pages, kMiB, SimulatedDevice::kAlignment);
    const Allocation block = pool.Allocate(1000, 64);
    EXPECT_LE(device.used_bytes(), size_t{128} << 10);
    const Allocation refused = pool.Allocate(512 << 10, 64);
    EXPECT_EQ(refused.refusal, Refusal::kExhausted);
    EXPECT_THROW(AllocateOrThrow(pool, 512 << 10, 64), OutOfMemoryError);
    pool.Release(block.token, 1000, 64);
    AllocateAndRelease(pool, 1000);
  }
  device.Reset();
}

TEST(Pool, ImpossibleSizesAreRefusedAndLeaveThePoolUsable) {
  HostPool host(1 << 16);
  for (const size_t bytes : {SIZE_MAX, SIZE_MAX - 5, size_t{1} << 58}) {
    EXPECT_EQ(host.pool.Allocate(bytes, 64).refusal, Refusal::kImpossible);
  }
  EXPECT_EQ(host.pool.Allocate(1, 128).refusal, Refusal::kImpossible);
  EXPECT_EQ(host.pool.used_bytes(), 0);
  AllocateAndRelease(host.pool, 1);
}

TEST(Pool, BadAlignmentIsAnError) {
  AddressResource addresses;
  EXPECT_THROW(Pool(addresses, 4096, 0), Error);
  EXPECT_THROW(Pool(addresses, 4096, 8), Error);
  EXPECT_THROW(Pool(addresses, 4096, 48), Error);
}

// Random operations against a model: no two live blocks overlap, alignment holds, contents stay.
TEST(Pool, RandomOperationsAgreeWithAModel) {
  const uint32_t seed = 20260101;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  struct Live {
    Allocation block;
    size_t bytes;
    uint8_t value;
  };
  for (size_t alignment : {16, 64, 4096}) {
    HostPool host(1 << 18, alignment);
    Pool& pool = host.pool;
    std::vector<Live> live;
    std::map<std::byte*, std::byte*> ranges;  // begin -> end
    size_t used = 0;
    for (int step = 0; step < 30000; ++step) {
      if (live.empty() || random() % 100 < 52) {
        const size_t bytes = random() % 8 == 0 ? random() % 600000 : random() % 3000;
        const Allocation block = pool.Allocate(bytes, 16);
        const size_t rounded = pool.FootprintBytes(bytes, 16);
        ASSERT_EQ(reinterpret_cast<uintptr_t>(block.data) % alignment, 0);
        auto next = ranges.lower_bound(block.data);
        if (next != ranges.end()) {
          ASSERT_LE(block.data + rounded, next->first);
        }
        if (next != ranges.begin()) {
          ASSERT_LE(std::prev(next)->second, block.data);
        }
        ranges[block.data] = block.data + rounded;
        used += rounded;
        live.push_back({block, bytes, static_cast<uint8_t>(random())});
        std::memset(block.data, live.back().value, bytes);
      } else {
        std::swap(live[random() % live.size()], live.back());
        const auto [block, bytes, value] = live.back();
        live.pop_back();
        for (size_t i = 0; i < bytes; i += 97) {
          ASSERT_EQ(static_cast<uint8_t>(block.data[i]), value);
        }
        used -= pool.FootprintBytes(bytes, 16);
        ranges.erase(block.data);
        pool.Release(block.token, bytes, 16);
      }
      ASSERT_EQ(pool.used_bytes(), used);
      ASSERT_EQ(pool.block_count(), live.size());
      if (step % 5000 == 4999) pool.Trim();
      if (step % 700 == 699) pool.TrimIdle(1 + random() % 3);
    }
    for (const Live& block : live) pool.Release(block.block.token, block.bytes, 16);
  }
}

// ---- footprint ------------------------------------------------------------------------------

struct Mix {
  const char* name;
  size_t chunk_bytes;
  size_t least, most;  // of a request, drawn so that each power of two is as likely
  double bound;  // of what is owned beyond two chunks, as a multiple of the most that was live
};

class PoolFootprint : public testing::TestWithParam<Mix> {};

// What is owned, against the most bytes that were live at once, in mixes whose level swings.
TEST_P(PoolFootprint, StaysWithinAFactorOfWhatWasLive) {
  const Mix mix = GetParam();
  double worst = 0;
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<double> power(std::log2(mix.least), std::log2(mix.most));
    AddressResource addresses;
    Pool pool(addresses, mix.chunk_bytes, 64);
    std::vector<std::pair<void*, size_t>> live;
    size_t live_bytes = 0, peak = 0;
    for (int step = 0; step < 20000; ++step) {
      const bool growing = step / 500 % 2 == 0;
      if (live.empty() || random() % 100 < (growing ? 60 : 40)) {
        const auto bytes = static_cast<size_t>(std::exp2(power(random)));
        live.emplace_back(pool.Allocate(bytes, 64).token, bytes);
        ASSERT_NE(live.back().first, nullptr);
        peak = std::max(peak, live_bytes += bytes);
      } else {
        std::swap(live[random() % live.size()], live.back());
        live_bytes -= live.back().second;
        pool.Release(live.back().first, live.back().second, 64);
        live.pop_back();
      }
      const double owned = static_cast<double>(pool.owned_bytes()) - 2.0 * mix.chunk_bytes;
      worst = std::max(worst, owned / static_cast<double>(peak));
      ASSERT_LE(owned, mix.bound * static_cast<double>(peak))
          << "seed " << seed << ", step " << step;
      ASSERT_EQ(pool.owned_bytes(), addresses.taken_bytes());
    }
    for (const auto& [token, bytes] : live) pool.Release(token, bytes, 64);
    // All of it is free, and after a use without it gone.
    pool.TrimIdle(1);
    pool.TrimIdle(1);
    ASSERT_EQ(pool.owned_bytes(), 0);
  }
  RecordProperty("worst", std::to_string(worst));
  std::printf("%s: owned at most %.3f times the most that was live\n", mix.name, worst);
}

INSTANTIATE_TEST_SUITE_P(Mixes, PoolFootprint,
                         testing::Values(Mix{"small", 64 << 10, 1, 4096, 1.25},
                                         Mix{"medium", kMiB, 1024, kMiB, 1.25},
                                         Mix{"large", kMiB, kMiB, 300 * kMiB, 1.1},
                                         Mix{"all", kMiB, 1, 300 * kMiB, 1.1}),
                         [](const testing::TestParamInfo<Mix>& info) { return info.param.name; });

// A cycle that repeats asks for nothing in the end, at the cost of twice what is live in it.
TEST(PoolFootprint, ARepeatedCycleSettles) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    AddressResource addresses;
    Pool pool(addresses, kMiB, 64);
    size_t requests = 0, live_bytes = 0, peak = 0;
    for (int cycle = 0; cycle < 10; ++cycle) {
      std::mt19937_64 random(seed);
      std::vector<std::pair<void*, size_t>> live;
      requests = addresses.requests();
      for (int step = 0; step < 300; ++step) {
        if (live.size() < 3 || (live.size() < 40 && random() % 2 == 0)) {
          const size_t bytes = size_t{1} << (6 + random() % 22);
          live.emplace_back(pool.Allocate(bytes, 64).token, bytes);
          peak = std::max(peak, live_bytes += bytes);
        } else {
          std::swap(live[random() % live.size()], live.back());
          live_bytes -= live.back().second;
          pool.Release(live.back().first, live.back().second, 64);
          live.pop_back();
        }
        const size_t bound = cycle < 2 ? peak + peak / 10 : 2 * peak;
        ASSERT_LE(pool.owned_bytes(), bound + 2 * kMiB) << "seed " << seed << ", cycle " << cycle;
      }
      for (const auto& [token, bytes] : live) {
        pool.Release(token, bytes, 64);
        live_bytes -= bytes;
      }
      pool.TrimIdle(1);
    }
    EXPECT_EQ(addresses.requests(), requests) << "seed " << seed;
  }
}

// ---- the tree -------------------------------------------------------------------------------

TEST(FitTree, FindsTheSmallestThatIsLargeEnough) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 40; ++round) {
    FitTree tree;
    std::multiset<size_t> model;
    std::vector<std::unique_ptr<FitNode>> nodes;
    const uint64_t spread = round % 4 == 0 ? 20 : uint64_t{1} << (6 + round);
    const auto size = [&] { return 1 + random() % spread; };
    for (int step = 0; step < 2000; ++step) {
      if (nodes.empty() || random() % 5 < 3) {
        nodes.push_back(std::make_unique<FitNode>());
        nodes.back()->size = size();
        model.insert(nodes.back()->size);
        tree.Insert(nodes.back().get());
      } else {
        std::swap(nodes[random() % nodes.size()], nodes.back());
        model.erase(model.find(nodes.back()->size));
        tree.Remove(nodes.back().get());
        nodes.pop_back();
      }
      const size_t wanted = size();
      const auto expected = model.lower_bound(wanted);
      const FitNode* const found = tree.BestFit(wanted);
      ASSERT_EQ(found == nullptr, expected == model.end());
      if (found != nullptr) {
        ASSERT_EQ(found->size, *expected);
      }
    }
  }
}

}  // namespace
}  // namespace tidepool
