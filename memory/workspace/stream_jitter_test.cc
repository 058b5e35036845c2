// Streams whose sizes vary a little from cycle to cycle: no plan is followed, and after a while the system is hardly
// asked for memory any more.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/streams.h"
#include "tidepool/memory/workspace/workspace_pool.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

constexpr double kMiB = 1 << 20;

WorkspaceConfig Config() {
  WorkspaceConfig config;
  config.plan_search_seconds = 0;
  config.huge_pages = config.prefault = false;  // ends of large pages are not what is tested
  return config;
}

class Jitter {
 public:
  // What varies from seed to seed: how many there are, how large the largest is, how many are alive.
  explicit Jitter(uint64_t seed) : random_(seed * 31 + 7) {
    std::mt19937_64 sizes(seed), lives(seed + 1);
    std::vector<uint32_t> alive;
    const uint32_t count = 10 + static_cast<uint32_t>(seed % 50);
    const double most = std::log2(static_cast<double>((1 + seed % 16) << 20));
    for (uint32_t i = 0; i < count; ++i) {
      const double at_size = static_cast<double>(sizes() % 100000) / 100000.0;
      steps_.push_back({i, static_cast<size_t>(std::exp2(12 + (most - 12) * at_size))});
      alive.push_back(i);
      while (alive.size() > 2 + seed % 12 || (!alive.empty() && lives() % 3 == 0)) {
        const auto at = alive.begin() + static_cast<std::ptrdiff_t>(lives() % alive.size());
        steps_.push_back({*at, 0});
        alive.erase(at);
      }
    }
    for (const uint32_t i : alive) steps_.push_back({i, 0});
  }
  const std::vector<Step>& steps() const { return steps_; }

  // Sizes are up to so many parts of a hundred smaller or larger.
  void Play(unsigned percent) {
    std::vector<Step> varied = steps_;
    for (Step& step : varied) {
      step.bytes = step.bytes * (10000 - 100 * percent + random_() % (200 * percent)) / 10000;
    }
    PlayHere(varied, buffers_, /*writes=*/false);
  }

 private:
  std::mt19937_64 random_;
  std::vector<Step> steps_;
  std::vector<BufferHandle> buffers_ = std::vector<BufferHandle>(64);
};

// One of them is large: its gap is what the pages lack, and they get it.
TEST(StreamFootprint, PagesGrowWhereALargeRequestDoesNotFitAgainAndAgain) {
  for (uint64_t seed = 11; seed <= 26; ++seed) {
    Jitter jitter(seed);
    Workspace workspace("jitter", Config());
    int64_t asked = 0;
    for (int cycle = 0; cycle < 700; ++cycle) {
      if (cycle == 400) asked = MemoryTracker::Global().system_allocations();
      WorkspaceScope scope(workspace);
      jitter.Play(1);
    }
    asked = MemoryTracker::Global().system_allocations() - asked;
    std::printf("seed %d: %d requests to the system in 300 cycles, %.2f MiB alive, pages %.2f\n",
                static_cast<int>(seed), static_cast<int>(asked),
                static_cast<double>(MostAlive(jitter.steps())) / kMiB,
                static_cast<double>(workspace.size()) / kMiB);
    EXPECT_LE(asked, 60) << "seed " << seed << ": in one of five cycles";
  }
}

// As a cache of keys and values does: no cycle comes again, and each needs a little more than the one before.
TEST(StreamFootprint, PagesOfWhatGrowsALittleInEachCycleGrowAheadOfIt) {
  for (const size_t bytes : {size_t{20000}, size_t{1200000}, size_t{6000000}}) {
    Workspace workspace("growing", Config());
    int64_t asked = 0;
    uint64_t spills = 0;
    constexpr size_t kArrays = 6;
    constexpr int kCycles = 3000, kBefore = 1000;
    size_t alive = 0;
    for (int cycle = 0; cycle < kCycles; ++cycle) {
      if (cycle == kBefore) {
        asked = MemoryTracker::Global().system_allocations();
        spills = workspace.stats().spills;
      }
      WorkspaceScope scope(workspace);
      std::vector<BufferHandle> arrays;
      alive = 0;
      for (size_t i = 0; i < kArrays; ++i) {
        arrays.emplace_back(AllocateHere(bytes + 64 * static_cast<size_t>(cycle)));
        alive += arrays.back()->bytes;
      }
    }
    EXPECT_LE(MemoryTracker::Global().system_allocations() - asked, 60) << bytes;
    EXPECT_LE(workspace.stats().spills - spills, 120u) << bytes;
    EXPECT_LE(workspace.size(), alive + alive / 4 + (size_t{1} << 20)) << bytes;
  }
}

// The ranges of a pool do not become a little smaller as soon as they were large enough for some time.
TEST(StreamFootprint, RangesOfWhatVariesALittleStay) {
  int64_t asked = 0;
  uint64_t spills = 0;
  constexpr int kCycles = 2000;
  for (uint64_t seed = 11; seed <= 26; ++seed) {
    Jitter jitter(seed);
    WorkspacePool pool("jitter", Config());
    const auto play = [&](int cycles) {
      for (int cycle = 0; cycle < cycles; ++cycle) {
        PooledScope scope(pool);
        jitter.Play(5);
      }
    };
    play(700);
    const int64_t asked_before = MemoryTracker::Global().system_allocations();
    const uint64_t spills_before = pool.stats().spills;
    play(kCycles);
    asked += MemoryTracker::Global().system_allocations() - asked_before;
    spills += pool.stats().spills - spills_before;
    // What varies is up to a twentieth larger; pages of the largest gaps, and a chunk of blocks.
    const size_t alive = MostAlive(jitter.steps()) * 21 / 20;
    EXPECT_LE(pool.stats().held_bytes, alive + alive / 16 + (size_t{18} << 20)) << "seed " << seed;
  }
  std::printf("%d requests to the system and %d beside ranges in %d cycles\n",
              static_cast<int>(asked), static_cast<int>(spills), 16 * kCycles);
  EXPECT_LE(asked, 64) << "in one of 500 cycles";
  EXPECT_LE(spills, 128u) << "in one of 250 cycles";
}

// Among ever different cycles one may begin in the pages of a plan that it leaves. What it is planned for then is not
// around that.
TEST(StreamFootprint, PlansOfWhatMayNeverComeAgainHoldLittleMoreThanIsAlive) {
  constexpr size_t kLarge = size_t{100} << 20;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    std::mt19937_64 random(seed * 31 + 7);
    Workspace workspace("huge", Config());
    size_t most = 0;
    for (int cycle = 0; cycle < 300; ++cycle) {
      WorkspaceScope scope(workspace);
      std::vector<BufferHandle> small;
      for (int i = 0; i < 10; ++i) {
        small.emplace_back(AllocateHere(random() % (size_t{4} << 20)));
        const BufferHandle large(AllocateHere(kLarge + random() % (2 * kLarge)));
        size_t alive = large->bytes;
        for (const BufferHandle& buffer : small) alive += buffer->bytes;
        most = std::max(most, alive);
        if (small.size() > 4 + seed % 3) small.erase(small.begin());
      }
      ASSERT_LE(workspace.size(), most + most / 16 + (size_t{18} << 20))
          << "seed " << seed << ", cycle " << cycle;
    }
  }
}

}  // namespace
}  // namespace tidepool
