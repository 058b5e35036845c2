// Streams that held more than malloc does for them, one test for each reason: what they hold beside what is alive, in
// bytes of the ledger. What glibc's malloc holds is said beside each (arena and maps, the most of any seed, in times of
// what is alive).
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/stream_families.h"
#include "tidepool/memory/workspace/stream_script.h"
#include "tidepool/memory/workspace/streams.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

constexpr size_t kKiB = size_t{1} << 10, kMiB = size_t{1} << 20;

using Random = std::mt19937_64;
// The next cycle; `random` goes on from cycle to cycle.
using Stream = std::function<std::vector<Step>(Random& random, int cycle)>;

struct Held {
  size_t alive = 0;  // the most at once
  size_t bytes = 0;  // the most of pages, kept blocks and what lies outside
  WorkspaceStats stats;
};

size_t HeldBytes() {
  int64_t bytes = 0;
  for (const MemoryKind kind : {MemoryKind::kUnreferenced, MemoryKind::kAllocated}) {
    bytes += MemoryTracker::Global().CurrentBytes(Host(), kind);
  }
  return static_cast<size_t>(bytes);
}

// In cycles [from, cycles). No byte is written.
Held Play(const Stream& stream, bool raw, uint64_t seed, int from, int cycles) {
  WorkspaceConfig config;
  config.plan_search_seconds = 0;
  config.huge_pages = config.prefault = false;  // ends of large pages are not what is tested
  const size_t before = HeldBytes();
  Held held;
  Workspace workspace("stream", config);
  std::vector<BufferHandle> buffers(256);
  std::vector<RawBlock> blocks(256);
  Random random(seed * 31 + 7);
  for (int cycle = 0; cycle < cycles; ++cycle) {
    const std::vector<Step> steps = stream(random, cycle);
    WorkspaceScope scope(workspace);
    for (const Step& step : steps) {
      if (raw) {
        PlayRawHere({step}, blocks, /*writes=*/false);
      } else {
        PlayHere({step}, buffers, /*writes=*/false);
      }
      if (cycle >= from) held.bytes = std::max(held.bytes, HeldBytes() - before);
    }
    if (cycle >= from) held.alive = std::max(held.alive, MostAlive(steps));
  }
  held.stats = workspace.stats();
  return held;
}

// Of seeds 1 to 12: at most `factor` times what is alive and `beside`.
void ExpectHeld(const char* what, const std::function<Stream(uint64_t seed)>& family, bool raw,
                double factor, size_t beside, int from = 120, int cycles = 240) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    const Held held = Play(family(seed), raw, seed, from, cycles);
    const double times = static_cast<double>(held.bytes) / static_cast<double>(held.alive);
    std::printf("%s %d: %.2f MiB alive, %.2f held, %.2f times\n", what, static_cast<int>(seed),
                static_cast<double>(held.alive) / kMiB, static_cast<double>(held.bytes) / kMiB,
                times);
    EXPECT_LE(static_cast<double>(held.bytes),
              factor * static_cast<double>(held.alive) + static_cast<double>(beside))
        << what << ", seed " << seed << ", " << held.alive << " alive";
  }
}

// Streams of the family of that name, by seed.
std::function<Stream(uint64_t seed)> Family(const std::string& name) {
  for (const StreamFamily& family : StreamFamilies()) {
    if (family.name == name) return family.stream;
  }
  ADD_FAILURE() << "there is no family of streams \"" << name << "\"";
  return {};
}

// Of 60 requests the first 30 are the same: each would have its place as long as in any kind.
TEST(StreamPeers, KindsThatBeginAlikeHoldNoMoreThanWithoutPlans) {
  ExpectHeld("begin alike (malloc 1.37)", Family("beginalike"), /*raw=*/false, 1.25, 5 * kMiB);
}

// One that goes on alone is planned again, and none takes turns at being planned and given up.
TEST(StreamPeers, OfKindsThatBeginAlikeOneThatGoesOnAloneHasAPlanAgain) {
  const Stream turns = Family("beginalike")(6);
  Random random(1);
  const Held all = Play(turns, /*raw=*/false, 1, 100, 2000);
  EXPECT_EQ(all.stats.plans_kept, 0u);
  EXPECT_GE(all.stats.plans_given_up, 3u);
  EXPECT_LE(all.stats.plans_given_up, 24u);
  const Stream then_one = [&](Random& r, int cycle) { return turns(r, cycle < 400 ? cycle : 0); };
  const Held one = Play(then_one, /*raw=*/false, 1, 1400, 1500);
  EXPECT_EQ(one.stats.plans_kept, 1u);
  EXPECT_LE(one.bytes, one.alive + one.alive / 8);
  const Held later = Play(then_one, /*raw=*/false, 1, 1400, 1600);
  EXPECT_EQ(later.stats.misses, one.stats.misses) << "it is followed";
}

// 40 equal ones, of which every second goes before larger ones come. What lies beside the pages lies close.
TEST(StreamPeers, WhatLiesBesideThePagesHasNoChunkEach) {
  const auto checkered = [](uint64_t seed) {
    return Stream([seed](Random& random, int) {
      const size_t unit = (64 + random() % 512) * kKiB;
      StreamScript script;
      for (int i = 0; i < 40; ++i) script.Get(unit);
      for (uint32_t i = 0; i < 40; i += 2) script.Put(i);
      for (int i = 0; i < 18; ++i) script.Get(unit + unit / (2 + seed % 8));
      return script.Finish();
    });
  };
  ExpectHeld("checkered (malloc 1.50)", checkered, /*raw=*/false, 1.6, kMiB);
}

// The first request is the same, the others a fifth smaller or larger, the largest nearly all that is alive.
TEST(StreamPeers, GapsGoWhereALargeRequestFitsNoneOfThem) {
  const auto varied = [](uint64_t seed) {
    return Stream([seed](Random& random, int) {
      Random sizes(seed), lives(seed + 1);
      StreamScript script;
      for (uint64_t i = 0; i < 10 + seed % 50; ++i) {
        const size_t bytes = DrawSize(sizes, 4 * kKiB, (1 + seed % 16) * kMiB);
        const double factor = i == 0 ? 1 : 0.8 + static_cast<double>(random() % 1000) / 2500.0;
        script.Get(static_cast<size_t>(static_cast<double>(bytes) * factor));
        ReleaseSome(script, lives, 2 + seed % 12);
      }
      return script.Finish();
    });
  };
  ExpectHeld("one size fixed (malloc 1.50)", varied, /*raw=*/false, 1.25, 5 * kMiB);
}

// Small ones that stay among large ones that go: between these they would leave gaps.
TEST(StreamPeers, SmallOnesThatStayLeaveNoGapsBetweenLargeOnes) {
  const auto late = [](uint64_t seed) {
    return Stream([seed](Random& random, int) {
      StreamScript script;
      std::vector<uint32_t> large;
      for (int i = 0; i < 80; ++i) {
        large.push_back(script.Get(256 * kKiB + random() % (2 * kMiB)));
        script.Get((4 + random() % 60) * kKiB);
        if (large.size() <= 2 + seed % 10) continue;
        const auto goes = large.begin() + static_cast<std::ptrdiff_t>(random() % large.size());
        script.Put(*goes);
        large.erase(goes);
      }
      return script.Finish();
    });
  };
  ExpectHeld("small ones that stay (malloc 1.82)", late, /*raw=*/false, 1.25, 5 * kMiB);
  const auto single = [](uint64_t seed) {
    return Stream([seed](Random& random, int) {
      StreamScript script;
      for (int i = 0; i < 60; ++i) {
        const uint32_t large = script.Get(kMiB + random() % (4 * kMiB));
        script.Get(16 + random() % (size_t{256} << seed % 8));
        script.Put(large);
      }
      return script.Finish();
    });
  };
  ExpectHeld("between single ones (malloc 1.80)", single, /*raw=*/false, 1.25, 4 * kMiB);
}

// Sizes that grow by a hundredth each cycle, 0.6 to 20 MiB at first, as raw bytes: one chunk of what is live with parts
// that have no memory.
TEST(StreamPeers, WhatGrowsHasNoChunkForWhatNeverComesAgain) {
  const auto growing = [](uint64_t seed) {
    return Stream([seed](Random&, int cycle) {
      Random sizes(seed), lives(seed + 1);
      StreamScript script;
      for (uint64_t i = 0; i < 10 + seed % 30; ++i) {
        const size_t bytes = DrawSize(sizes, 64 * kKiB, 2 * kMiB);
        script.Get(10 * static_cast<size_t>(static_cast<double>(bytes) * (1 + 0.01 * cycle)));
        ReleaseSome(script, lives, 2 + seed % 12);
      }
      return script.Finish();
    });
  };
  ExpectHeld("growing, raw (malloc 1.06)", growing, /*raw=*/true, 1.0625, 12 * kMiB, 300, 400);
}

// Raw bytes have memory where blocks are or were: kinds in turns held twice what was alive, buffers that grow three times.
TEST(StreamPeers, RawBytesHoldLittleMoreThanIsAlive) {
  struct Bound {
    const char* family;
    double factor;
    double asked;  // requests to the system in a cycle
  };
  // Bursts are of 30 equal cycles, with a huge block in some: after 16 these settle at what they reach.
  for (const Bound& bound :
       {Bound{"fixed", 1.25, 0}, Bound{"kinds", 1.25, 0.1}, Bound{"bursts", 1.75, 2},
        Bound{"smalllarge", 1.3, 0.1}, Bound{"smallhuge", 1.0625, 1},
        Bound{"growingbyhalf", 1.6, 4}, Bound{"drawn", 1.25, 1}}) {
    const auto stream = Family(bound.family);
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      const StreamBytes found = CountStream(StreamPlayer::kRaw, stream(seed), seed, 120, 240);
      const double alive = static_cast<double>(found.alive), held = static_cast<double>(found.held);
      std::printf("%s, raw %d: %.2f MiB alive, %.2f held, %.2f times, asked %.2f\n", bound.family,
                  static_cast<int>(seed), alive / kMiB, held / kMiB, held / alive, found.asked);
      EXPECT_LE(held, bound.factor * alive + 2.5 * kMiB) << bound.family << ", seed " << seed;
      EXPECT_LE(found.asked, bound.asked) << bound.family << ", seed " << seed;
    }
  }
}

}  // namespace
}  // namespace tidepool
