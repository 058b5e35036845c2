// 64 threads that serve mixed shapes out of one pool, all of them in the middle of a batch at a
// time.
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/provider/host_provider.h"
#include "tidepool/memory/workspace/pool_memory.h"
#include "tidepool/memory/workspace/pool_service.h"
#include "tidepool/memory/workspace/workspace_pool.h"

namespace {

thread_local uint64_t locks_taken = 0;

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
constexpr bool kCountsLocks = true;

template <typename Function>
Function* Real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}
#else
constexpr bool kCountsLocks = false;
#endif

}  // namespace

// What std::mutex and std::shared_mutex call, counted. Sanitizers have their own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
extern "C" {
int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  static auto* const real = Real<int(pthread_mutex_t*)>("pthread_mutex_lock");
  ++locks_taken;
  return real(mutex);
}
int pthread_rwlock_rdlock(pthread_rwlock_t* lock) noexcept {
  static auto* const real = Real<int(pthread_rwlock_t*)>("pthread_rwlock_rdlock");
  ++locks_taken;
  return real(lock);
}
int pthread_rwlock_wrlock(pthread_rwlock_t* lock) noexcept {
  static auto* const real = Real<int(pthread_rwlock_t*)>("pthread_rwlock_wrlock");
  ++locks_taken;
  return real(lock);
}
}
#endif

namespace tidepool {
namespace {

constexpr int kThreads = 64;
constexpr size_t kKinds = 32;
constexpr size_t kRows = 4;  // of the smallest batch: ranges are far larger than what pages come in

TEST(WorkspacePool, SixtyFourThreadsLearnEachShapeOnceLockNothingAndHoldWhatIsOpen) {
  WorkspacePool pool("threads", Quiet());
  // Kinds are met for the first time by any of the threads, several at once.
  RunThreads(kThreads, [&](int thread) {
    for (size_t i = 0; i < kKinds; ++i) {
      PooledScope scope(pool);
      Serve(kRows * (1 + (i + static_cast<size_t>(thread)) % kKinds));
    }
  });
  for (size_t kind = 1; kind <= kKinds; ++kind) {
    PooledScope scope(pool);
    Serve(kRows * kind);
  }
  pool.Trim();  // what the first cycle of each kind was served from
  const WorkspacePoolStats learned = pool.stats();
  EXPECT_EQ(learned.plans, kKinds);
  std::atomic<uint64_t> locks{0};
  std::barrier all_open(kThreads);
  std::atomic<size_t> most_open{0}, most_held{0};
  RunThreads(kThreads, [&](int thread) {
    std::mt19937 random(static_cast<uint32_t>(thread));
    for (int i = 0; i < 40; ++i) {
      const size_t batch = kRows * (1 + random() % kKinds);
      PooledScope scope(pool);
      BufferHandle first = New(batch * 4096 * 2);  // as Serve() does: takes the range
      all_open.arrive_and_wait();
      if (thread == 0) {
        const WorkspacePoolStats stats = pool.stats();
        most_open = std::max(most_open.load(), stats.open_bytes);
        most_held = std::max(most_held.load(), stats.held_bytes);
      }
      all_open.arrive_and_wait();
      const uint64_t before = locks_taken;
      for (int layer = 0; layer < 6; ++layer) {
        BufferHandle scratch = New(batch * 2048 + 64 * static_cast<size_t>(layer));
        first = New(batch * 4096 + 1024 * static_cast<size_t>(layer));
      }
      locks += locks_taken - before;
    }
  });
  const WorkspacePoolStats stats = pool.stats();
  EXPECT_EQ(stats.plans, kKinds) << "each is learned once";
  EXPECT_EQ(stats.misses, learned.misses);
  EXPECT_EQ(stats.spills, learned.spills);
  EXPECT_EQ(locks.load(), 0u) << "on the path of planned requests";
  if (kCountsLocks) {
    EXPECT_GT(locks_taken, 0u) << "they are counted";
  }
  std::printf("held %zu, open %zu\n", most_held.load(), most_open.load());
  EXPECT_LE(most_held.load(), stats.most_open_bytes + stats.most_open_bytes / 10)
      << "gaps between ranges of many sizes go back";
  EXPECT_GE(most_open.load(), stats.most_open_bytes / 2);
}

// Gaps go back where the most is out at once, and nowhere else: what that costs is counted. Sizes
// of one to 32 units in any order, as many out as threads are.
TEST(PoolMemory, RangesOfManySizesHoldATenthMoreThanTheyAre) {
  const WorkspaceConfig config = Quiet();
  for (const size_t count : {8u, 64u}) {
    MemoryOwner& owner = MemoryOwner::Process().Child("fits");
    PoolMemory memory("fits", config, 256, HostProvider(), owner);
    std::mt19937 random(3);
    const auto take = [&] { return memory.Take((1 + random() % kKinds) << 16); };
    std::vector<PoolMemory::Range> out;
    for (size_t i = 0; i < count; ++i) out.push_back(take());
    const auto asked = [] { return MemoryTracker::Global().system_allocations(); };
    constexpr int kRanges = 40000;
    int64_t before = 0;
    for (int i = 0; i < kRanges; ++i) {
      if (i == kRanges / 2) before = asked();
      PoolMemory::Range& one = out[random() % count];
      memory.Give(one);
      one = take();
      const PoolMemory::Usage usage = memory.usage();
      ASSERT_LE(usage.held_bytes, usage.most_range_bytes + usage.most_range_bytes / 10) << i;
    }
    std::printf("%zu out: %ld requests to the system for %d ranges\n", count, asked() - before,
                kRanges / 2);
    EXPECT_LE(asked() - before, kRanges / 2 / 10);
    for (const PoolMemory::Range& one : out) memory.Give(one);
  }
}

}  // namespace
}  // namespace tidepool
