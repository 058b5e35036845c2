// WorkerPool: threads for kernels, and loops that use them. //backends/cpu runs on it; kernels of other
// repositories may.
//
// Made for machines whose cores other processes want too. A call never waits for a worker that has
// not begun: the caller works through the tasks itself, and workers that wake in time take some.
// It waits only for tasks under way, a few microseconds spinning, then asleep, so that a preempted
// worker can have the caller's core. (pthreadpool's callers wait for every worker to check in: with
// one core taken, calls of 100 us take a scheduler's quantum of milliseconds.)
//
// Each thread begins with tasks of its own, neighbours, which are the same in every call of as many tasks, and takes what others
// have left when it is through. So what one operator wrote lies in the cache of the core that reads it in the next.
//
// Threads: calls from several threads at once are right; those that find the pool busy run their
// tasks alone, as do calls from inside a task.
//
// After fork() the child has none of the workers: a pool from before runs tasks on the calling thread
// and may be destroyed there; PoolOf gives a new one.
#ifndef TIDEPOOL_NDARRAY_KERNEL_THREAD_POOL_H_
#define TIDEPOOL_NDARRAY_KERNEL_THREAD_POOL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "tidepool/ndarray/kernel/threads.h"

namespace tidepool {

class WorkerPool final : public ThreadPool {
 public:
  // `threads` includes the calling thread. Where the system refuses threads the pool has fewer.
  explicit WorkerPool(int threads);
  ~WorkerPool() override;
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int threads() const override { return static_cast<int>(workers_.size()) + 1; }

  void Run(int64_t tasks, absl::FunctionRef<void(int64_t index, int slot)> task) override;

 private:
  struct Job {
    int slots = 0;
    const absl::FunctionRef<void(int64_t, int)>* task = nullptr;
  };

  // The tasks that a slot begins with, or what is left of them. A line of the cache each.
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };

  void Work(int slot);
  void TakeTasks(int slot);

  // One word that threads sleep on: job number, whether the job can be joined, how many workers are
  // inside it.
  std::atomic<uint32_t> state_{0};
  std::atomic<int> sleepers_{0};
  std::atomic<bool> caller_sleeps_{false};
  std::atomic<bool> busy_{false};
  std::atomic<bool> stop_{false};
  // Written while no worker is inside and none can join:
  Job job_;
  const std::unique_ptr<Share[]> shares_;  // by slot

  std::vector<std::thread> workers_;
  const int process_;  // how many forks there were above the process that has the workers
};

// The pool that was handed in, which nobody owns here, or the shared one for so many threads, kept; null for one
// thread. A call that uses a pool keeps it alive.
std::shared_ptr<ThreadPool> PoolOf(Threads threads);

// Waking a worker costs microseconds: work of fewer elementary operations than this stays on the
// calling thread.
inline constexpr int64_t kMinParallelWork = 1 << 18;

// body(begin, end) over [0, count) in pieces of `grain`, which below 1 is as 1. The pieces are the same for any number of
// threads. `work`: elementary operations in all.
void ParallelFor(Threads threads, int64_t count, int64_t grain, int64_t work,
                 absl::FunctionRef<void(int64_t, int64_t)> body);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_KERNEL_THREAD_POOL_H_
