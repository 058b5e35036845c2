// Pools that serve requests of their own alignment and coarse ones: no chunk serves both at once,
// whatever chunks come and go, and the pool's counters say what is live.
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/resource/pages_resource.h"
#include "tidepool/memory/resource/pool.h"
#include "tidepool/memory/resource/testing/address_resource.h"
#include "tidepool/memory/testing/simulated_device.h"

namespace tidepool {
namespace {

constexpr size_t kFine = 64;
constexpr size_t kCoarse = size_t{64} << 10;
constexpr size_t kMiB = size_t{1} << 20;

struct Request {
  size_t bytes, alignment;
};

// A pool, and a model of what it has to know of its live blocks.
class ModelledPool {
 public:
  // `writes`: the memory of `upstream` can be touched.
  ModelledPool(MemoryResource& upstream, bool writes)
      : writes_(writes), pool_(upstream, kMiB / 4, kFine, kGrowth) {}
  ~ModelledPool() {
    while (!live_.empty()) Release(live_.size() - 1);
  }

  void Allocate(const Request& request) {
    const Allocation block = pool_.Allocate(request.bytes, request.alignment);
    ASSERT_TRUE(block);
    const auto begin = reinterpret_cast<uintptr_t>(block.data);
    const size_t all = Footprint(request);
    ASSERT_EQ(begin % (IsCoarse(request) ? kCoarse : kFine), 0u)
        << request.bytes << " bytes at alignment " << request.alignment;
    const auto next = ends_.lower_bound(begin);
    ASSERT_TRUE(next == ends_.end() || next->first >= begin + all) << "overlaps the next block";
    ASSERT_TRUE(next == ends_.begin() || std::prev(next)->second <= begin)
        << "overlaps the block before it";
    ends_[begin] = begin + all;
    live_.push_back({block, request, static_cast<std::byte>(++blocks_)});
    used_bytes_ += all;
    if (!IsCoarse(request)) fine_bytes_ += all;
    ForSomeBytes(live_.back(), [&](std::byte& at) { at = live_.back().value; });
    Check();
  }
  void Release(size_t i) {
    std::swap(live_[i], live_.back());
    const Live one = live_.back();
    live_.pop_back();
    ForSomeBytes(one, [&](const std::byte& at) { EXPECT_EQ(at, one.value); });
    ends_.erase(reinterpret_cast<uintptr_t>(one.block.data));
    used_bytes_ -= Footprint(one.request);
    if (!IsCoarse(one.request)) fine_bytes_ -= Footprint(one.request);
    pool_.Release(one.block.token, one.request.bytes, one.request.alignment);
    Check();
  }
  // A use that allocates all of these and releases them, the oldest first.
  void Use(const std::vector<Request>& requests) {
    const size_t others = live_.size();
    for (const Request& request : requests) Allocate(request);
    while (live_.size() > others) Release(others);
    pool_.TrimIdle(64);
  }
  size_t live() const { return live_.size(); }
  Pool& pool() { return pool_; }

 private:
  static constexpr PoolGrowth kGrowth = {.grows = true, .coarse_alignment = kCoarse};
  struct Live {
    Allocation block;
    Request request;
    std::byte value;
  };

  static bool IsCoarse(const Request& request) { return request.alignment > kFine; }
  static size_t Footprint(const Request& request) {
    const size_t granule = IsCoarse(request) ? kCoarse : kFine;
    return (request.bytes + (request.bytes == 0) + granule - 1) / granule * granule;
  }
  template <typename Function>
  void ForSomeBytes(const Live& one, const Function& function) const {
    if (!writes_ || one.request.bytes == 0) return;
    function(one.block.data[0]);
    function(one.block.data[one.request.bytes / 2]);
    function(one.block.data[one.request.bytes - 1]);
  }
  void Check() {
    ASSERT_EQ(pool_.block_count(), live_.size());
    ASSERT_EQ(pool_.used_bytes(), used_bytes_);
    ASSERT_EQ(pool_.fine_bytes(), fine_bytes_);
    ASSERT_LE(pool_.fine_bytes_beside_arena(), fine_bytes_);
    if (!pool_.has_arena()) {
      ASSERT_EQ(pool_.fine_bytes_beside_arena(), fine_bytes_);
    }
  }

  const bool writes_;
  Pool pool_;
  std::vector<Live> live_;
  std::map<uintptr_t, uintptr_t> ends_;  // by beginning
  size_t blocks_ = 0, used_bytes_ = 0, fine_bytes_ = 0;
};

// A chunk that lay idle after coarse blocks and served others holds more than small uses need, so an
// arena comes in its place.
void MakeSmallArena(ModelledPool& pool, const Request& fine) {
  pool.Use({{kCoarse, kCoarse}});
  for (int use = 0; use < 3; ++use) pool.Use({fine});
  pool.Use({fine});
  ASSERT_TRUE(pool.pool().has_arena());
}

// The coarse block was cut from the idle arena, the next request from what was left of it, and the
// third began where that ended.
TEST(PoolKinds, AnIdleArenaServesNoCoarseBlocks) {
  const Request fine = {1152, kFine}, coarse = {kCoarse, kCoarse};
  AddressResource addresses;
  ModelledPool pool(addresses, /*writes=*/false);
  MakeSmallArena(pool, fine);
  pool.Use({coarse, fine, coarse});
  pool.Use({fine, coarse, fine});
  EXPECT_EQ(pool.pool().fine_bytes(), 0u);
}

// A large one came from the end of the arena, which is no multiple of its alignment.
TEST(PoolKinds, AnIdleArenaServesNoLargeCoarseBlocks) {
  AddressResource addresses;
  ModelledPool pool(addresses, /*writes=*/false);
  // A buffer that doubles leaves chunks of many sizes, until one takes their place.
  std::vector<Request> doubles;
  for (size_t bytes = 4096; bytes <= 8 * kMiB; bytes *= 2) doubles.push_back({bytes, kFine});
  for (int use = 0; use < 10; ++use) {
    pool.Use(doubles);
    pool.Use({{15 * kMiB, kFine}});
  }
  ASSERT_TRUE(pool.pool().has_arena());
  pool.Use({{15 * kMiB, kCoarse}, {15 * kMiB, kFine}, {15 * kMiB, kCoarse}});
}

// While memory comes into an arena, who comes in meanwhile is served elsewhere, also where so much
// lives beside it that it is no larger than the chunks that requests share.
TEST(PoolKinds, NobodyIsServedFromAnArenaIntoWhichMemoryComes) {
  SimulatedDevice& device = SimulatedDevice::Get();
  device.Reset();
  {
    PagesResource pages({.large_pages = false, .prefault = false}, device);
    ModelledPool pool(pages, /*writes=*/false);
    const Request fine = {2 * kMiB, kFine};
    for (int use = 0; use < 10; ++use) {
      pool.Use({{kMiB, kFine}, {kMiB / 2, kFine}, {kMiB / 4, kFine}});
      pool.Use({fine});
    }
    ASSERT_TRUE(pool.pool().has_arena());
    pool.Allocate(fine);  // as much as has memory there
    for (int i = 0; i < 2; ++i) pool.Allocate({200 * kMiB, kCoarse});
    ASSERT_TRUE(pool.pool().has_arena());
    int came_in = 0;
    const Reclaimer::Registration comes_in =
        Reclaimer::Global().Register("comes in", [&](ReclaimDepth) -> int64_t {
          device.set_capacity(size_t{1} << 30);
          if (came_in++ == 0) pool.Allocate({kMiB / 4, kFine});
          return 1;
        });
    device.set_capacity(device.used_bytes());
    pool.Allocate(fine);
    EXPECT_GT(came_in, 0);
    EXPECT_EQ(device.used_bytes(), pool.pool().owned_bytes());
  }
  EXPECT_EQ(device.used_bytes(), 0u);
  device.Reset();
}

// Uses of few requests that come once, some times, or often, now and then with blocks that outlive
// them: arenas come, go and lie idle while requests of either kind come.
void PlayUses(MemoryResource& upstream, bool writes, uint32_t seed) {
  ModelledPool pool(upstream, writes);
  std::mt19937 random(seed);
  for (int phase = 0; phase < 40; ++phase) {
    const size_t times = random() % 2 == 0 ? 1 + random() % 5 : 1 + random() % 100;
    const uint32_t use_seed = random();
    const size_t count = random() % 8, kinds = random() % 4;
    const int log_bytes = 6 + static_cast<int>(random() % 15);
    for (size_t time = 0; time < times; ++time) {
      std::mt19937 use(use_seed);
      for (size_t i = 0; i < count; ++i) {
        const bool coarse = kinds == 0 || (kinds < 3 && use() % 2 == 0);
        Request request = {use() % (size_t{1} << log_bytes), size_t{1} << use() % 7};
        if (coarse) request.alignment = size_t{128} << use() % 10;
        if (coarse && use() % 4 > 0) request.bytes = kCoarse;
        pool.Allocate(request);
        if (testing::Test::HasFatalFailure()) return;
        if (use() % 3 == 0) pool.Release(use() % pool.live());
      }
      const size_t kept = random() % 8 == 0 ? random() % 2 : 0;
      while (pool.live() > kept) pool.Release(pool.live() - 1);
      pool.pool().TrimIdle(64);
    }
    if (random() % 8 == 0) pool.pool().Trim();
  }
}

TEST(PoolKinds, NoChunkServesBothAtOnceWhateverComesAndGoes) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    AddressResource addresses;
    PlayUses(addresses, /*writes=*/false, seed);
    ASSERT_EQ(addresses.taken_bytes(), 0u);
    PagesResource pages;
    PlayUses(pages, /*writes=*/true, seed);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace tidepool
