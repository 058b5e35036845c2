// AccountCounters: the counters that a workspace adds to with plain stores, and how the ledger learns that
// they moved.
//
// An account that moves puts itself on the ledger's list: its flag is set and it is pushed to an inbox,
// which the ledger takes as a whole under its lock. An account whose counters rest is taken off. Invariants:
// - an account is on the list once: who changes the flag from false to true pushes it;
// - no height that the counters reached is lost: what is added after the ledger read it is above what the
//   ledger makes the window's peak, or was below the peak that the ledger took.
// A store that the ledger does not see when it takes an account off is counted at the next one (the counters
// have no fence), or when List is called. Called before the ledger's lock it may be undone by the time that
// this is had; so the end of a cycle lists under it.
//
// Threads: AddUsed, SubUsed and List by one thread at a time, which comes after the one before; what is said
// to be the ledger's under its lock, beside them. account_counters_exploration_test.cc explores it.
#ifndef TIDEPOOL_MEMORY_ACCOUNTING_ACCOUNT_COUNTERS_H_
#define TIDEPOOL_MEMORY_ACCOUNTING_ACCOUNT_COUNTERS_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace tidepool {

template <typename Sync>
class AccountCounters {
 public:
  // Of a ledger: the accounts that moved since it looked.
  using Inbox = typename Sync::template Atomic<AccountCounters*>;

  // Bytes of arrays alive. A load, an add, a compare, a store or two; no locked instruction.
  void AddUsed(int64_t bytes) {
    if (AddUsedToBeListed(bytes)) [[unlikely]]
      List();
  }
  // The same for a caller that has to call List() itself when this is true, where the call costs it least.
  [[nodiscard]] bool AddUsedToBeListed(int64_t bytes) {
    int64_t used = used_.load(std::memory_order_relaxed) + bytes;
    used_.store(used, std::memory_order_relaxed);
    if (used > window_peak_.load(std::memory_order_relaxed)) {
      window_peak_.store(used, std::memory_order_relaxed);
    }
    return !listed_.load(std::memory_order_relaxed);
  }
  // Those that are alive no more.
  void SubUsed(int64_t bytes) {
    used_.store(used_.load(std::memory_order_relaxed) - bytes, std::memory_order_relaxed);
    if (!listed_.load(std::memory_order_relaxed)) [[unlikely]]
      List();
  }
  // Now, and at most since the ledger took the window. Any thread.
  int64_t used_bytes() const { return used_.load(std::memory_order_relaxed); }
  int64_t window_peak() const { return window_peak_.load(std::memory_order_relaxed); }

  // Nobody else sets the flag but under the ledger's lock.
  [[gnu::noinline]] void List() noexcept {
    Inbox* const inbox = inbox_.load(std::memory_order_relaxed);
    if (inbox == nullptr || listed_.exchange(true, std::memory_order_acquire)) return;
    AccountCounters* head = inbox->load(std::memory_order_relaxed);
    do {
      next_listed_.set(head);
    } while (!inbox->compare_exchange_weak(head, this, std::memory_order_release,
                                           std::memory_order_relaxed));
  }

  // ---- the ledger's -----------------------------------------------------------------------------

  // `inbox` of the ledger's, or null: of none any more. Not beside the account's own thread.
  void SetInbox(Inbox* inbox) noexcept {
    inbox_.store(inbox, std::memory_order_relaxed);
    if (inbox == nullptr) listed_.store(false, std::memory_order_relaxed);
  }

  // Calls add(AccountCounters*) for each that came.
  template <typename Add>
  static void TakeInbox(Inbox& inbox, const Add& add) {
    if (inbox.load(std::memory_order_relaxed) == nullptr) return;
    AccountCounters* account = inbox.exchange(nullptr, std::memory_order_acquire);
    for (; account != nullptr; account = account->next_listed_.get()) add(account);
  }

  // The peak since the window was taken last; from here on it is `used`, which was read before.
  int64_t TakeWindow(int64_t used) noexcept {
    // In one: what is stored between a load and a store would be lost.
    return std::max(used, window_peak_.exchange(used, std::memory_order_relaxed));
  }

  // Of one on the list that rests at `counted`. False: it moved meanwhile and stays.
  bool TakeOffList(int64_t counted) noexcept {
    // Released: who lists it again writes what TakeInbox has read. Sequentially consistent only so that a
    // processor's store is sooner seen here; the other side has no fence, so it promises nothing.
    listed_.store(false, std::memory_order_seq_cst);
    // It may have moved meanwhile and put itself on the list; or have looked at the flag too early.
    if (used_.load(std::memory_order_seq_cst) == counted) return true;
    return listed_.exchange(true, std::memory_order_relaxed);
  }

 private:
  template <typename T>
  using Atomic = typename Sync::template Atomic<T>;

  Atomic<int64_t> used_{0};
  Atomic<int64_t> window_peak_{0};  // since the ledger last took it
  Atomic<bool> listed_{false};      // the ledger looks at it at every change
  Atomic<Inbox*> inbox_{nullptr};   // of its device's ledger while registered
  typename Sync::template Plain<AccountCounters*> next_listed_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_ACCOUNTING_ACCOUNT_COUNTERS_H_
