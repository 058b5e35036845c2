// The compute queues and queued copies of a simulated device.
#include <cstring>
#include <utility>

#include "tidepool/memory/testing/simulated_device.h"

namespace tidepool {

QueuePoint SimulatedDevice::QueueCopyFromHost(std::byte* to, const std::byte* from_host,
                                              size_t bytes, QueuePoint after) {
  MayFail("copy from the host");
  if (bytes == 0) return {};
  std::byte* const hidden = Hidden(to, bytes);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ++counters_.copies_from_host;
    counters_.bytes_from_host += static_cast<int64_t>(bytes);
  }
  const QueuePoint point = {queues_.Add(
      SimulatedQueues::kCopies, {{to, to + bytes, true}, {from_host, from_host + bytes, false}},
      after.value, [=] { std::memcpy(hidden, from_host, bytes); })};
  if (kept_ != nullptr) kept_->NoteCopy(to, point);
  return point;
}

QueuePoint SimulatedDevice::QueueCopyToHost(std::byte* to_host, const std::byte* from, size_t bytes,
                                            QueuePoint after) {
  MayFail("copy to the host");
  if (bytes == 0) return {};
  const std::byte* const hidden = Hidden(from, bytes);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ++counters_.copies_to_host;
    counters_.bytes_to_host += static_cast<int64_t>(bytes);
  }
  const QueuePoint point = {queues_.Add(
      SimulatedQueues::kCopies, {{from, from + bytes, false}, {to_host, to_host + bytes, true}},
      after.value, [=] { std::memcpy(to_host, hidden, bytes); })};
  if (kept_ != nullptr) kept_->NoteCopy(from, point);
  return point;
}

void SimulatedDevice::QueueKernel(std::vector<SimulatedQueues::Range> ranges,
                                  std::function<void()> run, int queue) {
  CheckQueue(queue);
  queues_.Add(queue, std::move(ranges), 0, std::move(run));
}

void SimulatedDevice::OpenQueue(int queue, void* native) {
  MayFail("making of a queue");
  natives_[queue] = native != nullptr ? native : &natives_[queue];
  if ((open_.fetch_or(1u << queue) >> queue & 1) != 0) Die("second opening of a queue", nullptr, queue);
}

void SimulatedDevice::CloseQueue(int queue) noexcept {
  if (queue == 0 || (open_.fetch_and(~(1u << queue)) >> queue & 1) == 0) {
    Die("closing of a queue", nullptr, queue);
  }
}

void* SimulatedDevice::NativeQueue(int queue) {
  CheckQueue(queue);
  return natives_[queue];
}

void SimulatedDevice::CountOrder() {
  std::lock_guard<std::mutex> lock(mutex_);
  ++counters_.orders;
}

void SimulatedDevice::CheckQueue(int queue) const {
  if (queue < 0 || queue >= kMostQueues || (open_ >> queue & 1) == 0) {
    Die("use of a queue that is not open", nullptr, queue);
  }
}

}  // namespace tidepool
