// StartLimit: ends this process where the ranks of a job do not find each other in time.
//
//   std::optional<StartLimit> start(std::in_place, std::chrono::minutes(1));
//   const auto communicator = Communicator::Open();
//   Heartbeat heartbeat(*communicator);
//   start.reset();  // from here on the heartbeat watches
//
// A rank that is stopped or hangs before it has come leaves the others in the transport's own start
// (MPI_Init), which nothing makes return. Where this still exists behind the limit, it is said on
// stderr and the process ends with status 1, without destructors: a launcher ends the job then, as
// mpirun does.
//
// Threads: one at a time. It has one that sleeps.
#ifndef TIDEPOOL_NN_DISTRIBUTED_START_LIMIT_H_
#define TIDEPOOL_NN_DISTRIBUTED_START_LIMIT_H_

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace tidepool::nn {

class StartLimit {
 public:
  // Longer than starting all of the job's processes takes; beyond a hundred years it counts as that.
  // Throws kInvalidArgument below 1 ms, kResourceExhausted where the system has no thread.
  explicit StartLimit(std::chrono::milliseconds limit);
  ~StartLimit();
  StartLimit(const StartLimit&) = delete;
  StartLimit& operator=(const StartLimit&) = delete;

 private:
  void Wait(std::chrono::milliseconds limit);

  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_started_ = false;  // guarded by mutex_
  std::thread thread_;        // last: uses all of the above
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DISTRIBUTED_START_LIMIT_H_
