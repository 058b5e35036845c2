#include "tidepool/backends/cpu/gemm/parallel_tasks.h"

#include "tidepool/ndarray/kernel/thread_pool.h"

namespace tidepool::cpu {

int PoolThreads(ThreadPool* pool) { return pool == nullptr ? 1 : pool->threads(); }

void ParallelTasks(ThreadPool* pool, int64_t tasks, absl::FunctionRef<void(int64_t, int)> task) {
  if (pool != nullptr) return pool->Run(tasks, task);
  for (int64_t index = 0; index < tasks; ++index) task(index, 0);
}

}  // namespace tidepool::cpu
