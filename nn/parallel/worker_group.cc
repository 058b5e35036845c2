#include "tidepool/nn/parallel/worker_group.h"

#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/error_context.h"
#include "tidepool/ndarray/kernel/thread_pool.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {

WorkerGroup::WorkerGroup(std::string name, int workers, int threads_of_worker)
    : name_(std::move(name)) {
  if (workers < 1 || threads_of_worker < 1) {
    ThrowInvalidArgument(absl::StrCat(name_, ": ", workers, " workers of ", threads_of_worker,
                                      " threads, expected at least one of each"));
  }
  if (workers > kMostWorkers) {
    ThrowInvalidArgument(
        absl::StrCat(name_, ": ", workers, " workers, expected at most ", kMostWorkers));
  }
  for (int worker = 0; worker < workers; ++worker)
    pools_.push_back(std::make_unique<WorkerPool>(threads_of_worker));
  errors_.resize(static_cast<size_t>(workers));
  try {
    for (int worker = 1; worker < workers; ++worker)
      threads_.emplace_back(&WorkerGroup::Loop, this, worker);
  } catch (const std::system_error& error) {
    const size_t started = threads_.size() + 1;
    Stop();
    ThrowResourceExhausted(absl::StrCat(name_, ": the system has no thread for worker ", started,
                                        " of ", workers, ": ", error.code().message()));
  }
}

WorkerGroup::~WorkerGroup() { Stop(); }

void WorkerGroup::Stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  begins_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void WorkerGroup::RunOne(int worker, absl::FunctionRef<void(int worker)> task) {
  const auto at = static_cast<size_t>(worker);
  try {
    const ThreadPoolScope own(*pools_[at]);
    task(worker);
  } catch (...) {
    // Workers may have met the same one.
    errors_[at] = WithContext<DivergedError>(std::current_exception(),
                                             absl::StrCat(name_, ": worker ", worker));
  }
}

void WorkerGroup::Loop(int worker) {
  uint64_t seen = 0;
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    begins_.wait(lock, [&] { return stop_ || (round_ != seen && worker < count_); });
    if (stop_) return;
    seen = round_;
    const absl::FunctionRef<void(int)> task = *task_;
    lock.unlock();
    RunOne(worker, task);
    lock.lock();
    if (--running_ == 0) ends_.notify_one();
  }
}

void WorkerGroup::Run(int count, absl::FunctionRef<void(int worker)> task) {
  if (count < 1 || count > workers()) {
    ThrowInvalidArgument(
        absl::StrCat(name_, ": a task for ", count, " workers, expected 1 to ", workers()));
  }
  if (count > 1) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      task_ = &task;
      count_ = count;
      running_ = count - 1;
      ++round_;
    }
    begins_.notify_all();
  }
  RunOne(0, task);
  if (count > 1) {
    std::unique_lock<std::mutex> lock(mutex_);
    ends_.wait(lock, [&] { return running_ == 0; });
    count_ = 0;  // a worker that was not of this round does not take it for its own
  }
  std::exception_ptr first;
  for (std::exception_ptr& error : errors_) {
    if (first == nullptr) first = error;
    error = nullptr;
  }
  if (first != nullptr) std::rethrow_exception(first);
}

}  // namespace tidepool::nn
