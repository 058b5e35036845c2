#include "tidepool/memory/workspace/cycle_queues.h"

#include <algorithm>
#include <new>
#include <utility>

#include "tidepool/memory/provider/provider_calls.h"

namespace tidepool {
namespace {

// Of a queue whose point could not be had.
constexpr uint64_t kUnknown = UINT64_MAX;

}  // namespace

void QueueEnds::Note(Device device, uint16_t its_queues) noexcept {
  for (int queue = 0; queue < kMostQueues; ++queue) {
    if ((its_queues >> queue & 1) == 0) continue;
    try {
      points[queue] = EndOfQueue(device, queue);
    } catch (...) {
      points[queue].value = kUnknown;
    }
  }
  queues |= its_queues;
}

void QueueEnds::OrderAfter(Device device, int queue) const {
  DeviceProvider& provider = GetDeviceProvider(device, "workspace");
  if (provider.IsCapturing(queue)) return;
  for (int other = 0; other < kMostQueues; ++other) {
    if ((queues >> other & 1) == 0 || other == queue) continue;
    if (points[other].value == kUnknown) {
      OrderQueueAfter(device, queue, 1u << other);
    } else {
      ComputeAfterOrWait(provider, queue, points[other]);
    }
  }
}

bool QueueEnds::HavePassed(Device device) const noexcept {
  try {
    for (int queue = 0; queue < kMostQueues; ++queue) {
      if ((queues >> queue & 1) == 0) continue;
      if (points[queue].value == kUnknown) return false;
      if (!FindDeviceProvider(device)->HasPassed(points[queue])) return false;
    }
    return true;
  } catch (...) {
    return false;
  }
}

void CycleQueues::Begin() {
  if (!queues_in_use.load(std::memory_order_relaxed)) {
    ran_ = true;
    return;
  }
  const int here = QueueHere(device_);
  std::optional<QueueOfCycle> open;
  if (here != 0) open.emplace(device_);
  if (ends_.queues != 0) {
    ends_.OrderAfter(device_, here);
  } else if (ran_ && here != home()) {
    OrderQueueAfter(device_, here, 1u << home());
  }
  ran_ = true;
  ends_.queues = 0;
  open_ = std::move(open);
  used_.store(0, std::memory_order_relaxed);
  home_.store(static_cast<uint8_t>(here), std::memory_order_relaxed);
}

// The points are those of now: what the queues are given to do before the next cycle begins is none of its.
void CycleQueues::End() noexcept {
  if (!queues_in_use.load(std::memory_order_relaxed)) return;
  ends_.Note(device_, used());
  open_.reset();
}

void LeftInQueues::Leave(const std::byte* data, size_t bytes, uint16_t queues) noexcept {
  if (!queues_in_use.load(std::memory_order_relaxed)) return;
  std::lock_guard<std::mutex> lock(mutex_);
  Left left{data, data + bytes, {}};
  left.ends.Note(device_, queues);
  // Whoever leaves a range has come behind what was in it.
  std::erase_if(left_, [&](const Left& old) {
    return (old.begin >= left.begin && old.end <= left.end) || old.ends.HavePassed(device_);
  });
  if (all_.HavePassed(device_)) all_.queues = 0;
  try {
    left_.push_back(left);
  } catch (const std::bad_alloc&) {
    all_.Note(device_, queues);
  }
}

void LeftInQueues::Take(const std::byte* data, size_t bytes, int queue) noexcept {
  if (!queues_in_use.load(std::memory_order_relaxed)) return;
  std::lock_guard<std::mutex> lock(mutex_);
  const auto order = [&](const QueueEnds& ends) {
    try {
      ends.OrderAfter(device_, queue);
    } catch (...) {
      ContinueQueueAfter(device_, queue, ends.queues);
    }
  };
  if (all_.queues != 0) order(all_);
  for (const Left& left : left_) {
    if (left.begin < data + bytes && data < left.end) order(left.ends);
  }
}

}  // namespace tidepool
