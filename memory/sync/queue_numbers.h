// QueueNumbers: which numbers of a device's queues are in use, and where the work of those that have ended ends.
//
// Number 0 is always open. A number stands in the sets of items (queue_users.h) for what the last queue that had it
// did, so one that has it anew begins behind that, and the end of one that has ended is kept.
//
// All is under one lock: what looks for the end of a queue that ends meanwhile finds it open or ended.
#ifndef TIDEPOOL_MEMORY_SYNC_QUEUE_NUMBERS_H_
#define TIDEPOOL_MEMORY_SYNC_QUEUE_NUMBERS_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>

namespace tidepool {

// Point: of a queue, with a default that has passed. Kept: of each number that is open, its owner's.
// A device (Device) has OpenQueue(number, native), CloseQueue(number) noexcept, ComputePoint(number),
// ComputeAfter(number, point).
template <typename Sync, typename Point, typename Kept, int kMost>
class QueueNumbers {
 public:
  // `several` becomes true with the first that is opened.
  explicit QueueNumbers(typename Sync::template Atomic<bool>& several) : several_(several) {}

  // A queue that find(number, kept) knows, not false; else a new one: make(number) is what is kept of it. False
  // when all are in use. Throws what the device and `make` throw; nothing is open then that was not.
  template <typename Device, typename Native, typename Find, typename Make>
  auto Open(Device& device, Native native, const Find& find, const Make& make) {
    std::lock_guard<typename Sync::Mutex> lock(mutex_);
    CloseOwnerless(device);
    for (int number = 1; number < kMost; ++number) {
      if (!entries_[number].open.get()) continue;
      if (auto known = find(number, entries_[number].kept)) return known;
    }
    for (int number = 1; number < kMost; ++number) {
      Entry& entry = entries_[number];
      if (entry.open.get()) continue;
      device.OpenQueue(number, native);
      try {
        device.ComputeAfter(number, entry.end.get());
        auto made = make(number, entry.kept);
        entry.open.set(true);
        entry.has_owner.set(true);
        highest_.set(std::max(highest_.get(), number));
        several_.store(true, std::memory_order_relaxed);
        return made;
      } catch (...) {
        device.CloseQueue(number);
        throw;
      }
    }
    return decltype(find(0, entries_[0].kept))();
  }

  // Its owner has gone. Open as long as the device refuses to tell its end: the next call that opens or closes a queue,
  // or asks for that end, closes it where the device tells.
  template <typename Device>
  void Close(Device& device, int number) noexcept {
    std::lock_guard<typename Sync::Mutex> lock(mutex_);
    entries_[number].kept = {};
    entries_[number].has_owner.set(false);
    CloseOwnerless(device);
  }

  // Behind what is queued there by now, also of one that has ended. Throws what the device throws.
  template <typename Device>
  Point End(Device& device, int number) {
    if (number == 0) return device.ComputePoint(0);
    std::lock_guard<typename Sync::Mutex> lock(mutex_);
    const Entry& entry = entries_[number];
    if (!entry.open.get()) return entry.end.get();
    const Point end = device.ComputePoint(number);
    if (!entry.has_owner.get()) CloseBehind(device, number, end);
    return end;
  }

  // look(number, has_owner, kept) at each that is open but the first; it calls nothing here.
  template <typename Look>
  void ForEachOpen(const Look& look) {
    std::lock_guard<typename Sync::Mutex> lock(mutex_);
    for (int number = 1; number <= highest_.get(); ++number) {
      const Entry& entry = entries_[number];
      if (entry.open.get()) look(number, entry.has_owner.get(), entry.kept);
    }
  }

  // Those that are or were open, a bit each.
  uint32_t All() noexcept {
    std::lock_guard<typename Sync::Mutex> lock(mutex_);
    return (uint32_t{2} << highest_.get()) - 1;
  }
  uint32_t Open() noexcept {
    std::lock_guard<typename Sync::Mutex> lock(mutex_);
    uint32_t open = 1;
    for (int number = 1; number < kMost; ++number)
      open |= uint32_t{entries_[number].open.get()} << number;
    return open;
  }

 private:
  template <typename T>
  using Plain = typename Sync::template Plain<T>;

  struct Entry {
    Plain<bool> open{false};
    Plain<bool> has_owner{false};
    Plain<Point> end{Point()};  // of the last one that had the number
    Kept kept{};
  };

  template <typename Device>
  void CloseOwnerless(Device& device) noexcept {
    for (int number = 1; number <= highest_.get(); ++number) {
      if (!entries_[number].open.get() || entries_[number].has_owner.get()) continue;
      try {
        CloseBehind(device, number, device.ComputePoint(number));
      } catch (...) {  // it stays open
      }
    }
  }
  template <typename Device>
  void CloseBehind(Device& device, int number, Point end) noexcept {
    entries_[number].end.set(end);
    device.CloseQueue(number);
    entries_[number].open.set(false);
  }

  typename Sync::template Atomic<bool>& several_;
  typename Sync::Mutex mutex_;
  Entry entries_[kMost];
  Plain<int> highest_{0};  // that was ever open
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_SYNC_QUEUE_NUMBERS_H_
