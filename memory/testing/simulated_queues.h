// SimulatedQueues: the work a simulated device does while the host goes on, as unkind as the rules of
// DeviceProvider allow.
//
// The kernels of a compute queue run in the order they are queued, copies in any order, each queue on a worker
// thread. Most work is lazy: it begins only when somebody waits for it, or for work that must come after
// it. So whoever forgets to wait sees old bytes, not bytes that happened to be there in time; and what runs
// beside what depends on the seed. And work that would disturb other work which it does not come after
// ends the test with a message, whatever happens to be done by then (queue_order.h). Off (at first), work
// is done when it is queued.
//
// Threads: any.
#ifndef TIDEPOOL_MEMORY_TESTING_SIMULATED_QUEUES_H_
#define TIDEPOOL_MEMORY_TESTING_SIMULATED_QUEUES_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/memory/testing/queue_order.h"

namespace tidepool {

class SimulatedQueues {
 public:
  // Compute queues by their numbers, from kCompute on, and one of copies.
  static constexpr int kCompute = 0, kCopies = kMostQueues;
  using Range = QueueOrder::Use;

  ~SimulatedQueues() { Stop(); }

  // Work is delayed and reordered from here on.
  void Start(uint64_t seed);
  // All of it is done then.
  void Stop();
  bool running() const;
  // Off: work that disturbs other work is done as it comes.
  void set_checks_order(bool checks);

  // Returns the point behind it. `ranges`: what it uses. It begins when `after` has passed.
  uint64_t Add(int queue, std::vector<Range> ranges, uint64_t after, std::function<void()> run);
  uint64_t ComputePoint(int queue);
  void ComputeAfter(int queue, uint64_t point);
  bool HasPassed(uint64_t point);
  // Throw kInternal when work that ran since the last wait failed.
  void WaitFor(uint64_t point);
  void WaitForAll();
  // For whatever uses a byte of the range.
  void WaitForUsersOf(Range range);
  bool IsUsed(Range range);
  // The range is given back without waiting. False where work uses it of which nobody has seen that it is done.
  bool Release(Range range);

 private:
  struct Work {
    uint64_t point;
    int queue;
    std::vector<Range> ranges;
    std::vector<uint64_t> after;
    std::function<void()> run;
    bool eager;  // begins as soon as it may; else when it is wanted
    bool wanted = false;
    bool begun = false;
  };
  static constexpr size_t kMostPending = 200;

  void Serve(int queue);
  // These need mutex_ held.
  uint64_t AddLocked(int queue, std::vector<Range> ranges, uint64_t after, std::function<void()> run);
  std::list<Work>::iterator Find(uint64_t point);
  std::list<Work>::iterator Next(int queue);
  bool HasPassedLocked(uint64_t point);
  void Want(uint64_t point);
  void Wait(std::unique_lock<std::mutex>& lock, uint64_t point);
  void ThrowFailure();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Work> pending_;  // in the order they were queued
  std::vector<uint64_t> compute_after_[kMostQueues];  // what the next kernel of each waits for
  uint64_t last_of_[kMostQueues] = {};
  QueueOrder order_;
  std::vector<std::thread> workers_;
  bool has_worker_[kMostQueues + 1] = {};
  std::mt19937_64 random_;
  uint64_t last_point_ = 0;
  bool running_ = false, stopping_ = false, checks_order_ = true;
  std::string failure_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_TESTING_SIMULATED_QUEUES_H_
