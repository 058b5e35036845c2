#include "tidepool/ndarray/kernel/thread_pool.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/testing/refused_threads.h"

namespace tidepool {
namespace {

TEST(ThreadPool, RunsEachTaskOnceInDistinctSlots) {
  for (int threads : {1, 2, 3, 8}) {
    WorkerPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int64_t tasks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> runs(tasks);
      std::vector<std::atomic<int>> in_slot(threads);
      std::atomic<bool> shared_slot{false}, bad_slot{false};
      pool.Run(tasks, [&](int64_t index, int slot) {
        if (slot >= std::min<int64_t>(tasks, threads)) bad_slot = true;
        if (in_slot[slot].fetch_add(1) != 0) shared_slot = true;
        runs[index].fetch_add(1);
        in_slot[slot].fetch_sub(1);
      });
      EXPECT_FALSE(shared_slot);
      EXPECT_FALSE(bad_slot);
      for (const auto& count : runs) ASSERT_EQ(count.load(), 1);
    }
  }
}

// Nobody goes on before all have begun, so each has its first task before it could take another's.
TEST(ThreadPool, EachThreadBeginsWithTasksOfItsOwn) {
  constexpr int kThreads = 3;
  constexpr int64_t kTasks = 20;  // 7, 7 and 6
  WorkerPool pool(kThreads);
  ASSERT_EQ(pool.threads(), kThreads);
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> begun{0};
    std::vector<std::vector<int64_t>> of_slot(kThreads);
    pool.Run(kTasks, [&](int64_t index, int slot) {
      of_slot[static_cast<size_t>(slot)].push_back(index);
      if (of_slot[static_cast<size_t>(slot)].size() > 1) return;
      ++begun;
      while (begun.load() < kThreads) std::this_thread::yield();
    });
    constexpr int64_t kFirst[] = {0, 7, 14};
    for (size_t slot = 0; slot < kThreads; ++slot) {
      ASSERT_EQ(of_slot[slot][0], kFirst[slot]) << "slot " << slot << " in round " << round;
    }
  }
}

TEST(ThreadPool, WhoIsThroughTakesWhatOthersHaveLeft) {
  WorkerPool pool(2);
  ASSERT_EQ(pool.threads(), 2);
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  std::atomic<int> done{0};
  // Whoever has task 0 waits until all others are done, of which some were its own.
  pool.Run(10, [&](int64_t index, int) {
    while (index == 0 && done.load() < 9 && std::chrono::steady_clock::now() < patience) {
      std::this_thread::yield();
    }
    if (index == 0) {
      EXPECT_EQ(done.load(), 9);
    }
    ++done;
  });
  EXPECT_EQ(done.load(), 10);
}

TEST(ThreadPool, WithoutThreadsTheCallerDoesItAll) {
  const RefusedThreads refused;
  WorkerPool pool(4);
  EXPECT_EQ(pool.threads(), 1);
  int64_t sum = 0;
  pool.Run(10, [&](int64_t index, int slot) {
    EXPECT_EQ(slot, 0);
    sum += index;
  });
  EXPECT_EQ(sum, 45);
}

// What a child does in a process of its own, which a signal ends if it hangs. 0: as expected.
int InChild(const std::function<bool()>& child) {
  const pid_t id = fork();
  if (id == 0) {
    alarm(30);
    _exit(child() ? 0 : 1);
  }
  int status = 0;
  waitpid(id, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

int64_t SumOf(ThreadPool& pool, int64_t tasks) {
  std::atomic<int64_t> sum{0};
  pool.Run(tasks, [&](int64_t index, int) { sum += index; });
  return sum;
}

// Its workers are the parent's: the child waits for none of them, neither in a job nor at the pool's end.
TEST(ThreadPool, AChildUsesAndDestroysAPoolOfItsParent) {
  auto pool = std::make_unique<WorkerPool>(3);
  EXPECT_EQ(SumOf(*pool, 100), 4950);
  EXPECT_EQ(InChild([&] {
              if (SumOf(*pool, 100) != 4950) return false;
              WorkerPool other(3);  // its workers may have the places of those that are not here
              pool.reset();
              return SumOf(other, 100) == 4950;
            }),
            0);
  EXPECT_EQ(SumOf(*pool, 100), 4950);
}

TEST(ThreadPool, AChildHasASharedPoolOfItsOwn) {
#if defined(__SANITIZE_THREAD__)
  constexpr int kThreadsThere = 1;  // it refuses them
#else
  constexpr int kThreadsThere = 3;
#endif
  const std::shared_ptr<ThreadPool> before = PoolOf(3);
  EXPECT_EQ(InChild([&] {
              const std::shared_ptr<ThreadPool> here = PoolOf(3);
              return here != before && here->threads() == kThreadsThere &&
                     SumOf(*here, 100) == 4950 && PoolOf(3) == here && PoolOf(2) != here;
            }),
            0);
  EXPECT_EQ(PoolOf(3), before);
}

// Jobs follow each other faster than workers wake: a late worker must never touch the next job's
// state through an old one.
TEST(ThreadPool, ManyShortJobsInARow) {
  WorkerPool pool(4);
  for (int round = 0; round < 50000; ++round) {
    int64_t tasks = 1 + round % 5;
    std::atomic<int64_t> sum{0};
    pool.Run(tasks, [&](int64_t index, int) { sum.fetch_add(index + 1); });
    ASSERT_EQ(sum.load(), tasks * (tasks + 1) / 2);
  }
}

TEST(ThreadPool, CallsFromSeveralThreadsAndFromInsideATaskAreRight) {
  WorkerPool pool(3);
  std::atomic<int64_t> sum{0};
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t) {
    callers.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        pool.Run(4, [&](int64_t, int) {
          pool.Run(3, [&](int64_t, int) { sum.fetch_add(1, std::memory_order_relaxed); });
        });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum.load(), 4 * 500 * 4 * 3);
}

TEST(ThreadPool, WorkersWakeAfterSleeping) {
  WorkerPool pool(2);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // long enough to fall asleep
    std::atomic<int> inside{0};
    pool.Run(2, [&](int64_t, int) { inside.fetch_add(1); });
    EXPECT_EQ(inside.load(), 2);
  }
}

TEST(ParallelFor, PiecesAreTheSameForAnyThreadCount) {
  for (int threads : {1, 2, 5}) {
    std::vector<std::pair<int64_t, int64_t>> pieces(4);
    ParallelFor(threads, 103, 30, kMinParallelWork, [&](int64_t begin, int64_t end) {
      pieces[begin / 30] = {begin, end};
    });
    EXPECT_EQ(pieces[0], std::make_pair(int64_t{0}, int64_t{30}));
    EXPECT_EQ(pieces[3], std::make_pair(int64_t{90}, int64_t{103}));
  }
  ParallelFor(2, 0, 30, 1 << 20, [&](int64_t, int64_t) { FAIL(); });
}

TEST(ParallelFor, AnyGrain) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max(),
                    kLeast = std::numeric_limits<int64_t>::min();
  using Pieces = std::vector<std::pair<int64_t, int64_t>>;
  const auto pieces = [](int64_t count, int64_t grain, Threads threads) {
    Pieces pieces(static_cast<size_t>(count));
    ParallelFor(threads, count, grain, kMost, [&](int64_t begin, int64_t end) {
      pieces[static_cast<size_t>(begin)] = {begin, end};
    });
    return pieces;
  };
  for (const int threads : {1, 3}) {
    for (const int64_t grain : {int64_t{3}, int64_t{7}, kMost - 3, kMost}) {
      EXPECT_EQ(pieces(3, grain, threads), (Pieces{{0, 3}, {0, 0}, {0, 0}})) << grain;
    }
    for (const int64_t grain : {int64_t{1}, int64_t{0}, int64_t{-2}, kLeast}) {
      EXPECT_EQ(pieces(3, grain, threads), (Pieces{{0, 1}, {1, 2}, {2, 3}})) << grain;
    }
    // To the end of what can be counted.
    std::atomic<int64_t> done{0};
    ParallelFor(threads, kMost, kMost / 2, kMost,
                [&](int64_t begin, int64_t end) { done += end - begin; });
    EXPECT_EQ(done, kMost);
    ParallelFor(threads, kLeast, 5, kMost, [&](int64_t, int64_t) { FAIL(); });
  }
}

// A pool that a program hands in, which counts.
class CountingPool final : public ThreadPool {
 public:
  int threads() const override { return 3; }
  void Run(int64_t tasks, absl::FunctionRef<void(int64_t, int)> task) override {
    ++runs;
    for (int64_t index = tasks - 1; index >= 0; --index) task(index, static_cast<int>(index % 3));
  }
  int runs = 0;
};

TEST(ThreadPool, ProgramsHandInTheirOwn) {
  CountingPool pool, inner;
  EXPECT_EQ(ThreadPoolScope::Current(), nullptr);
  {
    const ThreadPoolScope scope(pool);
    EXPECT_EQ(ThreadPoolScope::Current(), &pool);
    {
      const ThreadPoolScope nested(inner);
      EXPECT_EQ(ThreadPoolScope::Current(), &inner);
      std::thread([] { EXPECT_EQ(ThreadPoolScope::Current(), nullptr); }).join();
    }
    EXPECT_EQ(ThreadPoolScope::Current(), &pool);
  }
  EXPECT_EQ(ThreadPoolScope::Current(), nullptr);
  const Threads threads(pool);
  EXPECT_EQ(threads.count, 3);
  EXPECT_EQ(PoolOf(threads).get(), &pool);
  int64_t sum = 0;
  ParallelFor(threads, 100, 7, kMinParallelWork,
              [&](int64_t begin, int64_t end) { sum += end - begin; });
  EXPECT_EQ(sum, 100);
  EXPECT_EQ(pool.runs, 1);
  ParallelFor(threads, 100, 7, kMinParallelWork - 1, [&](int64_t, int64_t) {});  // not worth it
  EXPECT_EQ(pool.runs, 1);
}

}  // namespace
}  // namespace tidepool
