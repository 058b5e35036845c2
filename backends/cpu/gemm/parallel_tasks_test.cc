#include "tidepool/backends/cpu/gemm/parallel_tasks.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/ndarray/kernel/thread_pool.h"

namespace tidepool::cpu {
namespace {

TEST(ParallelTasksTest, EachTaskOnceAndSlotsNeverOverlap) {
  for (int threads : {0, 1, 2, 3}) {
    const std::unique_ptr<ThreadPool> owned =
        threads == 0 ? nullptr : std::make_unique<WorkerPool>(threads);
    ThreadPool* const pool = owned.get();
    EXPECT_EQ(PoolThreads(pool), std::max(threads, 1));
    for (int64_t tasks : {0, 1, 2, 5, 1000}) {
      std::vector<std::atomic<int>> runs(tasks), busy(3);
      std::atomic<bool> overlapped = false, slot_too_high = false;
      ParallelTasks(pool, tasks, [&](int64_t index, int slot) {
        if (slot >= std::min<int64_t>(tasks, PoolThreads(pool))) slot_too_high = true;
        if (busy[slot].fetch_add(1) != 0) overlapped = true;
        runs[index].fetch_add(1);
        busy[slot].fetch_sub(1);
      });
      EXPECT_FALSE(overlapped);
      EXPECT_FALSE(slot_too_high);
      for (int64_t i = 0; i < tasks; ++i) ASSERT_EQ(runs[i], 1) << i << " of " << tasks;
    }
  }
}

}  // namespace
}  // namespace tidepool::cpu
