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

#include "gtest/gtest.h"
#include "tidepool/memory/workspace/pool_service.h"
#include "tidepool/memory/workspace/workspace_pool.h"

namespace {

thread_local uint64_t locks_taken = 0;

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
template <typename Function>
Function* Real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}
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
  EXPECT_GT(locks_taken, 0u) << "they are counted";
  std::printf("held %zu, open %zu\n", most_held.load(), most_open.load());
  EXPECT_LE(most_held.load(), stats.most_open_bytes + stats.most_open_bytes / 5)
      << "ranges of many sizes leave gaps";
  EXPECT_GE(most_open.load(), stats.most_open_bytes / 2);
}

}  // namespace
}  // namespace tidepool
