// A device whose work passes when a test says so, for tests of KeptBlocks.
#ifndef TIDEPOOL_MEMORY_PROVIDER_KEPT_BLOCKS_MODEL_H_
#define TIDEPOOL_MEMORY_PROVIDER_KEPT_BLOCKS_MODEL_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/provider/kept_blocks.h"
#include "tidepool/memory/testing/simulated_device.h"

namespace tidepool {

// Queues whose work passes in their order, copies in any, points whose numbers say nothing. In the
// simulated device's place; its memory is addresses alone.
class ModelDevice final : public DeviceProvider, public KeptBlocks::Source {
 public:
  explicit ModelDevice(size_t capacity) : capacity_(capacity) {
    SwapDeviceProviderForTesting(SimulatedDevice::kDevice, this);
  }
  ~ModelDevice() {
    SwapDeviceProviderForTesting(SimulatedDevice::kDevice, &SimulatedDevice::Get());
  }

  // ---- what the test does ----
  void QueueWork(int queue) {
    std::lock_guard<std::mutex> lock(mutex_);
    ++queues_[queue].queued;
  }
  QueuePoint QueueCopy() {
    std::lock_guard<std::mutex> lock(mutex_);
    return NewPoint(-1, 0);
  }
  // So much of what is queued there is done, as far as it waits for nothing else.
  void Advance(int queue, int64_t works) {
    std::lock_guard<std::mutex> lock(mutex_);
    Queue& of = queues_[queue];
    while (works-- > 0 && of.done < of.queued && MayBegin(of)) ++of.done;
  }
  void FinishCopy(QueuePoint point) {
    std::lock_guard<std::mutex> lock(mutex_);
    points_.at(point.value).done = true;
  }

  // ---- what is so ----
  bool IsDone(QueuePoint point) {
    std::lock_guard<std::mutex> lock(mutex_);
    return IsDoneLocked(point);
  }
  // Whether what is queued there next comes behind it.
  bool IsBehind(int queue, QueuePoint point) {
    std::lock_guard<std::mutex> lock(mutex_);
    const Point& of = points_.at(point.value);
    return of.queue == queue || IsDoneLocked(point) ||
           std::any_of(queues_[queue].waits_for.begin(), queues_[queue].waits_for.end(),
                       [&](const auto& each) {
                         const auto it = points_.find(each.second.value);
                         if (it == points_.end() || it->second.queue != of.queue) return false;
                         return of.queue < 0 ? it->first == point.value
                                             : it->second.work >= of.work;
                       });
  }
  int64_t asked = 0;
  int64_t waits = 0;
  std::set<uint64_t> passed;  // points of which somebody was told so
  size_t used = 0;
  size_t most_blocks = SIZE_MAX;
  std::map<std::byte*, size_t> blocks;
  std::vector<std::byte*> given;
  std::function<void(int)> at_point;  // called when one has been taken, without locks

  // ---- KeptBlocks::Source ----
  std::byte* TakeBlock(size_t bytes, QueuePoint* /*from*/) noexcept override {
    std::lock_guard<std::mutex> lock(mutex_);
    if (used + bytes > capacity_ || blocks.size() >= most_blocks) return nullptr;
    used += bytes;
    std::byte* const at = next_;
    next_ += bytes + 4096;
    blocks[at] = bytes;
    return at;
  }
  void GiveBlock(std::byte* data, size_t bytes) noexcept override {
    std::lock_guard<std::mutex> lock(mutex_);
    EXPECT_EQ(blocks[data], bytes);
    used -= bytes;
    blocks.erase(data);
    given.push_back(data);
  }
  void FinishAll() noexcept override { ADD_FAILURE() << "all was waited for"; }

  // ---- DeviceProvider ----
  std::string name() const override { return "model"; }
  Device device() const override { return SimulatedDevice::kDevice; }
  MemoryTraits traits() const override { return {.alignment = 256}; }
  std::byte* Reserve(size_t) noexcept override { return nullptr; }
  void Unreserve(std::byte*, size_t) noexcept override {}
  bool Commit(std::byte*, size_t, bool) noexcept override { return false; }
  bool Decommit(std::byte*, size_t) noexcept override { return false; }
  std::byte* Allocate(size_t, size_t) noexcept override { return nullptr; }
  void Release(std::byte*, size_t) noexcept override {}
  void CopyFromHost(std::byte*, const std::byte*, size_t) override {}
  void CopyToHost(std::byte*, const std::byte*, size_t) override {}
  void CopyOnDevice(std::byte*, const std::byte*, size_t) override {}
  void Fill(std::byte*, std::byte, size_t) override {}
  void OpenQueue(int, void*) override {}
  QueuePoint ComputePoint(int queue) override {
    QueuePoint point;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      Queue& of = queues_[queue];
      // Behind what it waits for, too.
      if (!of.waits_for.empty() && of.waits_for.back().first == of.queued) ++of.queued;
      point = NewPoint(queue, of.queued);
    }
    if (at_point) at_point(queue);
    return point;
  }
  void ComputeAfter(int queue, QueuePoint point) override {
    if (point.value == 0) return;
    std::lock_guard<std::mutex> lock(mutex_);
    queues_[queue].waits_for.push_back({queues_[queue].queued, point});
  }
  bool HasPassed(QueuePoint point) override {
    std::lock_guard<std::mutex> lock(mutex_);
    ++asked;
    if (!IsDoneLocked(point)) return false;
    passed.insert(point.value);
    return true;
  }
  void WaitFor(QueuePoint point) override {
    std::lock_guard<std::mutex> lock(mutex_);
    ++waits;
    Finish(point);
  }

 private:
  struct Point {
    int queue;  // -1: of a copy
    int64_t work;
    bool done = false;  // a copy
  };
  struct Queue {
    int64_t queued = 0, done = 0;
    std::vector<std::pair<int64_t, QueuePoint>> waits_for;  // what comes behind so many works
  };
  QueuePoint NewPoint(int queue, int64_t work) {
    // Of no other model's, as the ends of queues outlive it, and in no order.
    static std::atomic<uint64_t> count{0};
    const QueuePoint point{++count * 0x9E3779B97F4A7C15u};
    points_[point.value] = {queue, work};
    return point;
  }
  bool IsDoneLocked(QueuePoint point) {
    const auto it = points_.find(point.value);
    if (it == points_.end())
      return true;  // 0, or of a queue that had the number in an earlier test
    const Point& of = it->second;
    return of.queue < 0 ? of.done : queues_[of.queue].done >= of.work;
  }
  bool MayBegin(const Queue& queue) {
    return std::all_of(queue.waits_for.begin(), queue.waits_for.end(), [&](const auto& each) {
      return each.first > queue.done || IsDoneLocked(each.second);
    });
  }
  void Finish(QueuePoint point) {
    if (IsDoneLocked(point)) return;
    Point& of = points_.at(point.value);
    of.done = true;
    if (of.queue < 0) return;
    Queue& queue = queues_[of.queue];
    for (const auto& [works, before] : queue.waits_for) {
      if (works < of.work) Finish(before);
    }
    queue.done = std::max(queue.done, of.work);
  }

  std::mutex mutex_;
  const size_t capacity_;
  std::byte* next_ = reinterpret_cast<std::byte*>(uintptr_t{1} << 40);
  std::map<uint64_t, Point> points_;
  Queue queues_[kMostQueues];
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PROVIDER_KEPT_BLOCKS_MODEL_H_
