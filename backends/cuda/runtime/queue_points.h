// Places in the work of a device's streams: QueuePoints by pooled events.
//
// An event is used again once what it was recorded behind has passed, so a steady program creates
// none. Threads: any. Cost: an event record each, about a microsecond; no device-wide wait anywhere.
#ifndef TIDEPOOL_BACKENDS_CUDA_RUNTIME_QUEUE_POINTS_H_
#define TIDEPOOL_BACKENDS_CUDA_RUNTIME_QUEUE_POINTS_H_

#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "cuda_runtime_api.h"
#include "tidepool/memory/provider/device_provider.h"

namespace tidepool::cuda {

class QueuePoints {
 public:
  // Behind what was queued on `stream` so far. Throws when the device refuses. The caller has made
  // the stream's device current.
  QueuePoint Record(cudaStream_t stream);
  // Throws kInternal when work before it failed.
  bool HasPassed(QueuePoint point);
  void Wait(QueuePoint point);
  // What is queued on `stream` from here on begins when `point` has passed.
  void StreamWait(cudaStream_t stream, QueuePoint point);

  int64_t created() const;  // events

 private:
  struct Slot {
    cudaEvent_t event = nullptr;
    uint64_t use = 0;  // counts records; a point names one
    bool in_flight = false;
  };
  // Needs mutex_. Null: has passed.
  Slot* Find(QueuePoint point);

  mutable std::mutex mutex_;
  std::deque<Slot> slots_;
  std::vector<size_t> free_;
  std::deque<size_t> in_flight_;  // oldest first
};

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_RUNTIME_QUEUE_POINTS_H_
