// PinRegistry: which items threads are using right now, so that who closes one leaves its bytes to
// them.
//
// Hazard pointers (M. Michael, "Hazard Pointers", 2004) with a second half. A thread that is to use
// items pins them, publishes the pins and only then looks whether they are alive. Who closes an
// item makes it dead first and looks for pins then. So either the user sees a dead item, or who
// closes it sees the pin and notes kClosePending in the item's `care`, and the thread that takes
// the last pin off gives the bytes back.
//
// Invariants: the bytes of an item are not given back while a pin is published that was there when
// it was made dead; and they are given back exactly once, at the latest by the item's last handle.
//
// Who may call what: a record belongs to the thread that took it, which alone pins and unpins in it
// and has a handle of what it pins until after Unpin. Postpone is called once per item, by the one
// who won the right to close it (OwnerWord) and has made it dead, after AnyPinned. ClaimPending by
// anyone who may touch the item.
//
// Orders that matter:
// - Publish and AnyPinned are sequentially consistent fences: between "pinned" and "is it alive?"
//   there, between "dead" and "is it pinned?" here. With less both may miss the other.
// - Unpin's light fence and Postpone's heavy one are the same once more: between "no longer pinned"
//   and "was its close left to me?" there, between "left to you" and "is it still pinned?" here. With
//   less both leave the bytes to the other. Postponing is rare, so that side pays: a call that pins
//   has one fence, Publish's.
// - Of two threads that take the last two pins off, one must see both off: the fence before Unpin
//   looks for other pins. Whichever claims kClosePending closes; it comes after what the closing
//   thread did with the bytes (acquire there, AnyPinned's fence before the note).
// - Depth and slots are released when stored and acquired when read: whoever finds no pin comes
//   after what the pinning thread did with the bytes.
// pin_registry_exploration_test.cc shows that each is needed.
#ifndef TIDEPOOL_MEMORY_SYNC_PIN_REGISTRY_H_
#define TIDEPOOL_MEMORY_SYNC_PIN_REGISTRY_H_

#include <atomic>
#include <cstdint>

#include "tidepool/memory/sync/asymmetric_fence.h"

namespace tidepool {

// Item: has an Atomic<uint8_t> `care` and the bit Item::kClosePending in it.
template <typename Sync, typename Item, int kSlots>
class PinRegistry {
 public:
  // The policy's (std_sync.h).
  template <typename T>
  using Atomic = typename Sync::template Atomic<T>;
  template <typename T>
  using Plain = typename Sync::template Plain<T>;

  static constexpr int32_t kMostPins = kSlots;  // in a record

  // A thread's pins, one behind the other.
  struct alignas(64) Record {
    Atomic<int32_t> depth{0};          // pins in it; stored by its thread alone
    Atomic<bool> taken{false};         // by a thread
    Plain<Record*> next;               // in the registry; does not change
    Plain<Record*> outer;              // its thread's, which was full; that thread's alone
    Atomic<Item*> slots[kSlots] = {};  // the first `depth` are pinned
  };

  // ---- records ----

  // One that no thread has; null when all are taken: Add a new one then, which stays for ever.
  Record* TakeFree() noexcept {
    for (Record* record = newest_.load(std::memory_order_acquire); record != nullptr;
         record = record->next.get()) {
      bool taken = false;
      if (record->taken.compare_exchange_strong(taken, true, std::memory_order_acquire,
                                                std::memory_order_relaxed)) {
        return record;
      }
    }
    return nullptr;
  }
  // A record that the caller made and has taken; it is never freed.
  void Add(Record* record) noexcept {
    record->taken.store(true, std::memory_order_relaxed);
    Record* next = newest_.load(std::memory_order_relaxed);
    do {
      record->next.set(next);
    } while (!newest_.compare_exchange_weak(next, record, std::memory_order_release,
                                            std::memory_order_relaxed));
  }
  // Without pins in it.
  void GiveBack(Record* record) noexcept { record->taken.store(false, std::memory_order_release); }

  // ---- the side that uses items ----

  static void Pin(Record& record, Item* item) noexcept {
    Pin(record, record.depth.load(std::memory_order_relaxed), item);
  }
  // The same, by who knows the record's depth.
  static void Pin(Record& record, int32_t depth, Item* item) noexcept {
    record.slots[depth].store(item, std::memory_order_release);
    record.depth.store(depth + 1, std::memory_order_release);
  }
  // After the last Pin, before items are looked at.
  static void Publish() noexcept { Sync::Fence(std::memory_order_seq_cst); }

  // Takes the pins from `begin` on off, and close(item) is called for what was left to this thread.
  template <typename Close>
  void Unpin(Record& record, int32_t begin, const Close& close) {
    const int32_t end = record.depth.load(std::memory_order_relaxed);
    record.depth.store(begin, std::memory_order_release);
    AsymmetricFence<Sync>::Light();
    uint8_t care = 0;
    for (int32_t i = begin; i < end; ++i) {
      Item* item = record.slots[i].load(std::memory_order_relaxed);
      care |= item->care.load(std::memory_order_relaxed);
    }
    if ((care & Item::kClosePending) != 0) Finish(record, begin, end, close);
  }

  // ---- the side that closes items ----

  // After items were made dead: whether there are pins at all.
  bool AnyPinned() const noexcept {
    Sync::Fence(std::memory_order_seq_cst);
    for (const Record* record = newest_.load(std::memory_order_acquire); record != nullptr;
         record = record->next.get()) {
      if (record->depth.load(std::memory_order_acquire) != 0) return true;
    }
    return false;
  }

  // True when the item's bytes are given back by a thread that has it pinned.
  bool Postpone(Item* item) noexcept {
    if (!IsPinned(item)) return false;
    item->care.fetch_or(Item::kClosePending, std::memory_order_relaxed);
    AsymmetricFence<Sync>::Heavy();
    if (IsPinned(item)) return true;
    return !ClaimPending(
        item);  // the pin went meanwhile, and its thread may have seen the note or not
  }

  // Whether the caller is to give the bytes back of an item whose close was postponed.
  static bool ClaimPending(Item* item) noexcept {
    return (item->care.load(std::memory_order_relaxed) & Item::kClosePending) != 0 &&
           (item->care.fetch_and(static_cast<uint8_t>(~Item::kClosePending),
                                 std::memory_order_acquire) &
            Item::kClosePending) != 0;
  }

 private:
  bool IsPinned(const Item* item) const noexcept {
    for (const Record* record = newest_.load(std::memory_order_acquire); record != nullptr;
         record = record->next.get()) {
      const int32_t depth = record->depth.load(std::memory_order_acquire);
      for (int32_t i = 0; i < depth; ++i) {
        if (record->slots[i].load(std::memory_order_acquire) == item) return true;
      }
    }
    return false;
  }

  // Closing may run any code, which may pin in these slots: so all are claimed before any is
  // closed. Out of line: rare, and its array would be in every caller's frame.
  template <typename Close>
  [[gnu::noinline]] void Finish(Record& record, int32_t begin, int32_t end, const Close& close) {
    Item* claimed[kSlots];
    int32_t count = 0;
    Sync::Fence(std::memory_order_seq_cst);
    for (int32_t i = begin; i < end; ++i) {
      Item* item = record.slots[i].load(std::memory_order_relaxed);
      if ((item->care.load(std::memory_order_relaxed) & Item::kClosePending) == 0) continue;
      // Else the other thread, or an outer scope of this one, comes here as well.
      if (!IsPinned(item) && ClaimPending(item)) claimed[count++] = item;
    }
    for (int32_t i = 0; i < count; ++i) close(claimed[i]);
  }

  Atomic<Record*> newest_{nullptr};
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_SYNC_PIN_REGISTRY_H_
