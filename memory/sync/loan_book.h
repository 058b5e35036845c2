// LoanBook: which nodes an item is lent to. A stack per item and a list per borrower, both under one lock;
// whose the item is (owner_word.h) stays what it was all the while.
//
// Invariants: nobody borrows an item that is closed; an item whose owner ended before its borrowers is
// closed by the last of them, once, unless it was attached elsewhere meanwhile.
//
// Orders: who closes an item moves its word and then notes in `care` (release), who lends notes kLent in
// `care` (acquire) and then looks at the word. kLent stays: the last handle of an item that was ever lent
// takes the lock, so that the record does not go while a borrower has it.
// owner_list_exploration_test.cc explores it. Locks: a node's may be held when this one is taken; none is
// taken under it.
#ifndef TIDEPOOL_MEMORY_SYNC_LOAN_BOOK_H_
#define TIDEPOOL_MEMORY_SYNC_LOAN_BOOK_H_

#include <atomic>
#include <cstdint>
#include <mutex>

#include "tidepool/memory/sync/owner_word.h"

namespace tidepool {

// One temporary attachment, in two lists; the book's lock.
template <typename Sync, typename Loan, typename Item, typename Node>
struct LoanLinks {
  template <typename T>
  using Plain = typename Sync::template Plain<T>;

  Plain<Item*> item;
  Plain<Node*> borrower;
  Plain<Loan*> below;  // of the same item, lent before
  Plain<Loan*> above;
  Plain<Loan*> newer;  // of the same borrower
  Plain<Loan*> older;
};

// Item: link.node, an OwnerWord; link.loans, an Atomic<Loan*>, the last one first; `care` with the bits
// kLent and kOwnerGone. Node: newest_loan, an Atomic<Loan*>; loans, a Plain<int64_t>; `lock`.
template <typename Sync, typename Loan, typename Item, typename Node>
class LoanBook {
 public:
  using Word = OwnerWord<Sync>;
  using Lock = std::lock_guard<typename Sync::Mutex>;

  // For reading; and for what the functions below say.
  typename Sync::Mutex& mutex() { return mutex_; }

  // Nothing happens to an item that is closed or the borrower's (`borrower_ref`) own. Lending again moves
  // the loan to the top. Takes `spare` if it needs it.
  template <typename NodeOf>
  void Lend(Item* item, Node& borrower, uint64_t borrower_ref, Loan*& spare,
            const NodeOf& node_of) {
    for (;;) {
      const uint64_t owner_ref = item->link.node.Get();
      if (owner_ref == borrower_ref) return;
      // The owner's lock: it either sees the loan when it closes or has closed the item before.
      Node* const owner = node_of(owner_ref);
      if (owner != nullptr) owner->lock.lock();
      const bool unmoved = item->link.node.Get() == owner_ref;
      if (unmoved) {
        Lock lock(mutex_);
        LendLocked(item, borrower, spare);
      }
      if (owner != nullptr) owner->lock.unlock();
      if (unmoved) return;
    }
  }

  // The item is closed, attached elsewhere or gone.
  void EndAll(Item* item) noexcept {
    Lock lock(mutex_);
    while (Loan* loan = item->link.loans.load(std::memory_order_relaxed)) Unlink(loan);
    item->care.fetch_and(static_cast<uint8_t>(~Item::kOwnerGone), std::memory_order_relaxed);
  }

  // The owner ends, and has its lock. True: the item is its borrowers' and not in its list any more.
  bool OutlivesOwner(Item* item) noexcept {
    Lock lock(mutex_);
    if (item->link.loans.load(std::memory_order_relaxed) == nullptr) return false;
    item->care.fetch_or(Item::kOwnerGone, std::memory_order_relaxed);
    // Under the lock: the last borrower to close finds it its handles', and may close it.
    item->link.node.Set(Word::kHandles);
    return true;
  }

  // One borrower's loan of it ends; false when there is none. close(&item, 1), under the lock, when that
  // was the last of an item whose owner is gone: the caller has won the right to close it.
  template <typename Close>
  bool End(Item* item, const Node& borrower, const Close& close) {
    Lock lock(mutex_);
    Loan* loan = Find(*item, borrower);
    if (loan == nullptr) return false;
    Unlink(loan);
    if (EndsNow(item)) close(&item, 1);
    return true;
  }
  // A borrower ends: up to kAtOnce of its loans do, the last ones first, and close(items, count) as above.
  template <int kAtOnce, typename Close>
  void EndSome(Node& borrower, const Close& close) {
    Item* ended[kAtOnce];
    int count = 0;
    Lock lock(mutex_);
    for (int i = 0; i < kAtOnce; ++i) {
      Loan* loan = borrower.newest_loan.load(std::memory_order_relaxed);
      if (loan == nullptr) break;
      Item* item = loan->item.get();
      Unlink(loan);
      if (EndsNow(item)) ended[count++] = item;
    }
    if (count > 0) close(ended, count);
  }

  // ---- with the lock ----------------------------------------------------------------------------

  static Loan* Find(const Item& item, const Node& borrower) {
    Loan* loan = item.link.loans.load(std::memory_order_relaxed);
    while (loan != nullptr && loan->borrower.get() != &borrower) loan = loan->below.get();
    return loan;
  }

 private:
  static void LendLocked(Item* item, Node& borrower, Loan*& spare) {
    // Who closes it moves the word and then looks for kLent: one of the two sees the other.
    item->care.fetch_or(Item::kLent, std::memory_order_acquire);
    if (item->link.node.Get() == Word::kClosed) return;
    if (Loan* loan = Find(*item, borrower)) {
      TakeOffStack(loan);
      PutOnTop(loan);
      return;
    }
    Loan* loan = spare;
    spare = nullptr;
    loan->item.set(item);
    loan->borrower.set(&borrower);
    PutOnTop(loan);
    Loan* const older = borrower.newest_loan.load(std::memory_order_relaxed);
    loan->older.set(older);
    if (older != nullptr) older->newer.set(loan);
    borrower.newest_loan.store(loan, std::memory_order_relaxed);
    borrower.loans.set(borrower.loans.get() + 1);
  }

  // After a loan ended: true when that was the last one of an item whose owner is gone; the caller
  // closes it then, under the lock.
  static bool EndsNow(Item* item) {
    if (item->link.loans.load(std::memory_order_relaxed) != nullptr) return false;
    const uint8_t care =
        item->care.fetch_and(static_cast<uint8_t>(~Item::kOwnerGone), std::memory_order_relaxed);
    // Not if it was attached elsewhere meanwhile.
    return (care & Item::kOwnerGone) != 0 && item->link.node.MoveFromHandles(Word::kClosed);
  }

  static void PutOnTop(Loan* loan) {
    auto& top = loan->item.get()->link.loans;
    Loan* const below = top.load(std::memory_order_relaxed);
    loan->above.set(nullptr);
    loan->below.set(below);
    if (below != nullptr) below->above.set(loan);
    top.store(loan, std::memory_order_relaxed);
  }
  static void TakeOffStack(Loan* loan) {
    Loan* const above = loan->above.get();
    Loan* const below = loan->below.get();
    if (above != nullptr) {
      above->below.set(below);
    } else {
      loan->item.get()->link.loans.store(below, std::memory_order_relaxed);
    }
    if (below != nullptr) below->above.set(above);
  }
  static void Unlink(Loan* loan) {
    TakeOffStack(loan);
    Node& borrower = *loan->borrower.get();
    Loan* const newer = loan->newer.get();
    Loan* const older = loan->older.get();
    if (newer != nullptr) {
      newer->older.set(older);
    } else {
      borrower.newest_loan.store(older, std::memory_order_relaxed);
    }
    if (older != nullptr) older->newer.set(newer);
    borrower.loans.set(borrower.loans.get() - 1);
    Sync::Delete(loan);
  }

  typename Sync::Mutex mutex_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_SYNC_LOAN_BOOK_H_
