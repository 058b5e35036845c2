#include "tidepool/memory/resource/pool.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
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
#include "tidepool/memory/resource/first_fit.h"
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

TEST(Pool, ChunksThatAreTooSmallOrTooLargeAreAnError) {
  AddressResource addresses;
  for (const size_t chunk_bytes : {size_t{0}, size_t{4095}, (size_t{1} << 46) + 1, SIZE_MAX}) {
    const absl::Status status = CatchStatus([&] { Pool(addresses, chunk_bytes, 64); });
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << chunk_bytes;
    EXPECT_EQ(status.message(), "Pool: chunks of " + std::to_string(chunk_bytes) +
                                    " bytes, expected 4096 to 70368744177664");
  }
  Pool pool(addresses, 4097, 64);  // rounded up
  AllocateAndRelease(pool, 4160);
  EXPECT_EQ(addresses.requests(), 1);
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

// ---- its trees ------------------------------------------------------------------------------

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
      ASSERT_EQ(tree.Largest(), model.empty() ? 0 : *model.rbegin());
      if (found != nullptr) {
        ASSERT_EQ(found->size, *expected);
      }
    }
  }
}

TEST(FirstFit, FindsTheFirstThatHasSoMuch) {
  std::mt19937_64 random(6);
  FirstFit places;
  EXPECT_FALSE(places.Has(1));
  std::vector<size_t> model;
  for (int step = 0; step < 5000; ++step) {
    if (model.empty() || (model.size() < 70 && random() % 50 == 0)) {
      model.push_back(0);
      places.Reserve(model.size());
    }
    const size_t at = random() % model.size();
    places.Set(at, model[at] = random() % 100);
    ASSERT_EQ(places[at], model[at]);
    const size_t least = 1 + random() % 100;
    const auto first =
        std::find_if(model.begin(), model.end(), [&](size_t has) { return has >= least; });
    ASSERT_EQ(places.Has(least), first != model.end());
    if (first != model.end()) {
      ASSERT_EQ(places.First(least), first - model.begin());
    }
  }
}

// Blocks of both kinds of a pool that grows lie where their alignment says, never in each other, and
// a chunk that is idle serves either kind.
TEST(PoolTest, CoarseAndFineBlocksOfAGrowingPoolNeverOverlap) {
  constexpr size_t kCoarse = size_t{1} << 16;
  AddressResource addresses;
  Pool pool(addresses, size_t{1} << 18, 64, {.grows = true, .coarse_alignment = kCoarse});
  std::mt19937 random(5);
  struct Out {
    Allocation block;
    size_t bytes, alignment;
  };
  std::vector<Out> out;
  std::map<std::byte*, size_t> ranges;
  for (int step = 0; step < 20000; ++step) {
    const bool fills = step / 1000 % 3 != 2;
    if (out.empty() || random() % 10 < (fills ? 6 : 2)) {
      const size_t alignment = random() % 2 == 0 ? kCoarse : 64;
      const size_t bytes = random() % (random() % 20 == 0 ? 3000000 : 100000);
      const Allocation block = pool.Allocate(bytes, alignment);
      ASSERT_TRUE(block);
      ASSERT_EQ(reinterpret_cast<uintptr_t>(block.data) % alignment, 0u);
      const auto next = ranges.lower_bound(block.data);
      if (next != ranges.end()) {
        ASSERT_LE(block.data + bytes, next->first) << step;
      }
      if (next != ranges.begin()) {
        ASSERT_LE(std::prev(next)->first + std::prev(next)->second, block.data) << step;
      }
      ranges[block.data] = bytes;
      out.push_back({block, bytes, alignment});
    } else {
      std::swap(out[random() % out.size()], out.back());
      ranges.erase(out.back().block.data);
      pool.Release(out.back().block.token, out.back().bytes, out.back().alignment);
      out.pop_back();
    }
    if (step % 500 == 0) pool.TrimIdle(3);
  }
  for (const Out& one : out) pool.Release(one.block.token, one.bytes, one.alignment);
  EXPECT_EQ(pool.used_bytes(), 0u);
  pool.Trim();
  EXPECT_EQ(addresses.taken_bytes(), 0u);
}

TEST(PoolTest, AGrowingPoolTakesLargerChunksTheMoreItOwns) {
  AddressResource addresses;
  Pool pool(addresses, size_t{1} << 18, 64, {.grows = true});
  std::vector<void*> blocks;
  for (int i = 0; i < 16384; ++i) blocks.push_back(pool.Allocate(4096, 64).token);  // 64 MiB
  EXPECT_LT(pool.chunk_count(), 70u);  // 256 of 256 KiB
  EXPECT_LE(pool.owned_bytes(), (size_t{64} << 20) * 17 / 16 + (size_t{1} << 18));
  for (void* const block : blocks) pool.Release(block, 4096, 64);
}

TEST(PoolTest, ACoarseAlignmentIsAPowerOfTwoBeyondThePools) {
  AddressResource addresses;
  for (const size_t coarse : {size_t{16}, size_t{64}, size_t{1000}}) {
    EXPECT_THROW(Pool(addresses, 4096, 64, {.coarse_alignment = coarse}), Error) << coarse;
  }
  Pool pool(addresses, size_t{1} << 18, 64, {.coarse_alignment = 4096});
  EXPECT_EQ(pool.Allocate(100, 8192).refusal, Refusal::kImpossible);
  EXPECT_TRUE(pool.Allocate(100, 4096));
}

}  // namespace
}  // namespace tidepool
