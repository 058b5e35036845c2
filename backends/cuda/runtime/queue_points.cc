#include "tidepool/backends/cuda/runtime/queue_points.h"

#include "tidepool/backends/cuda/runtime/error.h"

namespace tidepool::cuda {
namespace {

// A point is (use, slot); use counts from 1, so no point is 0.
constexpr int kSlotBits = 24;
constexpr uint64_t kSlotMask = (uint64_t{1} << kSlotBits) - 1;
// Of the oldest points asked for at each record: enough to keep up with what passes.
constexpr int kLooks = 2;

}  // namespace

QueuePoints::Slot* QueuePoints::Find(QueuePoint point) {
  if (point.value == 0) return nullptr;
  Slot& slot = slots_[point.value & kSlotMask];
  return slot.in_flight && slot.use == point.value >> kSlotBits ? &slot : nullptr;
}

QueuePoint QueuePoints::Record(cudaStream_t stream) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (int i = 0; i < kLooks && !in_flight_.empty(); ++i) {
    Slot& oldest = slots_[in_flight_.front()];
    if (oldest.in_flight) {
      const cudaError_t error = cudaEventQuery(oldest.event);
      ForgetLastError(error);
      if (error != cudaSuccess) break;
    }
    oldest.in_flight = false;
    free_.push_back(in_flight_.front());
    in_flight_.pop_front();
  }
  if (free_.empty()) {
    // The lists first: what the process has no memory for leaves no event that nobody knows of.
    if (free_.capacity() <= slots_.size()) free_.reserve(2 * slots_.size() + 8);
    slots_.emplace_back();
    const cudaError_t error =
        cudaEventCreateWithFlags(&slots_.back().event, cudaEventDisableTiming);
    if (error != cudaSuccess) {
      slots_.pop_back();
      ThrowError(error, "cudaEventCreateWithFlags");
    }
    free_.push_back(slots_.size() - 1);
  }
  const size_t index = free_.back();
  Slot& slot = slots_[index];
  in_flight_.push_back(index);
  const cudaError_t error = cudaEventRecord(slot.event, stream);
  if (error != cudaSuccess) {
    in_flight_.pop_back();
    ThrowError(error, "cudaEventRecord");
  }
  free_.pop_back();
  ++slot.use;
  slot.in_flight = true;
  return {slot.use << kSlotBits | index};
}

bool QueuePoints::HasPassed(QueuePoint point) {
  std::lock_guard<std::mutex> lock(mutex_);
  Slot* const slot = Find(point);
  if (slot == nullptr) return true;
  const cudaError_t error = cudaEventQuery(slot->event);
  if (error == cudaErrorNotReady) {
    ForgetLastError(error);
    return false;
  }
  Check(error, "cudaEventQuery");
  slot->in_flight = false;  // returned to free_ when it is the oldest
  return true;
}

void QueuePoints::Wait(QueuePoint point) {
  cudaEvent_t event;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Slot* const slot = Find(point);
    if (slot == nullptr) return;
    event = slot->event;
  }
  // Not under the lock. Should the slot be recorded again meanwhile, the point has passed.
  Check(cudaEventSynchronize(event), "cudaEventSynchronize");
  std::lock_guard<std::mutex> lock(mutex_);
  if (Slot* const slot = Find(point)) slot->in_flight = false;
}

void QueuePoints::StreamWait(cudaStream_t stream, QueuePoint point) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (Slot* const slot = Find(point)) {
    Check(cudaStreamWaitEvent(stream, slot->event, 0), "cudaStreamWaitEvent");
  }
}

int64_t QueuePoints::created() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<int64_t>(slots_.size());
}

}  // namespace tidepool::cuda
