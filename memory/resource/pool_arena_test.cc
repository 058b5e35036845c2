// Pools that grow and have one chunk for all that is not coarse: what they own, and that uses
// settle.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/resource/known_kinds.h"
#include "tidepool/memory/resource/pool.h"
#include "tidepool/memory/resource/testing/address_resource.h"

namespace tidepool {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kCoarse = size_t{64} << 10;

// A pool of a workspace's blocks, its uses, and what it owned and what was live since Watch().
class Uses {
 public:
  ~Uses() {
    while (!live_.empty()) Release(0);
  }
  void Allocate(size_t bytes, size_t alignment = 64) {
    live_.push_back({pool_.Allocate(bytes, alignment).token, bytes, alignment});
    live_bytes_ += bytes;
    most_live_ = std::max(most_live_, live_bytes_);
    most_owned_ = std::max(most_owned_, pool_.owned_bytes());
  }
  void Release(size_t i) {
    std::swap(live_[i], live_.back());
    pool_.Release(live_.back().token, live_.back().bytes, live_.back().alignment);
    live_bytes_ -= live_.back().bytes;
    live_.pop_back();
  }
  void End() {
    while (!live_.empty()) Release(live_.size() - 1);
    pool_.TrimIdle(64);
  }
  void Watch() {
    most_live_ = most_owned_ = 0;
    requests_ = addresses_.requests();
  }
  size_t live() const { return live_.size(); }
  double most_live() const { return static_cast<double>(most_live_); }
  double most_owned() const { return static_cast<double>(most_owned_); }
  size_t requests() const { return addresses_.requests() - requests_; }
  Pool& pool() { return pool_; }

 private:
  struct Block {
    void* token;
    size_t bytes, alignment;
  };
  AddressResource addresses_;
  Pool pool_{addresses_, size_t{1} << 18, 64, {.grows = true, .coarse_alignment = kCoarse}};
  std::vector<Block> live_;
  size_t live_bytes_ = 0, most_live_ = 0, most_owned_ = 0, requests_ = 0;
};

// 30 requests of 8 KiB to 20 MiB, as many of each power of two, at most 10 of them alive.
void Draw(Uses& uses, uint64_t sizes_seed, uint64_t lives_seed) {
  std::mt19937_64 sizes(sizes_seed), lives(lives_seed);
  for (int i = 0; i < 30; ++i) {
    uses.Allocate(
        static_cast<size_t>(std::exp2(std::uniform_real_distribution<>(13, 24.3)(sizes))));
    while (uses.live() > 10 || (uses.live() > 0 && lives() % 3 == 0)) {
      uses.Release(lives() % uses.live());
    }
  }
}

TEST(PoolArena, KindsInTurnsAskForNothingInTheEnd) {
  for (uint32_t seed = 1; seed <= 25; ++seed) {
    std::mt19937_64 random(seed);
    struct Kind {
      size_t count, bytes;
    };
    std::vector<Kind> kinds(3 + random() % 8);
    for (Kind& kind : kinds) {
      const double all = std::exp2(std::uniform_real_distribution<>(20, 25)(random));
      kind.bytes = static_cast<size_t>(std::exp2(std::uniform_real_distribution<>(13, 23)(random)));
      if (random() % 3 == 0) kind.bytes = kCoarse;
      kind.count = 1 + static_cast<size_t>(all) / kind.bytes;
    }
    Uses uses;
    for (size_t use = 0; use < 700; ++use) {
      if (use == 400) uses.Watch();
      const Kind& kind = kinds[use % kinds.size()];
      for (size_t i = 0; i < kind.count; ++i) {
        uses.Allocate(kind.bytes, kind.bytes == kCoarse ? kCoarse : 64);
      }
      uses.End();
    }
    EXPECT_EQ(uses.requests(), 0u) << "seed " << seed;
    EXPECT_LE(uses.most_owned(), 2.1 * uses.most_live() + 3 * kMiB) << "seed " << seed;
  }
}

TEST(PoolArena, KindsInBurstsOwnLittle) {
  for (uint64_t seed = 10; seed < 20; ++seed) {
    Uses uses;
    for (uint64_t use = 0; use < 600; ++use) {
      if (use == 150) uses.Watch();
      const uint64_t kind = 100 * seed + use / 30 % 5;
      Draw(uses, kind, kind);
      uses.End();
    }
    EXPECT_LE(uses.most_owned(), 1.35 * uses.most_live() + 3 * kMiB) << "seed " << seed;
    EXPECT_LE(uses.requests(), 2 * 15u) << "seed " << seed;  // two for a burst
  }
}

TEST(PoolArena, OneUseAgainAndAgainOwnsLittle) {
  for (uint64_t seed = 10; seed < 40; ++seed) {
    Uses uses;
    for (int use = 0; use < 40; ++use) {
      if (use == 10) uses.Watch();
      Draw(uses, seed, seed);
      uses.End();
    }
    EXPECT_LE(uses.most_owned(), 1.6 * uses.most_live() + 2 * kMiB) << "seed " << seed;
    EXPECT_EQ(uses.requests(), 0u) << "seed " << seed;
  }
}

// The same sizes in the same order: only what is released when tells these uses apart.
TEST(PoolArena, LivesThatAreOtherOnesInEachUseOwnLittle) {
  for (uint64_t seed = 10; seed < 20; ++seed) {
    Uses uses;
    for (uint64_t use = 0; use < 400; ++use) {
      if (use == 100) uses.Watch();
      Draw(uses, seed, 1000 * seed + use);
      uses.End();
    }
    EXPECT_LE(uses.most_owned(), 1.5 * uses.most_live() + 2 * kMiB) << "seed " << seed;
    EXPECT_LE(uses.requests(), 30u) << "seed " << seed;
  }
}

// Until a use has arenas, as kinds in turns do.
void TakeTurns(Uses& uses, int times) {
  for (int use = 0; use < times; ++use) {
    for (int i = 0; i < 20; ++i) uses.Allocate(kMiB + (use % 7) * 300 * 1024);
    uses.End();
  }
}

TEST(PoolArena, AnArenaMakesRoomForWhatIsLargerThanItself) {
  Uses uses;
  TakeTurns(uses, 40);
  ASSERT_EQ(uses.pool().chunk_count(), 1u);
  uses.Watch();
  uses.Allocate(100 * kMiB);
  EXPECT_LE(uses.most_owned(), 1.1 * uses.most_live() + 8 * kMiB);
  uses.End();
  for (int use = 0; use < 3; ++use) {  // it has one of that size now
    uses.Watch();
    for (int i = 0; i < 10; ++i) uses.Allocate(10 * kMiB);
    EXPECT_EQ(uses.requests(), use == 0 ? 1u : 0u);
    uses.End();
  }
}

TEST(PoolArena, AnArenaFollowsWhatIsLiveWhenThatIsFarLess) {
  Uses uses;
  TakeTurns(uses, 40);
  const size_t before = uses.pool().owned_bytes();
  ASSERT_GE(before, 50 * kMiB);
  for (int use = 0; use < 130; ++use) {
    uses.Allocate(3 * kMiB);
    uses.End();
  }
  uses.Watch();
  for (int use = 0; use < 10; ++use) {
    uses.Allocate(3 * kMiB);
    uses.End();
  }
  EXPECT_LE(uses.most_owned(), 5.0 * kMiB);
  EXPECT_EQ(uses.requests(), 0u);
  for (int use = 0; use < 65; ++use) uses.End();
  EXPECT_EQ(uses.pool().owned_bytes(), 0u);
}

void AllocateMany(Uses& uses, size_t count, size_t bytes) {
  for (size_t i = 0; i < count; ++i) uses.Allocate(bytes, bytes == kCoarse ? kCoarse : 64);
}

// Each evicted the other's memory in each turn.
TEST(PoolArena, UsesOfCoarseBlocksAndOfOthersInTurnsSettle) {
  Uses uses;
  for (int use = 0; use < 120; ++use) {
    if (use == 60) uses.Watch();
    if (use % 3 == 0) AllocateMany(uses, 300, kCoarse);
    if (use % 3 == 1) AllocateMany(uses, 18, kMiB);
    if (use % 3 == 2) AllocateMany(uses, 3, 6 * kMiB);
    uses.End();
  }
  EXPECT_EQ(uses.requests(), 0u);
  EXPECT_LE(uses.most_owned(), 2.1 * uses.most_live() + 3 * kMiB);
}

// Uses that ask for coarse blocks alone do not keep it large, nor does it come as many chunks.
TEST(PoolArena, AnArenaThatWentForCoarseBlocksComesBackAsLargeAsIsNeeded) {
  Uses uses;
  TakeTurns(uses, 40);
  AllocateMany(uses, 800, kCoarse);
  uses.End();
  ASSERT_FALSE(uses.pool().has_arena());
  uses.Watch();
  AllocateMany(uses, 10, kMiB);
  EXPECT_EQ(uses.requests(), 1u);
  uses.End();
  for (int use = 0; use < 280; ++use) {
    AllocateMany(uses, 800, kCoarse);
    if (use >= 200) uses.Allocate(kMiB);
    uses.End();
    if (use == 240) uses.Watch();
  }
  EXPECT_EQ(uses.requests(), 0u);
  EXPECT_LE(uses.most_owned(), 1.1 * uses.most_live() + 4 * kMiB);
}

// What outlives uses keeps an arena from being replaced. The others settle beside it.
TEST(PoolArena, UsesSettleBesideABlockThatStays) {
  Uses uses;
  TakeTurns(uses, 40);
  ASSERT_TRUE(uses.pool().has_arena());
  void* const stays = uses.pool().Allocate(kMiB, 64).token;
  for (int use = 0; use < 300; ++use) {
    if (use == 200) uses.Watch();
    if (use % 3 == 0) AllocateMany(uses, 110, kMiB);
    if (use % 3 == 1) AllocateMany(uses, 15, 7 * kMiB);
    if (use % 3 == 2) AllocateMany(uses, 5, 21 * kMiB);
    uses.End();
  }
  EXPECT_EQ(uses.requests(), 0u);
  EXPECT_LE(uses.most_owned(), 2.1 * uses.most_live() + 4 * kMiB);
  uses.pool().Release(stays, kMiB, 64);
}

TEST(KnownKinds, TheLast256AreKnown) {
  KnownKinds kinds;
  for (uint64_t kind = 1; kind <= 256; ++kind) EXPECT_FALSE(kinds.Note(kind));
  for (uint64_t kind = 1; kind <= 256; ++kind) EXPECT_TRUE(kinds.Note(kind));
  EXPECT_FALSE(kinds.Note(257));  // in the place of the first
  EXPECT_TRUE(kinds.Note(2));
  EXPECT_FALSE(kinds.Note(1));
  EXPECT_TRUE(kinds.Note(257));
  EXPECT_FALSE(kinds.Note(2));
}

}  // namespace
}  // namespace tidepool
