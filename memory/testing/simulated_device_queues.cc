// The compute queues and queued copies of a simulated device.
#include <atomic>
#include <cstring>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "tidepool/memory/device_copy.h"
#include "tidepool/memory/testing/simulated_device.h"

namespace tidepool {
namespace {

std::atomic<bool> has_peers{false};

// Behind the last copy from each to each.
std::mutex to_peers_mutex;
uint64_t last_to_peers[SimulatedDevice::kDevices][SimulatedDevice::kDevices];

class Peers final : public PeerCopies {
 public:
  std::string WhyNot(Device, Device) override {
    return has_peers ? "" : "simulated devices were told to have no peers";
  }
  QueuePoint Queue(const PeerCopy& copy) override {
    return SimulatedDevice::Get(copy.from_device.index)
        .QueueCopyToPeer(SimulatedDevice::Get(copy.to_device.index), copy.to_queue, copy.to,
                         copy.from, copy.bytes, copy.after, copy.after_there);
  }
};
const PeerCopiesRegistrar peers(SimulatedDevice::kDevice.type, new Peers);

}  // namespace

void SimulatedDevice::set_has_peers(bool has) { has_peers = has; }

QueuePoint SimulatedDevice::QueueCopyToPeer(SimulatedDevice& there, int queue_there, std::byte* to,
                                            const std::byte* from, size_t bytes, QueuePoint after,
                                            QueuePoint after_there) {
  MayFail("copy to a peer");
  const std::byte* const hidden_from = Hidden(from, bytes);
  std::byte* const hidden_to = there.Hidden(to, bytes);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ++counters_.copies_to_peers;
  }
  // Copies run in any order, and pass in that in which they are queued.
  QueuePoint point;
  {
    std::lock_guard<std::mutex> lock(to_peers_mutex);
    uint64_t& last = last_to_peers[device_.index][there.device_.index];
    const uint64_t copied = queues_.Add(
        At(SimulatedQueues::kCopies), {{from, from + bytes, false}, {to, to + bytes, true}},
        std::vector<uint64_t>{after.value, after_there.value}, [=, this, &there] {
          if (!Works() || !there.Works()) return;
          std::memcpy(hidden_to, hidden_from, bytes);
        });
    try {
      last =
          queues_.Add(At(SimulatedQueues::kCopies), {}, std::vector<uint64_t>{copied, last}, [] {});
    } catch (const std::bad_alloc&) {
      queues_.WaitFor(copied);
      throw;
    }
    point.value = last;
  }
  there.queues_.ComputeAfter(there.At(queue_there), point.value);
  if (kept_ != nullptr) kept_->NoteCopy(from, point);
  return point;
}

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
      At(SimulatedQueues::kCopies), {{to, to + bytes, true}, {from_host, from_host + bytes, false}},
      after.value, [=, this] {
        if (Works()) std::memcpy(hidden, from_host, bytes);
      })};
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
      At(SimulatedQueues::kCopies), {{from, from + bytes, false}, {to_host, to_host + bytes, true}},
      after.value, [=, this] {
        if (Works()) std::memcpy(to_host, hidden, bytes);
      })};
  if (kept_ != nullptr) kept_->NoteCopy(from, point);
  return point;
}

void SimulatedDevice::QueueKernel(std::vector<SimulatedQueues::Range> ranges,
                                  std::function<void()> run, int queue) {
  CheckQueue(queue);
  CheckWorks("kernel");
  const char* const operation = LastOperation(device_, queue);
  queues_.Add(At(queue), std::move(ranges), 0, [this, operation, run = std::move(run)] {
    if (!Works()) return;
    if (!poison_.Next()) return run();
    poisoned_by_ = operation;
    poisoned_ = true;
    if (!tells_late_)
      LoseDevice(device_, "a kernel used a wrong address, as the test wanted", operation);
  });
}

void SimulatedDevice::OpenQueue(int queue, void* native) {
  MayFail("making of a queue");
  if (queue < 1 || queue >= kMostQueues)
    Die("number of a queue", nullptr, static_cast<size_t>(queue));
  natives_[queue] = native != nullptr ? native : &natives_[queue];
  if ((open_.fetch_or(1u << queue) >> queue & 1) != 0)
    Die("second opening of a queue", nullptr, queue);
}

void SimulatedDevice::CloseQueue(int queue) noexcept {
  if (queue < 1 || queue >= kMostQueues || (open_.fetch_and(~(1u << queue)) >> queue & 1) == 0) {
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
