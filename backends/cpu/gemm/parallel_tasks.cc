#include "tidepool/backends/cpu/gemm/parallel_tasks.h"

#include <algorithm>
#include <atomic>

namespace tidepool::cpu {
namespace {

struct Shared {
  std::atomic<int64_t> next{0};
  int64_t tasks;
  absl::FunctionRef<void(int64_t, int)> task;
};

void RunSlot(void* context, size_t slot) {
  Shared& shared = *static_cast<Shared*>(context);
  for (;;) {
    const int64_t index = shared.next.fetch_add(1, std::memory_order_relaxed);
    if (index >= shared.tasks) return;
    shared.task(index, static_cast<int>(slot));
  }
}

}  // namespace

int PoolThreads(pthreadpool_t pool) {
  return pool == nullptr ? 1 : static_cast<int>(pthreadpool_get_threads_count(pool));
}

void ParallelTasks(pthreadpool_t pool, int64_t tasks, absl::FunctionRef<void(int64_t, int)> task) {
  const int64_t slots = std::min<int64_t>(tasks, PoolThreads(pool));
  if (slots <= 1) {
    for (int64_t index = 0; index < tasks; ++index) task(index, 0);
    return;
  }
  Shared shared = {.tasks = tasks, .task = task};
  // Workers that spin between calls cost a time slice per call as soon as another process wants the
  // processor; sleeping ones cost a microsecond to wake.
  pthreadpool_parallelize_1d(pool, RunSlot, &shared, static_cast<size_t>(slots),
                             PTHREADPOOL_FLAG_YIELD_WORKERS);
}

}  // namespace tidepool::cpu
