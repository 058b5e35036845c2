// WorkerGroup: threads that stay, each with its own number, for what keeps state by thread.
//
//   WorkerGroup group(4, 1);                       // the calling thread is worker 0
//   group.Run(4, [&](int worker) { networks[worker].ComputeGradients(...); });
//
// Each worker's kernels run on as many threads as it was given, none of which another worker uses.
//
// Threads: Run on one at a time. Errors: what a worker throws comes out of Run, of the lowest
// number of those that threw, once all are done; an Error says which worker it was.
#ifndef TIDEPOOL_NN_PARALLEL_WORKER_GROUP_H_
#define TIDEPOOL_NN_PARALLEL_WORKER_GROUP_H_

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "tidepool/ndarray/kernel/threads.h"

namespace tidepool::nn {

class WorkerGroup {
 public:
  static constexpr int kMostWorkers = 4096;

  // 1 to kMostWorkers workers, of at least one thread each (kInvalidArgument). `name` begins messages.
  // Throws kResourceExhausted where the system refuses a thread.
  WorkerGroup(std::string name, int workers, int threads_of_worker);
  ~WorkerGroup();
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;

  int workers() const { return static_cast<int>(pools_.size()); }

  // task(worker) for each worker below `count`; returns when all of them have returned.
  void Run(int count, absl::FunctionRef<void(int worker)> task);

 private:
  void Loop(int worker);
  void RunOne(int worker, absl::FunctionRef<void(int worker)> task);
  void Stop();

  const std::string name_;
  std::vector<std::unique_ptr<ThreadPool>> pools_;  // by worker
  std::vector<std::exception_ptr> errors_;          // by worker, each written by its own
  std::mutex mutex_;
  std::condition_variable begins_, ends_;
  // Guarded by mutex_:
  const absl::FunctionRef<void(int)>* task_ = nullptr;
  uint64_t round_ = 0;
  int count_ = 0;    // of the round
  int running_ = 0;  // beside worker 0
  bool stop_ = false;

  std::vector<std::thread> threads_;  // of workers 1 and on
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_PARALLEL_WORKER_GROUP_H_
