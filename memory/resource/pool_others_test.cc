// What a pool wraps may give a lock up meanwhile, and may tell its chunks apart.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/resource/memory_resource.h"
#include "tidepool/memory/resource/pages_resource.h"
#include "tidepool/memory/resource/pool.h"

namespace tidepool {
namespace {

PagesOptions Untouched() {
  PagesOptions options;
  options.prefault = false;
  return options;
}

// What it wraps may give a lock up while it takes a chunk: others come in in the middle of a request.
class LetsOthersIn final : public ResourceWrapper {
 public:
  explicit LetsOthersIn(MemoryResource& upstream) : ResourceWrapper(upstream) {}
  Allocation Allocate(size_t bytes, size_t alignment) override {
    if (others && depth_ < 3) {
      ++depth_;
      others();
      --depth_;
    }
    return upstream().Allocate(bytes, alignment);
  }
  void Release(void* token, size_t bytes, size_t alignment) noexcept override {
    upstream().Release(token, bytes, alignment);
  }
  std::string Describe() const override { return upstream().Describe(); }

  std::function<void()> others;

 private:
  int depth_ = 0;
};

// Sizes drawn anew in each use, of which so much is alive at most: what was held beside it was an eighth, so that up to 550
// requests in each use, and 22 times the time of a malloc, went to memory that came and went.
TEST(PoolInParts, DrawnSizesSettle) {
  struct Case {
    size_t least, most, alive;
    int requests, asked;  // of a use; of the system in a use
  };
  for (const Case& drawn : {Case{16, 1000000, size_t{32} << 20, 3000, 15},
                            Case{10000, 1000000, size_t{32} << 20, 3000, 15},
                            Case{16, 10000000, size_t{109} << 20, 1000, 60},
                            Case{16, 1000000, size_t{8} << 20, 1000, 15}}) {
    PagesResource pages(Untouched());
    Pool pool(pages, size_t{1} << 20, 64, {.grows = true});
    std::mt19937 random(7);
    size_t peak = 0, owned = 0;
    int64_t before = 0;
    constexpr int kUses = 160;
    for (int use = 0; use < kUses; ++use) {
      if (use == kUses / 2) before = MemoryTracker::Global().system_allocations();
      std::vector<std::pair<void*, size_t>> live;
      size_t bytes_live = 0;
      const auto drop = [&](size_t at) {
        pool.Release(live[at].first, live[at].second, 64);
        bytes_live -= live[at].second;
        live[at] = live.back();
        live.pop_back();
      };
      for (int i = 0; i < drawn.requests; ++i) {
        const double share = random() / 4294967296.0;
        const double ratio = static_cast<double>(drawn.most) / static_cast<double>(drawn.least);
        const auto bytes = static_cast<size_t>(drawn.least * std::pow(ratio, share));
        live.emplace_back(pool.Allocate(bytes, 64).token, bytes);
        peak = std::max(peak, bytes_live += bytes);
        owned = std::max(owned, pool.owned_bytes());
        while (bytes_live > drawn.alive) drop(random() % live.size());
      }
      while (!live.empty()) drop(live.size() - 1);
      pool.TrimIdle(64);
    }
    const int64_t asked =
        (MemoryTracker::Global().system_allocations() - before) / (kUses - kUses / 2);
    std::printf("%zu to %zu bytes: %d requests to the system in a use, %.2f times what was live\n",
                drawn.least, drawn.most, static_cast<int>(asked),
                static_cast<double>(owned) / static_cast<double>(peak));
    EXPECT_LE(asked, drawn.asked) << drawn.least << " to " << drawn.most;
    EXPECT_LE(owned, peak + peak / 16 * 10 + (size_t{2} << 20));
  }
}

TEST(Pool, OthersMayComeInWhileAChunkIsTaken) {
  PagesResource pages(Untouched());
  LetsOthersIn below(pages);
  Pool pool(below, 8 << 10, 64);
  struct Block {
    Allocation allocation;
    size_t bytes;
    unsigned char value;
  };
  std::vector<Block> live;
  std::mt19937 random(1);
  unsigned char next = 0;
  const auto allocate = [&](size_t bytes) {
    const Allocation block = pool.Allocate(bytes, 64);
    std::memset(block.data, ++next, bytes);
    live.push_back({block, bytes, next});
  };
  const auto release = [&](size_t which) {
    const Block block = std::exchange(live[which], live.back());
    live.pop_back();
    for (const size_t at : {size_t{0}, block.bytes / 2, block.bytes - 1}) {
      ASSERT_EQ(static_cast<unsigned char>(block.allocation.data[at]), block.value);
    }
    pool.Release(block.allocation.token, block.bytes, 64);
  };
  const auto step = [&] {
    const uint32_t what = random() % 64;
    if (what == 0) pool.Trim();
    if (what == 1) pool.TrimIdle(2);
    if (what < 36) return allocate(1 + random() % (what < 4 ? 30000 : 700));
    if (!live.empty()) release(random() % live.size());
  };
  below.others = [&] {
    for (uint32_t i = random() % 200; i > 0; --i) step();
  };
  for (int i = 0; i < 10000; ++i) {
    step();
    while (live.size() > 2000) release(random() % live.size());
  }
  below.others = nullptr;
  while (!live.empty()) release(live.size() - 1);
  EXPECT_EQ(pool.used_bytes(), 0u);
  pool.Trim();
  EXPECT_EQ(pool.owned_bytes(), 0u);
}

TEST(Pool, GivesBackTheChunksThatItIsTold) {
  PagesResource pages(Untouched());
  Pool pool(pages, 8 << 10, 64);
  const Allocation a = pool.Allocate(100000, 64);
  const Allocation b = pool.Allocate(200000, 64);
  std::vector<void*> seen;
  const auto none = [&](void* token) {
    seen.push_back(token);
    return false;
  };
  EXPECT_EQ(pool.TrimIf(none), 0u);
  EXPECT_TRUE(seen.empty()) << "in use";
  pool.Release(a.token, 100000, 64);
  pool.Release(b.token, 200000, 64);
  EXPECT_EQ(pool.TrimIf(none), 0u);
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_GE(pool.TrimIf([&](void* token) { return token == seen[1]; }), 200000u);
  EXPECT_EQ(pool.chunk_count(), 1u);
  pool.Release(pool.Allocate(100000, 64).token, 100000, 64);
  EXPECT_EQ(pool.chunk_count(), 1u);
}

// Of blocks that lie by themselves all that is released goes back; small ones share chunks all the same.
TEST(Pool, ChunksOfOneBlockGoBackWithoutTheOthers) {
  for (const bool of_one : {false, true}) {
    PagesResource pages(Untouched());
    Pool pool(pages, size_t{1} << 20, 64);
    if (of_one) pool.TakeChunksOfOne();
    std::vector<Allocation> blocks;
    for (int i = 0; i < 9; ++i) blocks.push_back(pool.Allocate(300000, 64));
    for (int i = 0; i < 9; ++i) {
      if (i % 3 != 0) pool.Release(blocks[i].token, 300000, 64);
    }
    pool.Trim();
    const size_t kept = pool.owned_bytes();
    if (of_one) {
      EXPECT_LE(kept, 3u * (300000 + 8192));
    } else {
      EXPECT_GE(kept, 8u * 300000);
    }
    for (int i = 0; i < 9; i += 3) pool.Release(blocks[i].token, 300000, 64);
    const Allocation first = pool.Allocate(1000, 64), second = pool.Allocate(1000, 64);
    EXPECT_EQ(second.data - first.data, 1024);
    pool.Release(first.token, 1000, 64);
    pool.Release(second.token, 1000, 64);
  }
}

// Nor does a chunk of one block stay for a smaller one, of whatever size, that comes when it was released.
TEST(Pool, ChunksOfOneBlockServeNothingElse) {
  for (const size_t next : {size_t{64}, size_t{40000}, size_t{200000}, size_t{280000}}) {
    PagesResource pages(Untouched());
    Pool pool(pages, size_t{1} << 20, 64);
    pool.TakeChunksOfOne();
    pool.Release(pool.Allocate(300000, 64).token, 300000, 64);
    const Allocation block = pool.Allocate(next, 64);
    pool.Trim();
    EXPECT_LE(pool.owned_bytes(), std::max<size_t>(next, 65536) + 8192) << next;
    pool.Release(block.token, next, 64);
    // What is as large does, so that cycles that are alike do not ask the system each time.
    pool.Release(pool.Allocate(300000, 64).token, 300000, 64);
    pool.Release(pool.Allocate(298000, 64).token, 298000, 64);
    EXPECT_EQ(pool.chunk_count(), 2u) << next;
  }
}

// Who was refused memory may have more of it later.
TEST(Pool, BlocksDoNotLieByThemselvesForEver) {
  PagesResource pages(Untouched());
  Pool pool(pages, size_t{1} << 20, 64);
  int use = 0;
  const auto chunks = [&] {
    std::vector<Allocation> blocks;
    for (int i = 0; i < 8; ++i) blocks.push_back(pool.Allocate(100000, 64));
    const size_t count = pool.chunk_count();
    for (const Allocation& block : blocks) pool.Release(block.token, 100000, 64);
    pool.TrimIdle(1);
    ++use;
    return count;
  };
  EXPECT_EQ(chunks(), 1u);
  pool.Trim();
  pool.TakeChunksOfOne();
  for (use = 0; use < 60;) EXPECT_EQ(chunks(), 8u) << use;
  pool.TakeChunksOfOne();
  for (use = 0; use < 60;) EXPECT_EQ(chunks(), 8u) << use;
  for (use = 0; use < 20;) chunks();
  EXPECT_EQ(chunks(), 1u);
}

// However many there are: a look at each chunk for each of them would take for ever.
TEST(Pool, ManySmallBlocksShareChunksAlthoughBlocksLieByThemselves) {
  PagesResource pages(Untouched());
  Pool pool(pages, size_t{1} << 20, 64);
  pool.TakeChunksOfOne();
  std::vector<Allocation> blocks;
  for (int i = 0; i < 20000; ++i) blocks.push_back(pool.Allocate(40000, 64));
  EXPECT_LE(pool.chunk_count(), 8000u);
  for (const Allocation& block : blocks) pool.Release(block.token, 40000, 64);
}

}  // namespace
}  // namespace tidepool
