// What the explorations of owner lists share: items, nodes, and the functions of memory/ownership
// that go with the protocol, over the explorer's policy.
#ifndef TIDEPOOL_MEMORY_SYNC_EXPLORED_OWNERS_H_
#define TIDEPOOL_MEMORY_SYNC_EXPLORED_OWNERS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "tidepool/memory/sync/loan_book.h"
#include "tidepool/memory/sync/owner_list.h"
#include "tidepool/memory/sync/owner_word.h"
#include "tidepool/memory/testing/explorer/explore.h"
#include "tidepool/memory/testing/explorer/sync.h"

namespace tidepool::explored_owners {

using explorer::Check;
using explorer::Sync;

using Word = OwnerWord<Sync>;
struct Loan;

// As Buffer.
struct Item {
  static constexpr uint8_t kInTree = 1, kLent = 2, kOwnerGone = 4, kMirrored = 32;
  struct Link {
    Word node;
    Sync::Plain<Item*> newer, older;
    Sync::Atomic<Loan*> loans{nullptr};
  };
  Link link;
  Sync::Atomic<uint8_t> care{0};
  Sync::Atomic<int> handles{1};
  Sync::Plain<int> closes{0};  // races with whoever closes as well
  size_t bytes = 1;

  void GiveBack() { closes.set(closes.get() + 1); }
};

struct Node : OwnerList<Sync, Item> {
  Sync::Plain<bool> open{true};
  Sync::Atomic<Loan*> newest_loan{nullptr};
  Sync::Plain<int64_t> loans{0};
};

struct Loan : LoanLinks<Sync, Loan, Item, Node> {};
using Book = LoanBook<Sync, Loan, Item, Node>;

// A tree of two nodes, and the functions of memory/ownership that go with the protocol.
struct Tree {
  Tree() {
    for (int i = 0; i < 2; ++i) {
      nodes[i].ref.store(kOwnerGeneration | static_cast<uint64_t>(i + 1),
                         std::memory_order_relaxed);
    }
  }
  Node* NodeOf(uint64_t reference) {
    const uint64_t index = reference & kOwnerIndexMask;
    return index == 0 ? nullptr : &nodes[index - 1];
  }

  bool TakeOut(Item* item, uint64_t to) {
    const uint64_t reference = item->link.node.Get();
    Node* node = NodeOf(reference);
    return node != nullptr && node->TakeOut(item, reference, to, [] {});
  }

  // As Ownership::Attach: false when the node or the item is closed.
  bool Attach(Item* item, Node& target) {
    for (;;) {
      const uint64_t reference = item->link.node.Get();
      if (reference == Word::kClosed) return false;
      Node* from = NodeOf(reference);
      Node* first = from != nullptr && from < &target ? from : &target;
      Node* second = first == &target ? from : &target;
      if (second == first) second = nullptr;
      std::lock_guard<Node::Lock> lock(first->lock);
      if (second != nullptr) second->lock.lock();
      bool done = true, attached = false;
      if (from != nullptr && !from->Owns(item)) {
        if (from->ref.load(std::memory_order_relaxed) != reference) {
          item->link.node.DropOutdated(reference);
        }
        done = false;
      } else if (target.open.get()) {
        attached = true;
        if (from == nullptr) {
          done = attached = target.Claim(item);
          if (done) target.Link(item, false);
        } else if (from != &target) {
          from->MoveTo(target, item, false);
        }
        if (done && (item->care.load(std::memory_order_relaxed) & Item::kLent) != 0) EndLoans(item);
      }
      if (second != nullptr) second->lock.unlock();
      if (done) return attached;
    }
  }

  // As Buffer::Close.
  void Close(Item* item) {
    if (!item->link.node.Close([&](uint64_t to) { return TakeOut(item, to); })) return;
    if ((item->care.fetch_or(Item::kInTree, std::memory_order_release) & Item::kLent) != 0) {
      EndLoans(item);
    }
    item->GiveBack();
  }

  // A handle goes; the last one takes the record with it.
  void Drop(Item* item) {
    if (item->handles.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    if (item->care.load(std::memory_order_relaxed) != 0) {
      if ((item->care.load(std::memory_order_relaxed) & Item::kLent) != 0) EndLoans(item);
      item->link.node.LeaveNode([&](uint64_t to) { return TakeOut(item, to); });
    }
    if (item->link.node.Get() != Word::kClosed) item->GiveBack();
    Check(item->closes.get() == 1, "a record that goes was closed once");
    Sync::Delete(item);
  }

  // As Ownership::Close.
  void CloseNode(Node& node) {
    {
      std::lock_guard<Node::Lock> lock(node.lock);
      node.open.set(false);
    }
    while (CloseSome(node)) {
    }
    std::lock_guard<Node::Lock> lock(node.lock);
    node.DropAll();
  }
  bool CloseSome(Node& node) {
    return node.CloseSome<2>(
        false,
        [this](Item* item) {
          return (item->care.load(std::memory_order_relaxed) & Item::kLent) != 0 &&
                 OutlivesOwner(item);
        },
        [](Item* const* batch, int count, int64_t, int64_t, const Item*) {
          for (int i = 0; i < count; ++i) batch[i]->GiveBack();
        });
  }

  void EndLoans(Item* item) { book.EndAll(item); }
  bool OutlivesOwner(Item* item) { return book.OutlivesOwner(item); }

  void LinkNew(Item* item, Node& node, bool in_cycle = false) {
    std::lock_guard<Node::Lock> lock(node.lock);
    node.LinkNew(item, in_cycle);
  }
  void CheckEmpty() {
    for (Node& node : nodes) {
      Check(node.is_empty() && node.arrays.get() == 0 && node.bytes.get() == 0, "nodes are empty");
    }
  }

  Node nodes[2];
  Book book;
  Item item;
};

// And two nodes that borrow.
struct LendingTree : Tree {
  // As Ownership::LendAll.
  void Lend(Item* lent, int to = 0) {
    Loan* spare = Sync::New<Loan>();
    const uint64_t reference = kOwnerGeneration | static_cast<uint64_t>(to + 3);
    book.Lend(lent, borrowers[to], reference, spare,
              [this](uint64_t owner) { return NodeOf(owner); });
    Sync::Delete(spare);
  }
  // As Detach by a borrower.
  bool EndLoan(Item* lent, int from = 0) { return book.End(lent, borrowers[from], GiveAllBack); }
  // As ReturnLoans.
  void CloseBorrower(int which = 0) {
    while (borrowers[which].newest_loan.load(std::memory_order_relaxed) != nullptr) {
      book.EndSome<2>(borrowers[which], GiveAllBack);
    }
  }
  static void GiveAllBack(Item* const* items, int count) {
    for (int i = 0; i < count; ++i) items[i]->GiveBack();
  }
  void CheckNothingLent() {
    for (Node& borrower : borrowers) {
      Check(borrower.loans.get() == 0 &&
                borrower.newest_loan.load(std::memory_order_relaxed) == nullptr,
            "nobody borrows what is closed");
    }
  }

  Node borrowers[2];
};

}  // namespace tidepool::explored_owners

#endif  // TIDEPOOL_MEMORY_SYNC_EXPLORED_OWNERS_H_
