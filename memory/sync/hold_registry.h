// HoldRegistry: who keeps the bytes of items that are closed, without being asked at the time
// (memory/held_bytes.h). The other half of PinRegistry, for users that stay long: a table under a lock.
//
// A user begins a hold and only then looks whether the item is alive. Who closes an item makes it dead
// first, passes a sequentially consistent fence (PinRegistry::AnyPinned) and then looks for holds. So
// either the user sees a dead item, or the bytes are left to the hold, and whoever ends the last hold
// gives them back.
//
// Who may call what: Begin and End by a thread that has a handle of the item until after End.
// LeaveToHolds by who won the right to close the item, or was left it by pins or holds.
//
// Orders that matter: the fence of Begin, as said. A note that the last hold has ended is released and
// acquired: who closes the item without the lock comes after what was done with the bytes. The rest is
// the lock's. hold_registry_exploration_test.cc shows that each is needed.
#ifndef TIDEPOOL_MEMORY_SYNC_HOLD_REGISTRY_H_
#define TIDEPOOL_MEMORY_SYNC_HOLD_REGISTRY_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>

namespace tidepool {

// Item: has an Atomic<uint8_t> `care` and the bit Item::kHeld in it, and an Atomic `version` of its bytes.
template <typename Sync, typename Item>
class HoldRegistry {
 public:
  // Throws std::bad_alloc; nothing is held then.
  void Begin(Item* item) {
    {
      std::lock_guard<typename Sync::Mutex> lock(mutex_);
      Plain<int>& count = holds_[item].count;
      count.set(count.get() + 1);
      item->care.fetch_or(Item::kHeld, std::memory_order_relaxed);
    }
    Sync::Fence(std::memory_order_seq_cst);
  }

  // True when the item was closed meanwhile and this was the last hold: the caller goes on with closing
  // it, and asks LeaveToHolds again.
  bool End(Item* item) noexcept {
    std::lock_guard<typename Sync::Mutex> lock(mutex_);
    const auto at = holds_.find(item);
    Plain<int>& count = at->second.count;
    count.set(count.get() - 1);
    if (count.get() > 0) return false;
    const bool closed = at->second.closed.get();
    holds_.erase(at);
    // What the holder wrote, before who reads the version can take it for known again.
    item->version.fetch_add(1, std::memory_order_relaxed);
    item->care.fetch_and(static_cast<uint8_t>(~Item::kHeld), std::memory_order_release);
    return closed;
  }

  // Whether it may be held, without the lock: the one look that closing an item costs.
  static bool MayBeHeld(const Item* item) noexcept {
    return (item->care.load(std::memory_order_acquire) & Item::kHeld) != 0;
  }
  // Of an item that MayBeHeld. True: its bytes go with the last hold.
  bool LeaveToHolds(Item* item) noexcept {
    std::lock_guard<typename Sync::Mutex> lock(mutex_);
    const auto at = holds_.find(item);
    if (at == holds_.end()) return false;
    at->second.closed.set(true);
    return true;
  }

  // For fork(), which takes the lock: a child finds the holds whole.
  void LockForFork() noexcept { mutex_.lock(); }
  void UnlockAfterFork() noexcept { mutex_.unlock(); }

 private:
  template <typename T>
  using Plain = typename Sync::template Plain<T>;
  struct Holds {
    Plain<int> count;
    Plain<bool> closed;  // who closed it has left the bytes here
  };

  typename Sync::Mutex mutex_;
  std::map<Item*, Holds> holds_;  // guarded by mutex_
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_SYNC_HOLD_REGISTRY_H_
