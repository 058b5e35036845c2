// SimulatedQueues: the work that simulated devices do while the host goes on, as unkind as the rules of
// DeviceProvider allow. Points are those of all devices, so that work of one may wait for that of another.
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
  // Of a device: compute queues by their numbers, from kCompute on, and one of copies. Those of device `d` are
  // so many further on.
  static constexpr int kCompute = 0, kCopies = kMostQueues, kOfOneDevice = kMostQueues + 1;
  static constexpr int kDevices = 3;
  using Range = QueueOrder::Use;

  ~SimulatedQueues() {
    for (int device = 0; device < kDevices; ++device) Stop(device);
  }

  // Work of the device is delayed and reordered from here on.
  void Start(uint64_t seed, int device = 0);
  // All of it is done then.
  void Stop(int device = 0);
  bool running(int device = 0) const;
  // Off: work that disturbs other work is done as it comes. Of all devices.
  void set_checks_order(bool checks);

  // Returns the point behind it. `ranges`: what it uses. It begins when `after` has passed.
  uint64_t Add(int queue, std::vector<Range> ranges, uint64_t after, std::function<void()> run) {
    return Add(queue, std::move(ranges), std::vector<uint64_t>{after}, std::move(run));
  }
  uint64_t Add(int queue, std::vector<Range> ranges, std::vector<uint64_t> after,
               std::function<void()> run);
  uint64_t ComputePoint(int queue);
  void ComputeAfter(int queue, uint64_t point);
  bool HasPassed(uint64_t point);
  // Throw kInternal when work that ran since the last wait failed.
  void WaitFor(uint64_t point);
  void WaitForAll(int device = 0);
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
  static constexpr int kAllQueues = kDevices * kOfOneDevice;
  static bool IsOfCopies(int queue) { return queue % kOfOneDevice == kCopies; }

  void Serve(int queue);
  // These need mutex_ held.
  uint64_t AddLocked(int queue, std::vector<Range> ranges, std::vector<uint64_t> after,
                     std::function<void()> run);
  void DoneAll(int device);  // the host has seen that it is
  std::list<Work>::iterator Find(uint64_t point);
  std::list<Work>::iterator Next(int queue);
  bool HasPassedLocked(uint64_t point);
  void Want(uint64_t point);
  void Wait(std::unique_lock<std::mutex>& lock, uint64_t point);
  void ThrowFailure(int device);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Work> pending_;                          // in the order they were queued
  std::vector<uint64_t> compute_after_[kAllQueues];  // what the next kernel of each waits for
  uint64_t last_of_[kAllQueues] = {};
  QueueOrder order_;
  int device_of_[QueueOrder::kMostKept] = {};  // by points modulo that
  std::vector<std::thread> workers_[kDevices];
  bool has_worker_[kAllQueues] = {};
  std::mt19937_64 random_;
  uint64_t last_point_ = 0;
  bool running_[kDevices] = {}, stopping_[kDevices] = {}, checks_order_ = true;
  std::string failure_[kDevices];
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_TESTING_SIMULATED_QUEUES_H_
