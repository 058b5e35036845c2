// The threads that a kernel may use: how many, and whose.
//
// The calling thread's kernels run on one pool of ThreadCount() threads (registry.h) that all share, unless the
// program hands in its own:
//
//   class Mine final : public ThreadPool { ... };      // or WorkerPool(4), thread_pool.h
//   ThreadPoolScope scope(mine);                       // what this thread computes from here on runs there
//
// Results do not depend on either. Kernels find them in KernelCall::threads and pass that to ParallelFor (thread_pool.h).
#ifndef TIDEPOOL_NDARRAY_KERNEL_THREADS_H_
#define TIDEPOOL_NDARRAY_KERNEL_THREADS_H_

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace tidepool {

// A pool of threads that kernels compute on.
class ThreadPool {
 public:
  virtual ~ThreadPool() = default;

  // At least 1; always the same. The calling thread counts where it takes part.
  virtual int threads() const = 0;
  // task(index, slot) once for each index below `tasks`; slot < min(tasks, threads()) differs between tasks
  // that overlap in time. Returns when all have finished. Tasks do not throw. Any thread, also from
  // inside a task; where that would wait, the caller runs its tasks alone in slot 0.
  virtual void Run(int64_t tasks, absl::FunctionRef<void(int64_t index, int slot)> task) = 0;
};

// How many threads a kernel may use, and of which pool: KernelCall::threads, which ParallelFor
// takes.
struct Threads {
  constexpr Threads(int its_count = 1)
      : count(its_count) {}  // NOLINT: a number is threads of the shared pool
  Threads(ThreadPool& its_pool) : count(its_pool.threads()), pool(&its_pool) {}  // NOLINT

  int count;                   // at most this many
  ThreadPool* pool = nullptr;  // null: the one that all share, of `count` threads
};

// While it lives, kernels that this thread calls use `pool`, which outlives it. Its thread's, as blocks nest.
class [[nodiscard]] ThreadPoolScope {
 public:
  explicit ThreadPoolScope(ThreadPool& pool) : outer_(pool_) { pool_ = &pool; }
  ~ThreadPoolScope() { pool_ = outer_; }
  ThreadPoolScope(const ThreadPoolScope&) = delete;
  ThreadPoolScope& operator=(const ThreadPoolScope&) = delete;

  static ThreadPool* Current() { return pool_; }  // null: none was handed in

 private:
  static thread_local constinit ThreadPool* pool_;
  ThreadPool* const outer_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_KERNEL_THREADS_H_
