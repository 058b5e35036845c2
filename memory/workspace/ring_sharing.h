// What the threads around a ring share: who holds a slot, and the slots that nobody has.
//
// Templates over a policy of memory/sync, so that memory/testing/explorer can run the very code
// that rings run, under every interleaving (ring_sharing_test.cc).
#ifndef TIDEPOOL_MEMORY_WORKSPACE_RING_SHARING_H_
#define TIDEPOOL_MEMORY_WORKSPACE_RING_SHARING_H_

#include <atomic>
#include <cstdint>
#include <utility>

namespace tidepool {

// How many still need something that the last one ends or frees: the leases of a slot's batch;
// those who need the state behind a ring.
//
// Threads: any. What a holder did before it left has happened for the last one.
template <typename Sync>
class Holders {
 public:
  Holders() = default;
  explicit Holders(int32_t count) : count_(count) {}

  // There was none; now there is one, who makes itself known to others by other means.
  void Begin() noexcept { count_.store(1, std::memory_order_relaxed); }
  // By a holder, or for one by somebody who knows that another one stays until then.
  void Add() noexcept { count_.fetch_add(1, std::memory_order_relaxed); }
  // True for the last one, who has it alone.
  [[nodiscard]] bool Leave() noexcept {
    return count_.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }

 private:
  typename Sync::template Atomic<int32_t> count_{0};
};

// The slots that nobody has, the one put back last first: its memory is warm. Once closed it takes
// none back: a slot then belongs to who brings it. A Slot has a member `next_on_shelf`, a
// Sync::Plain<Slot*>.
//
// Threads: one at a time (the ring's lock).
template <typename Sync, typename Slot>
class SlotShelf {
 public:
  // Whether there is no slot on it; whether it takes none back any more.
  bool empty() const { return top_.get() == nullptr; }
  bool is_closed() const { return closed_.get(); }

  // Null: none.
  Slot* Take() noexcept {
    Slot* const slot = top_.get();
    if (slot != nullptr) top_.set(slot->next_on_shelf.get());
    return slot;
  }
  // False: closed, and the slot is the caller's.
  [[nodiscard]] bool PutBack(Slot* slot) noexcept {
    if (closed_.get()) return false;
    slot->next_on_shelf.set(top_.get());
    top_.set(slot);
    return true;
  }
  // A chain by next_on_shelf of those for which it is true.
  template <typename Predicate>
  Slot* TakeWhere(const Predicate& wanted) noexcept {
    Slot* chain = nullptr;
    Slot* kept = nullptr;
    while (Slot* const slot = Take()) {
      Slot*& list = wanted(*slot) ? chain : kept;
      slot->next_on_shelf.set(list);
      list = slot;
    }
    while (kept != nullptr) {
      Slot* const slot = std::exchange(kept, kept->next_on_shelf.get());
      slot->next_on_shelf.set(top_.get());
      top_.set(slot);
    }
    return chain;
  }
  // As a chain what is on it, which is the caller's.
  Slot* Close() noexcept {
    closed_.set(true);
    Slot* const chain = top_.get();
    top_.set(nullptr);
    return chain;
  }

 private:
  typename Sync::template Plain<Slot*> top_{nullptr};
  typename Sync::template Plain<bool> closed_{false};
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_RING_SHARING_H_
