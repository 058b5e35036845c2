// OwnerList: what one node owns, as lists through the items, and how items come, go and are closed.
//
// Invariants, whenever nobody has the lock: an item is in a node's lists exactly when its word
// (owner_word.h) is the node's current reference; the counters are those of the lists; no item
// there is closed. `ref` moves on when the node drops what it has, all references to it at once.
//
// Who may call what: functions say whether they need the lock or take it. A list's memory is never
// freed, so that a thread may lock the node it read from a word a moment ago and see then whether
// the word and `ref` are still that one.
//
// The last handle calls TakeOut until the word is no reference any more. A batch that is closed
// keeps its references until it is closed, so the last handle waits for the lock and the record
// stays. Items that outlive their owner (loans) get kHandles with the lock held as well.
//
// Orders: all is under the lock; `ref` is looked at without it as a hint only. The words' orders
// are OwnerWord's.
#ifndef TIDEPOOL_MEMORY_SYNC_OWNER_LIST_H_
#define TIDEPOOL_MEMORY_SYNC_OWNER_LIST_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>

#include "tidepool/memory/sync/owner_word.h"
#include "tidepool/memory/sync/spin_lock.h"

namespace tidepool {

// Item: `link.node` an OwnerWord, `link.newer` and `link.older` a Plain<Item*> each, `bytes`, an
// Atomic<uint8_t> `care` with the bit Item::kInTree: "the word is or was other than kHandles".
template <typename Sync, typename Item>
class OwnerList {
 public:
  // The policy's (std_sync.h).
  template <typename T>
  using Plain = typename Sync::template Plain<T>;
  using Lock = BasicSpinLock<Sync>;
  using Word = OwnerWord<Sync>;

  // The node's lock, and its current reference.
  Lock lock;
  typename Sync::template Atomic<uint64_t> ref{0};
  // With the lock.
  Plain<Item*> newest;           // of the items that are in no cycle's list
  Plain<Item*> newest_in_cycle;  // of the cycle the node owns: dropped at once
  Plain<int64_t> arrays;
  Plain<int64_t> bytes;
  Plain<int64_t> peak_bytes;

  // ---- with the lock ----

  bool Owns(const Item* item) const {
    return item->link.node.Get() == ref.load(std::memory_order_relaxed);
  }
  // There is no item in either list.
  bool is_empty() const { return newest.get() == nullptr && newest_in_cycle.get() == nullptr; }

  // Of an item that was just made: the caller has the only handle.
  void LinkNew(Item* item, bool in_cycle) {
    // Nobody else writes it yet: an exchange would be half of what linking costs.
    item->care.store(item->care.load(std::memory_order_relaxed) | Item::kInTree,
                     std::memory_order_relaxed);
    item->link.node.Set(ref.load(std::memory_order_relaxed));
    Link(item, in_cycle);
  }
  // Of an item that its handles own; false when they do not any more. It is Link()ed next.
  bool Claim(Item* item) {
    if (!item->link.node.MoveFromHandles(ref.load(std::memory_order_relaxed))) return false;
    item->care.fetch_or(Item::kInTree, std::memory_order_relaxed);
    return true;
  }
  // Of an item whose word is this list's already, and not yet in it.
  void Link(Item* item, bool in_cycle) {
    Plain<Item*>& head = in_cycle ? newest_in_cycle : newest;
    Item* const older = head.get();
    item->link.newer.set(nullptr);
    item->link.older.set(older);
    if (older != nullptr) older->link.newer.set(item);
    head.set(item);
    arrays.set(arrays.get() + 1);
    bytes.set(bytes.get() + static_cast<int64_t>(item->bytes));
    peak_bytes.set(std::max(peak_bytes.get(), bytes.get()));
  }
  // Of an item that Owns() says is here; its word is Set next.
  void Unlink(Item* item) {
    Item* const newer = item->link.newer.get();
    Item* const older = item->link.older.get();
    if (newer != nullptr) {
      newer->link.older.set(older);
    } else if (newest.get() == item) {
      newest.set(older);
    } else {
      newest_in_cycle.set(older);
    }
    if (older != nullptr) older->link.newer.set(newer);
    arrays.set(arrays.get() - 1);
    bytes.set(bytes.get() - static_cast<int64_t>(item->bytes));
  }
  // To `target`, with its lock as well.
  void MoveTo(OwnerList& target, Item* item, bool in_cycle) {
    Unlink(item);
    item->link.node.Set(target.ref.load(std::memory_order_relaxed));
    target.Link(item, in_cycle);
  }

  // The items of the list are nobody's any more, and neither is any reference to it that is left.
  void DropAll() {
    newest.set(nullptr);
    newest_in_cycle.set(nullptr);
    arrays.set(0);
    bytes.set(0);
    ref.store(ref.load(std::memory_order_relaxed) + kOwnerGeneration, std::memory_order_relaxed);
  }

  // ---- without it ----

  // Takes the item, whose word was `reference` of this list a moment ago, out of it. It is `to`
  // then, and on_leave() has been called under the lock. False when it was not here any more: look
  // again. With a handle of the item.
  template <typename OnLeave>
  bool TakeOut(Item* item, uint64_t reference, uint64_t to, const OnLeave& on_leave) {
    std::lock_guard<Lock> guard(lock);
    if (ref.load(std::memory_order_relaxed) != reference) {
      item->link.node.DropOutdated(reference);
      return false;
    }
    if (!Owns(item)) return false;  // moved meanwhile
    on_leave();
    Unlink(item);
    item->link.node.Set(to);
    return true;
  }

  // Closes up to kAtOnce of the newest items of a list; false when there are none left. Under the
  // lock: outlives(item) says, for one item, that it is not to be closed, and has set its word
  // then; close(batch, count, arrays, bytes, next) closes the others, and charges what leaves.
  // `next` is what a later call begins with.
  template <int kAtOnce, typename Outlives, typename Close>
  bool CloseSome(bool in_cycle, const Outlives& outlives, const Close& close) {
    Item* batch[kAtOnce];
    int count = 0;
    int64_t arrays_left = 0, bytes_left = 0;
    std::lock_guard<Lock> guard(lock);
    Plain<Item*>& head = in_cycle ? newest_in_cycle : newest;
    Item* next = head.get();
    while (next != nullptr && count < kAtOnce) {
      Item* item = next;
      next = item->link.older.get();
      ++arrays_left;
      bytes_left += static_cast<int64_t>(item->bytes);
      if (!outlives(item)) batch[count++] = item;
    }
    head.set(next);
    if (next != nullptr) next->link.newer.set(nullptr);
    arrays.set(arrays.get() - arrays_left);
    bytes.set(bytes.get() - bytes_left);
    close(batch, count, arrays_left, bytes_left, next);
    // From here on the last handle does not wait for this lock.
    for (int i = 0; i < count; ++i) batch[i]->link.node.Set(Word::kClosed);
    return next != nullptr;
  }
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_SYNC_OWNER_LIST_H_
