// What pools own against what was live in them.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/resource/pool.h"
#include "tidepool/memory/resource/testing/address_resource.h"

namespace tidepool {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

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

// The bound is kept when a chunk is taken. When less lives later, chunks that serve by turns stay.
TEST(PoolTest, ChunksThatServeByTurnsStayWhenLessLives) {
  AddressResource addresses;
  Pool pool(addresses, 64 << 10, 64);
  auto owned_at_most = [](size_t live) { return live + live / 10 + (64 << 10); };
  void* const first = pool.Allocate(2 * kMiB, 64).token;
  void* const second = pool.Allocate(kMiB, 64).token;
  pool.Release(first, 2 * kMiB, 64);
  pool.Release(second, kMiB, 64);
  EXPECT_LE(pool.owned_bytes(), owned_at_most(3 * kMiB));
  const size_t owned = pool.owned_bytes();
  const size_t requests = addresses.requests();
  for (int use = 0; use < 10; ++use) {
    pool.TrimIdle(2);
    for (const size_t bytes : {2 * kMiB, kMiB})
      pool.Release(pool.Allocate(bytes, 64).token, bytes, 64);
    EXPECT_EQ(pool.owned_bytes(), owned);  // 2 MiB are live at most
  }
  EXPECT_EQ(addresses.requests(), requests);
  for (int use = 0; use < 3; ++use) {
    pool.TrimIdle(2);
    pool.Release(pool.Allocate(2 * kMiB, 64).token, 2 * kMiB, 64);
  }
  EXPECT_LE(pool.owned_bytes(), owned_at_most(2 * kMiB));
}

// What is owned and what was live at most, of blocks that only this notes.
class Watched {
 public:
  explicit Watched(size_t chunk_bytes) : pool_(addresses_, chunk_bytes, kAlignment) {}
  ~Watched() {
    for (const auto& [data, block] : live_) pool_.Release(block.token, block.bytes, kAlignment);
  }

  std::byte* Allocate(size_t bytes) {
    const Allocation block = pool_.Allocate(bytes, kAlignment);
    live_[block.data] = {block.token, bytes};
    most_live_ = std::max(most_live_, pool_.used_bytes());
    most_owned_ = std::max(most_owned_, pool_.owned_bytes());
    return block.data;
  }
  void Release(std::byte* data) {
    const auto found = live_.find(data);
    pool_.Release(found->second.token, found->second.bytes, kAlignment);
    live_.erase(found);
  }
  std::vector<std::byte*> blocks() const {  // by address
    std::vector<std::byte*> all;
    for (const auto& [data, block] : live_) all.push_back(data);
    return all;
  }
  // All that blocks of up to chunk_bytes may ever take (pool.h).
  size_t Bound(size_t chunk_bytes) const {
    const size_t chunk = AddressResource().FootprintBytes(chunk_bytes, kAlignment);
    return std::bit_width(chunk / kAlignment) * (5 * most_live_ + chunk);
  }
  double factor() const {
    return static_cast<double>(most_owned_) / static_cast<double>(most_live_);
  }
  size_t most_owned() const { return most_owned_; }
  size_t most_live() const { return most_live_; }
  Pool& pool() { return pool_; }

 private:
  static constexpr size_t kAlignment = 64;
  struct Block {
    void* token;
    size_t bytes;
  };
  AddressResource addresses_;
  Pool pool_;
  std::map<std::byte*, Block> live_;
  size_t most_live_ = 0;
  size_t most_owned_ = 0;
};

// Temporaries that grow, and something small that is kept after each: the best fit for it is what
// the temporary left of its chunk, so that every chunk would be kept by 64 bytes.
TEST(PoolFootprint, SmallBlocksThatAreKeptDoNotKeepAChunkEach) {
  for (const size_t kept : {64, 4096, 100000}) {
    Watched watched(kMiB);
    for (size_t bytes = 512 << 10; bytes < kMiB; bytes += 128) {
      std::byte* const temporary = watched.Allocate(bytes);
      watched.Allocate(kept);
      watched.Release(temporary);
    }
    EXPECT_LE(watched.most_owned(), watched.most_live() * 5 / 4 + 3 * kMiB) << kept;
  }
}

// The same with sizes of both drawn at random, and with what is kept going in any order.
TEST(PoolFootprint, TemporariesAndKeptBlocksOfAnySize) {
  for (uint32_t seed = 1; seed <= 8; ++seed) {
    std::mt19937_64 random(seed);
    Watched watched(kMiB);
    std::vector<std::byte*> kept;
    const uint64_t most = uint64_t{64} << seed;
    for (int step = 0; step < 20000; ++step) {
      std::byte* const temporary = watched.Allocate(1 + random() % kMiB);
      kept.push_back(watched.Allocate(1 + random() % most));
      watched.Release(temporary);
      if (kept.size() > 1000) {
        std::swap(kept[random() % kept.size()], kept.back());
        watched.Release(kept.back());
        kept.pop_back();
      }
    }
    EXPECT_LE(watched.most_owned(), watched.most_live() * 5 / 4 + 3 * kMiB) << "seed " << seed;
  }
}

// The worst there is for allocators that move nothing (Robson 1974): all of the budget in blocks of
// one size, of which those stay that keep blocks of twice the size out; and again with those.
TEST(PoolFootprint, RobsonsStream) {
  constexpr size_t kChunk = 64 << 10;
  for (const size_t budget : {16 * kChunk, 64 * kChunk}) {
    for (int factor = 2; factor <= 16; factor *= 2) {
      Watched watched(kChunk);
      for (size_t bytes = 64; bytes <= kChunk; bytes *= factor) {
        while (watched.pool().used_bytes() + bytes <= budget) watched.Allocate(bytes);
        uintptr_t last = UINTPTR_MAX;
        for (std::byte* const data : watched.blocks()) {
          const uintptr_t hole = reinterpret_cast<uintptr_t>(data) / (bytes * factor);
          if (std::exchange(last, hole) == hole) watched.Release(data);
        }
      }
      std::printf("budget %zu, factor %d: owned %.2f times what was live\n", budget, factor,
                  watched.factor());
      EXPECT_LE(watched.most_owned(), watched.Bound(kChunk));
      EXPECT_LE(watched.factor(), 6.0);
    }
  }
}

// A large chunk is kept by a fifth of it at least, also once the pool cuts them up.
TEST(PoolFootprint, LargeChunksAreNotKeptByLessThanAFifth) {
  Watched watched(kMiB);
  for (size_t use = 0; use < 4; ++use) {  // makes room in each
    for (size_t bytes = 2 * kMiB; bytes < 32 * kMiB; bytes *= 2) {
      watched.Release(watched.Allocate(bytes + use * 8192));
    }
    watched.pool().TrimIdle(8);
  }
  std::vector<std::byte*> blocks;
  for (int i = 0; i < 16; ++i) blocks.push_back(watched.Allocate(16 * kMiB));
  for (std::byte* const block : blocks) watched.Release(block);
  for (int i = 0; i < 48; ++i) watched.Allocate(i % 4 == 0 ? 3 * kMiB : 27 * kMiB / 8);
  uintptr_t last = 0;
  for (std::byte* const block : watched.blocks()) {  // the first of each chunk stays
    const auto at = reinterpret_cast<uintptr_t>(block);
    if (at - std::exchange(last, at) < 8 * kMiB) watched.Release(block);
  }
  for (int use = 0; use < 2; ++use) watched.pool().TrimIdle(1);
  EXPECT_LE(watched.pool().owned_bytes(), 5 * watched.pool().used_bytes() + kMiB);
  EXPECT_GE(watched.pool().owned_bytes(), 3 * watched.pool().used_bytes());  // they were cut up
}

// Kinds of uses that take turns within the n of TrimIdle(n): little lives in two of them in a row,
// and what the largest one needs stays all the same. When it comes no more, the bound follows.
TEST(PoolFootprint, KindsInTurnsSettle) {
  AddressResource addresses;
  Pool pool(addresses, 64 << 10, 64);
  const std::vector<std::pair<int, size_t>> kinds = {
      {12, kMiB}, {1, 100 << 10}, {1, 200 << 10}, {1, 7 * kMiB}};
  auto use = [&](const std::pair<int, size_t>& kind) {
    std::vector<void*> live;
    for (int i = 0; i < kind.first; ++i) live.push_back(pool.Allocate(kind.second, 64).token);
    for (void* const token : live) pool.Release(token, kind.second, 64);
    pool.TrimIdle(8);
  };
  size_t requests = 0;
  for (int turn = 0; turn < 40; ++turn) {
    if (turn == 20) requests = addresses.requests();
    for (const auto& kind : kinds) use(kind);
    EXPECT_LE(pool.owned_bytes(), 2 * 12 * kMiB + kMiB);
  }
  EXPECT_EQ(addresses.requests(), requests);
  for (int i = 0; i < 16; ++i) use({1, kMiB});
  use({1, kMiB / 2});
  EXPECT_LE(pool.owned_bytes(), 2 * kMiB + (64 << 10));
}

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

}  // namespace
}  // namespace tidepool
