// What pools own where requests are huge, how often they ask for it, and that memory which comes
// and goes in parts of an arena is there where blocks are.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/resource/pages_resource.h"
#include "tidepool/memory/resource/pool.h"
#include "tidepool/memory/resource/testing/address_resource.h"
#include "tidepool/memory/testing/simulated_device.h"

namespace tidepool {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// Uses of 40 requests up to 300 MiB, as many of each power of two, the same ones for the same
// `kind`.
struct HugeUses {
  explicit HugeUses(uint32_t seed) : random(seed) {}
  void Play(Pool& pool, uint32_t kind) {
    std::mt19937_64 draw(kind);
    std::vector<std::pair<void*, size_t>> live;
    size_t live_bytes = 0;
    const auto release = [&](size_t i) {
      std::swap(live[i], live.back());
      pool.Release(live.back().first, live.back().second, 64);
      live_bytes -= live.back().second;
      live.pop_back();
    };
    for (int i = 0; i < 40; ++i) {
      const size_t of = size_t{64} << (draw() % 23);
      const size_t bytes = of + draw() % (of / 6 + 1);
      live.emplace_back(pool.Allocate(bytes, 64).token, bytes);
      huge += bytes >= 32 * kMiB;
      peak = std::max(peak, live_bytes += bytes);
      owned = std::max(owned, pool.owned_bytes());
      while (live.size() > 12 || (!live.empty() && draw() % 3 == 0)) release(draw() % live.size());
    }
    while (!live.empty()) release(live.size() - 1);
    pool.TrimIdle(64);
  }
  std::mt19937 random;
  size_t peak = 0, owned = 0;
  size_t huge = 0;  // requests of 32 MiB or more
};

// What is never asked for again finds a chunk by chance only, so that twice what was live would be
// held for nothing.
TEST(PoolFootprint, HugeRequestsThatNeverComeAgainKeepLittle) {
  for (const bool grows : {false, true}) {
    AddressResource addresses;
    Pool pool(addresses, kMiB, 64, {.grows = grows});
    HugeUses uses(1);
    for (int use = 0; use < 200; ++use) {
      uses.Play(pool, uses.random());
      const size_t shared = grows ? std::max(kMiB, std::min(uses.peak / 16, 64 * kMiB)) : kMiB;
      ASSERT_LE(uses.owned, uses.peak + uses.peak / 10 + 2 * shared)
          << "use " << use << ", grows " << grows;
    }
  }
}

// What comes again in another order comes again: its chunks stay.
TEST(PoolFootprint, HugeRequestsInAnotherOrderSettle) {
  AddressResource addresses;
  Pool pool(addresses, kMiB, 64, {.grows = true});
  std::mt19937 random(3);
  std::vector<size_t> sizes;
  for (size_t i = 0; i < 10; ++i) sizes.push_back((33 + 7 * i) * kMiB);
  size_t requests = 0;
  for (int use = 0; use < 500; ++use) {
    if (use == 400) requests = addresses.requests();
    std::shuffle(sizes.begin(), sizes.end(), random);
    std::vector<std::pair<void*, size_t>> live;
    for (const size_t bytes : sizes) {
      live.emplace_back(pool.Allocate(bytes, 64).token, bytes);
      if (live.size() < 4) continue;
      pool.Release(live.front().first, live.front().second, 64);
      live.erase(live.begin());
    }
    for (const auto& [token, bytes] : live) pool.Release(token, bytes, 64);
    pool.TrimIdle(64);
  }
  EXPECT_EQ(addresses.requests(), requests);
}

// Up to 256 kinds in turns, in any order, are known, and their chunks stay.
TEST(PoolFootprint, HugeRequestsOfManyKindsSettle) {
  AddressResource addresses;
  Pool pool(addresses, kMiB, 64, {.grows = true});
  HugeUses uses(2);
  size_t requests = 0;
  for (int use = 0; use < 600; ++use) {
    if (use == 400) requests = addresses.requests();
    uses.Play(pool, uses.random() % 20);
  }
  EXPECT_EQ(addresses.requests(), requests);
}

// 32 were known, and one more asked for its memory in each turn for ever.
TEST(PoolFootprint, HugeRequestsOfMoreKindsInTurnsSettle) {
  for (const uint32_t kinds : {33u, 100u, 250u}) {
    AddressResource addresses;
    Pool pool(addresses, kMiB, 64, {.grows = true});
    HugeUses uses(0);
    size_t requests = 0;
    for (uint32_t use = 0; use < 6 * kinds; ++use) {
      if (use == 5 * kinds) requests = addresses.requests();
      uses.Play(pool, 1000 + use % kinds);
    }
    // The largest chunks go where the kinds that need them come less often than each 64 uses.
    EXPECT_LE(addresses.requests(), requests + (kinds > 64 ? 4 : 0)) << kinds;
    EXPECT_LE(uses.owned, 2 * uses.peak + 64 * kMiB) << kinds;
  }
}

// ---- arenas whose memory comes and goes in parts ----------------------------------------------

constexpr PagesOptions kUntouched{.large_pages = false, .prefault = false};

int64_t Asked() { return MemoryTracker::Global().system_allocations(); }
int64_t Released() { return MemoryTracker::Global().Snapshot().system_releases; }

// Kinds in turns need addresses of up to twice what is live, and hold 1.25 times and 1 MiB. A
// malloc that maps each huge request asks for seven in each use.
TEST(PoolHuge, KindsInTurnsHoldAQuarterMoreThanIsLive) {
  int64_t asked = 0, huge = 0;
  double worst = 0;
  for (uint32_t seed = 8; seed < 24; ++seed) {
    for (const uint32_t kinds : {2u, 5u, 20u}) {
      PagesResource pages(kUntouched);
      Pool pool(pages, kMiB, 64, {.grows = true});
      HugeUses uses(seed);
      int64_t before = 0;
      for (int use = 0; use < 200; ++use) {
        if (use == 100) {
          before = Asked();
          uses.owned = uses.huge = 0;
        }
        uses.Play(pool, seed * 1000 + uses.random() % kinds);
      }
      asked += Asked() - before;
      huge += static_cast<int64_t>(uses.huge);
      worst = std::max(worst, static_cast<double>(uses.owned) / static_cast<double>(uses.peak));
      EXPECT_LE(uses.owned, uses.peak + uses.peak / 4 + 2 * kMiB)
          << "seed " << seed << ", kinds " << kinds;
    }
  }
  std::printf("%lld requests for %lld huge blocks, at most %.3f times what was live\n",
              static_cast<long long>(asked), static_cast<long long>(huge), worst);
  EXPECT_LE(asked, huge / 6);
}

// The same sizes in another order each time.
TEST(PoolHuge, OtherOrdersHoldAQuarterMoreThanIsLive) {
  PagesResource pages(kUntouched);
  Pool pool(pages, kMiB, 64, {.grows = true});
  std::mt19937 random(3);
  std::vector<size_t> sizes;
  for (size_t i = 0; i < 10; ++i) sizes.push_back((33 + 7 * i) * kMiB);
  size_t peak = 0, owned = 0;
  for (int use = 0; use < 300; ++use) {
    std::shuffle(sizes.begin(), sizes.end(), random);
    std::vector<std::pair<void*, size_t>> live;
    size_t live_bytes = 0;
    for (const size_t bytes : sizes) {
      live.emplace_back(pool.Allocate(bytes, 64).token, bytes);
      peak = std::max(peak, live_bytes += bytes);
      if (use >= 100) owned = std::max(owned, pool.owned_bytes());
      if (live.size() < 4) continue;
      pool.Release(live.front().first, live.front().second, 64);
      live_bytes -= live.front().second;
      live.erase(live.begin());
    }
    for (const auto& [token, bytes] : live) pool.Release(token, bytes, 64);
    pool.TrimIdle(64);
  }
  EXPECT_LE(owned, peak + peak / 4 + 2 * kMiB);
}

// A buffer that doubles, and takes another step at last, needs 1.5 times. It asked for pages in each use.
TEST(PoolHuge, EqualUsesAskForNothingUntilAnotherTakesMemory) {
  PagesResource pages(kUntouched);
  Pool pool(pages, kMiB / 4, 64, {.grows = true});
  size_t peak = 0;
  const auto grow_to = [&](size_t most) {
    size_t old_bytes = 0;
    void* old = nullptr;
    for (size_t bytes = 4096; old_bytes < most; bytes = std::min(2 * bytes, most)) {
      void* const grown = pool.Allocate(bytes, 64).token;
      peak = std::max(peak, bytes + old_bytes);
      if (old != nullptr) pool.Release(old, old_bytes, 64);
      old = grown;
      old_bytes = bytes;
    }
    pool.Release(old, old_bytes, 64);
    pool.TrimIdle(64);
  };
  for (int use = 0; use < 25; ++use) grow_to(37 * kMiB);
  const int64_t asked = Asked();
  for (int use = 0; use < 50; ++use) grow_to(37 * kMiB);
  EXPECT_EQ(Asked(), asked);
  EXPECT_LE(pool.owned_bytes(), 2 * peak + kMiB);
  // What such uses hold is not for those that differ.
  HugeUses uses(5);
  for (uint32_t use = 0; use < 20; ++use) uses.Play(pool, use % 2);
  EXPECT_LE(pool.owned_bytes(), std::max(peak, uses.peak) * 5 / 4 + 2 * kMiB);
}

// On a device that refuses now and then and ends the test when memory is used that it has back:
// blocks keep their bytes to the readable tail, and all that is owned is the device's.
TEST(PoolHuge, BlocksStayWhatTheyAreWhateverGoesBack) {
  SimulatedDevice& device = SimulatedDevice::Get();
  int64_t holes = 0, refused = 0, came_in = 0;
  for (uint32_t seed = 0; seed < 12; ++seed) {
    device.Reset();
    device.set_reserve_bytes(size_t{64} << 30);
    {
      PagesResource pages(kUntouched, device);
      Pool pool(pages, kMiB, 64, {.grows = true});
      std::mt19937_64 random(seed);
      struct Live {
        Allocation block;
        size_t bytes;
        std::byte value;
      };
      std::vector<Live> live;
      const auto places = [&](const Live& one) {
        const size_t all = one.bytes + kReadableTailBytes;
        std::byte* const data = device.Hidden(one.block.data, all);
        return std::vector<std::byte*>{data, data + one.bytes / 2, data + one.bytes - 1};
      };
      const auto release = [&](size_t i) {
        std::swap(live[i], live.back());
        for (const std::byte* const at : places(live.back())) ASSERT_EQ(*at, live.back().value);
        pool.Release(live.back().block.token, live.back().bytes, 64);
        live.pop_back();
      };
      // In the middle of a request that lacks memory others come in.
      const Reclaimer::Registration comes_in =
          Reclaimer::Global().Register("comes in", [&](ReclaimDepth) -> int64_t {
            if (seed % 4 != 1) return 0;
            if (!live.empty()) release(random() % live.size());
            const size_t bytes = size_t{4096} << (random() % 14);
            if (const Allocation block = pool.Allocate(bytes, 64)) {
              ++came_in;
              live.push_back({block, bytes, static_cast<std::byte>(random())});
              for (std::byte* const at : places(live.back())) *at = live.back().value;
            }
            return 1;
          });
      for (int use = 0; use < 120; ++use) {
        const bool refuses = seed % 2 == 1 && use % 5 == 0;
        std::mt19937_64 draw(seed * 100 + random() % 4);
        for (int i = 0; i < 30; ++i) {
          const size_t of = size_t{4096} << (draw() % 15);
          const size_t bytes = i % 2 == 0 ? 2 * of : of + draw() % of;
          if (refuses) device.faults().FailRequest(0, i % 4 == 0 ? 30 : 1);
          const int64_t released = Released();
          const Allocation block = pool.Allocate(bytes, 64);
          holes += Released() - released;
          if (block) {
            live.push_back({block, bytes, static_cast<std::byte>(random())});
            for (std::byte* const at : places(live.back())) *at = live.back().value;
          } else {
            ASSERT_TRUE(refuses) << block.refused_by->Describe();
            ++refused;
          }
          ASSERT_EQ(device.used_bytes(), pool.owned_bytes());
          while (live.size() > 8 || (!live.empty() && draw() % 3 == 0)) {
            release(draw() % live.size());
          }
        }
        device.faults().Clear();
        while (!live.empty()) release(live.size() - 1);
        pool.TrimIdle(64);
      }
      pool.Trim();
      EXPECT_EQ(pool.owned_bytes(), 0u);
    }
    EXPECT_EQ(device.used_bytes(), 0u);
  }
  device.Reset();
  EXPECT_GT(holes, 100) << "nothing went in the middle of uses";
  EXPECT_GT(refused, 0);
  EXPECT_GT(came_in, 0);
}

// Memory that went when somebody asked for it comes again as it was: addresses are no memory.
TEST(PoolHuge, AfterATrimTheyHoldNoMore) {
  for (uint32_t seed = 8; seed < 24; ++seed) {
    PagesResource pages(kUntouched);
    Pool pool(pages, kMiB, 64, {.grows = true});
    HugeUses uses(seed);
    for (int use = 0; use < 260; ++use) {
      if (use == 100 || use == 150) pool.Trim();
      if (use == 110) uses.owned = 0;
      uses.Play(pool, seed * 1000 + uses.random() % 4);
    }
    EXPECT_LE(uses.owned, uses.peak + uses.peak / 4 + 2 * kMiB) << "seed " << seed;
  }
}

// A large block is cut from no chunk in which coarse ones live: what is left of it would not begin as these do.
TEST(PoolHuge, CoarseBlocksKeepTheirAlignmentWhereSharesShrinkAndGrow) {
  constexpr size_t kCoarse = size_t{64} << 10;
  AddressResource addresses;
  Pool pool(addresses, kMiB / 4, 64, {.grows = true, .coarse_alignment = kCoarse});
  const auto live_at_once = [&](size_t bytes, size_t count) {
    std::vector<void*> live;
    for (size_t i = 0; i < count; ++i) live.push_back(pool.Allocate(bytes, 64).token);
    return live;
  };
  const auto release = [&](const std::vector<void*>& live, size_t bytes) {
    for (void* const token : live) pool.Release(token, bytes, 64);
  };
  std::vector<void*> live = live_at_once(16 * kMiB, 20);
  const std::vector<void*> small = live_at_once(100000, 8);  // a span of 19 MiB
  release(small, 100000);
  // In that span, whose uses it outlives: it is for coarse blocks from here on.
  const Allocation coarse = pool.Allocate(kCoarse, kCoarse);
  release(live, 16 * kMiB);
  for (int use = 0; use < 8; ++use) pool.TrimIdle(2);
  const Allocation large = pool.Allocate(18 * kMiB + 80, 64);
  live = live_at_once(16 * kMiB, 20);
  std::vector<Allocation> more;
  for (int i = 0; i < 40; ++i) {
    more.push_back(pool.Allocate(kCoarse, kCoarse));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(more.back().data) % kCoarse, 0u);
  }
  // Also where a coarse one is large, and a fine chunk has room for it.
  const Allocation great = pool.Allocate(15 * kMiB, kCoarse);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(great.data) % kCoarse, 0u);
  pool.Release(great.token, 15 * kMiB, kCoarse);
  for (const Allocation& block : more) pool.Release(block.token, kCoarse, kCoarse);
  release(live, 16 * kMiB);
  pool.Release(large.token, 18 * kMiB + 80, 64);
  pool.Release(coarse.token, kCoarse, kCoarse);
  pool.Trim();
  EXPECT_EQ(addresses.taken_bytes(), 0u);
}

}  // namespace
}  // namespace tidepool
