// ReturnedRecords: records that any thread gives back to their owner, and how the owner ends while
// some are still out.
//
// A stack: many push, one takes all of it at once, so that nobody compares a pointer that may have come
// and gone in between. When the owner ends it closes the stack; who comes with a record after that
// counts down, and the last one frees the owner's memory.
//
// Invariant: each record given is taken exactly once or counted exactly once, and exactly one call,
// DropOwner() or the last Give(), is told to free. Who frees sees all that the others did before.
//
// A template over what synchronises and over how records are linked (Links::SetNext(record, next),
// called by who gives it), so that the code that runs is the code that is explored
// (workspace_protocols_test.cc).
#ifndef TIDEPOOL_MEMORY_WORKSPACE_RETURNED_RECORDS_H_
#define TIDEPOOL_MEMORY_WORKSPACE_RETURNED_RECORDS_H_

#include <atomic>
#include <cstdint>

#include "tidepool/memory/sync/std_sync.h"

namespace tidepool {

template <typename Sync, typename Record, typename Links>
class BasicReturnedRecords {
 public:
  // Any thread. True when this was the last record of an owner that has ended: the caller frees it.
  [[nodiscard]] bool Give(Record* record) {
    // Acquire: who sees the mark must see the count as well.
    Record* head = head_.load(std::memory_order_acquire);
    do {
      if (head == Ended()) return orphans_.fetch_sub(1, std::memory_order_acq_rel) == 1;
      Links::SetNext(record, head);
      // Release: the record's contents, its next one included. Acquire as above.
    } while (!head_.compare_exchange_weak(head, record, std::memory_order_release,
                                          std::memory_order_acquire));
    return false;
  }

  // ---- the owner's thread ---------------------------------------------------------------------
  bool empty() const { return head_.load(std::memory_order_relaxed) == nullptr; }
  // All that were given, the last one first; null when there are none.
  Record* TakeAll() {
    if (empty()) return nullptr;
    return head_.exchange(nullptr, std::memory_order_acquire);
  }
  // Ends the owner with `out` records out: false when more have been given since the last TakeAll(),
  // which is to be called again then.
  bool End(int64_t out) {
    orphans_.store(out + 1, std::memory_order_relaxed);
    Record* expected = nullptr;
    // Release: the count.
    return head_.compare_exchange_strong(expected, Ended(), std::memory_order_release,
                                         std::memory_order_relaxed);
  }
  // After End(): the owner's own share. True when no record is out: the caller frees it.
  [[nodiscard]] bool DropOwner() { return orphans_.fetch_sub(1, std::memory_order_acq_rel) == 1; }

 private:
  static Record* Ended() { return reinterpret_cast<Record*>(uintptr_t{1}); }

  typename Sync::template Atomic<Record*> head_{nullptr};
  typename Sync::template Atomic<int64_t> orphans_{0};  // out when the owner ended, and itself
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_RETURNED_RECORDS_H_
