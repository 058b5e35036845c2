// Runs independent tasks on a thread pool, each thread with a slot of scratch memory of its own.
#ifndef TIDEPOOL_BACKENDS_CPU_GEMM_PARALLEL_TASKS_H_
#define TIDEPOOL_BACKENDS_CPU_GEMM_PARALLEL_TASKS_H_

#include <stdint.h>

#include "absl/functional/function_ref.h"

namespace tidepool {
class ThreadPool;  // ndarray/kernel/threads.h
}

namespace tidepool::cpu {

// 1 for a null pool.
int PoolThreads(ThreadPool* pool);

// Calls `task(index, slot)` once for each index below `tasks`, concurrently; slot < min(tasks,
// PoolThreads(pool)) is different for calls that overlap. Indices are taken in order by whoever is
// free. Does not throw and returns when all have finished. The pool may be null.
void ParallelTasks(ThreadPool* pool, int64_t tasks,
                   absl::FunctionRef<void(int64_t index, int slot)> task);

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_GEMM_PARALLEL_TASKS_H_
