// Owners under every interleaving: what is attached, moved, lent, dropped and closed at once is
// closed once, and no node keeps what is not its own.
#include <gtest/gtest.h>

#include <cstdio>
#include <iterator>
#include <mutex>

#include "tidepool/memory/sync/explored_owners.h"
#include "tidepool/memory/testing/explorer/explore.h"
#include "tidepool/memory/testing/explorer/mutations.h"

namespace tidepool {
namespace {

using namespace explored_owners;  // NOLINT(google-build-using-namespace)

using explorer::Execution;
using explorer::FailureKind;
using explorer::Result;

// ---- scenarios ----

void AttachMeetsClose(Execution& execution) {
  auto& tree = execution.Make<Tree>();
  execution.Thread([&] { tree.Attach(&tree.item, tree.nodes[0]); });
  execution.Thread([&] { tree.Close(&tree.item); });
  execution.AtEnd([&] {
    Check(tree.item.closes.get() == 1, "closed once");
    tree.CheckEmpty();
  });
}

void CloseMeetsClose(Execution& execution) {
  auto& tree = execution.Make<Tree>();
  if (explorer::Choose(2) == 1) tree.LinkNew(&tree.item, tree.nodes[0]);
  for (int i = 0; i < 2; ++i) execution.Thread([&] { tree.Close(&tree.item); });
  execution.AtEnd([&] {
    Check(tree.item.closes.get() == 1, "closed once");
    tree.CheckEmpty();
  });
}

void AttachMeetsTheNodesEnd(Execution& execution) {
  auto& tree = execution.Make<Tree>();
  auto& attached = execution.Make<Sync::Plain<bool>>(false);
  execution.Thread([&] { attached.set(tree.Attach(&tree.item, tree.nodes[0])); });
  execution.Thread([&] { tree.CloseNode(tree.nodes[0]); });
  execution.AtEnd([&] {
    Check(tree.item.closes.get() == attached.get(), "closed once if it was attached");
    tree.CheckEmpty();
  });
}

void AttachMeetsAttachAndDetach(Execution& execution) {
  auto& tree = execution.Make<Tree>();
  execution.Thread([&] { tree.Attach(&tree.item, tree.nodes[0]); });
  execution.Thread([&] {
    if (tree.Attach(&tree.item, tree.nodes[1])) tree.TakeOut(&tree.item, Word::kHandles);
  });
  execution.AtEnd([&] {
    const uint64_t owner = tree.item.link.node.Get();
    for (Node& node : tree.nodes) {
      Check(node.arrays.get() == (tree.NodeOf(owner) == &node ? 1 : 0), "in one node or none");
    }
  });
}

void MoveMeetsTheNodesEnd(Execution& execution) {
  auto& tree = execution.Make<Tree>();
  tree.LinkNew(&tree.item, tree.nodes[0]);
  execution.Thread([&] { tree.Attach(&tree.item, tree.nodes[1]); });
  execution.Thread([&] { tree.CloseNode(tree.nodes[0]); });
  execution.AtEnd([&] {
    const bool moved = tree.nodes[1].arrays.get() == 1;
    Check(tree.item.closes.get() == (moved ? 0 : 1), "closed, or the other node's");
  });
}

void CloseMeetsTheNodesEnd(Execution& execution) {
  auto& tree = execution.Make<Tree>();
  tree.LinkNew(&tree.item, tree.nodes[0]);
  execution.Thread([&] { tree.Close(&tree.item); });
  execution.Thread([&] { tree.CloseNode(tree.nodes[0]); });
  execution.AtEnd([&] {
    Check(tree.item.closes.get() == 1, "closed once");
    tree.CheckEmpty();
  });
}

// The node closes records of which the last handle goes meanwhile.
void LastHandlesMeetTheNodesEnd(Execution& execution) {
  auto& tree = execution.Make<Tree>();
  Item *first = Sync::New<Item>(), *second = Sync::New<Item>();
  tree.LinkNew(first, tree.nodes[0]);
  tree.LinkNew(second, tree.nodes[0]);
  Item* const dropped = explorer::Choose(2) == 1 ? first : second;
  execution.Thread([&tree, dropped] { tree.Drop(dropped); });
  execution.Thread([&] { tree.CloseNode(tree.nodes[0]); });
  execution.AtEnd([&tree, other = dropped == first ? second : first] {
    tree.Drop(other);
    tree.CheckEmpty();
  });
}

// The handle that was attached with is dropped at once, while another thread has one.
void AttachDropAndClose(Execution& execution) {
  auto& tree = execution.Make<Tree>();
  Item* item = Sync::New<Item>();
  item->handles.store(2, std::memory_order_relaxed);
  execution.Thread([&tree, item] {
    tree.Attach(item, tree.nodes[0]);
    tree.Drop(item);
  });
  execution.Thread([&tree, item] {
    if (explorer::Choose(2) == 1) tree.Close(item);
    tree.Drop(item);
  });
  execution.AtEnd([&] { tree.CheckEmpty(); });
}

// What a cycle leaves behind is dropped by generation; a resource that closes after that, and
// another thread, drop handles of it. The node's record serves again.
void DropAll(Node& node) { node.DropAll(); }
template <void (*drop_all)(Node&) = DropAll>
void HandlesMeetTheEndOfACycle(Execution& execution) {
  auto& tree = execution.Make<Tree>();
  Item *older = Sync::New<Item>(), *newer = Sync::New<Item>(), *next = Sync::New<Item>();
  tree.LinkNew(older, tree.nodes[0], true);
  tree.LinkNew(newer, tree.nodes[0], true);
  execution.Thread([&tree, newer] {
    {
      std::lock_guard<Node::Lock> lock(tree.nodes[0].lock);
      drop_all(tree.nodes[0]);
    }
    tree.Drop(newer);
  });
  execution.Thread([&tree, older] { tree.Drop(older); });
  execution.AtEnd([&tree, next] {
    tree.CheckEmpty();
    tree.LinkNew(next, tree.nodes[0], true);
    tree.Drop(next);
    tree.CheckEmpty();
  });
}

void LendMeetsClose(Execution& execution) {
  auto& tree = execution.Make<LendingTree>();
  if (explorer::Choose(2) == 1) tree.LinkNew(&tree.item, tree.nodes[0]);
  execution.Thread([&] { tree.Lend(&tree.item); });
  execution.Thread([&] { tree.Close(&tree.item); });
  execution.AtEnd([&] {
    tree.CheckNothingLent();
    Check(tree.item.closes.get() == 1, "closed once");
  });
}

void OwnersEndMeetsBorrowersEnd(Execution& execution) {
  auto& tree = execution.Make<LendingTree>();
  tree.LinkNew(&tree.item, tree.nodes[0]);
  tree.Lend(&tree.item);
  execution.Thread([&] { tree.CloseNode(tree.nodes[0]); });
  execution.Thread([&] { tree.CloseBorrower(); });
  execution.AtEnd([&] {
    Check(tree.item.closes.get() == 1, "closed with the last of them");
    tree.CheckEmpty();
    tree.CheckNothingLent();
  });
}

// Three parties: the owner, and two who borrow from it.
void OwnersEndMeetsTwoBorrowers(Execution& execution) {
  auto& tree = execution.Make<LendingTree>();
  tree.LinkNew(&tree.item, tree.nodes[0]);
  tree.Lend(&tree.item, 0);
  tree.Lend(&tree.item, 1);
  execution.Thread([&] { tree.CloseNode(tree.nodes[0]); });
  execution.Thread([&] { tree.CloseBorrower(0); });
  execution.Thread([&] { tree.EndLoan(&tree.item, 1); });
  execution.AtEnd([&] {
    Check(tree.item.closes.get() == 1, "closed with the last of them");
    tree.CheckEmpty();
    tree.CheckNothingLent();
  });
}

// Lending to one, and once more to the other, while that one ends.
void LendMeetsBorrowersEnd(Execution& execution) {
  auto& tree = execution.Make<LendingTree>();
  tree.LinkNew(&tree.item, tree.nodes[0]);
  tree.Lend(&tree.item, 0);
  execution.Thread([&] {
    tree.Lend(&tree.item, 1);
    tree.Lend(&tree.item, 0);
  });
  execution.Thread([&] { tree.EndLoan(&tree.item, 0); });
  execution.AtEnd([&] {
    Check(tree.borrowers[1].loans.get() == 1, "what was lent is lent");
    tree.CloseBorrower(0);
    Check(tree.item.link.loans.load(std::memory_order_relaxed) ==
              tree.borrowers[1].newest_loan.load(std::memory_order_relaxed),
          "one loan is left");
    tree.CloseNode(tree.nodes[0]);
    Check(tree.item.closes.get() == 0, "it outlives its owner");
    tree.CloseBorrower(1);
    Check(tree.item.closes.get() == 1, "closed with the last of them");
    tree.CheckNothingLent();
  });
}

// The last handle of an item whose owner is gone, and its borrower.
void LastHandleMeetsBorrowersEnd(Execution& execution) {
  auto& tree = execution.Make<LendingTree>();
  Item* const item = Sync::New<Item>();
  tree.LinkNew(item, tree.nodes[0]);
  tree.Lend(item);
  tree.CloseNode(tree.nodes[0]);
  execution.Thread([&tree, item] { tree.Drop(item); });
  execution.Thread([&tree] { tree.CloseBorrower(); });
  execution.AtEnd([&tree] { tree.CheckNothingLent(); });
}

// The owner is gone: attaching elsewhere meets the end of the last borrower.
void AttachMeetsBorrowersEnd(Execution& execution) {
  auto& tree = execution.Make<LendingTree>();
  auto& attached = execution.Make<Sync::Plain<bool>>(false);
  tree.LinkNew(&tree.item, tree.nodes[0]);
  tree.Lend(&tree.item);
  tree.CloseNode(tree.nodes[0]);
  execution.Thread([&] { attached.set(tree.Attach(&tree.item, tree.nodes[1])); });
  execution.Thread([&] { tree.CloseBorrower(); });
  execution.AtEnd([&] {
    Check(tree.item.closes.get() == (attached.get() ? 0 : 1), "closed, or attached");
    Check(tree.nodes[1].arrays.get() == (attached.get() ? 1 : 0), "attached, or not");
  });
}

struct Scenario {
  const char* name;
  void (*body)(Execution&);
  int preemptions = 3;
};
constexpr Scenario kScenarios[] = {
    {"attach_close", AttachMeetsClose},
    {"close_close", CloseMeetsClose},
    {"attach_end", AttachMeetsTheNodesEnd},
    {"attach_attach", AttachMeetsAttachAndDetach},
    {"move_end", MoveMeetsTheNodesEnd},
    {"close_end", CloseMeetsTheNodesEnd},
    {"handles_end", LastHandlesMeetTheNodesEnd},
    {"attach_drop_close", AttachDropAndClose},
    {"handles_cycle", HandlesMeetTheEndOfACycle<>},
    {"lend_close", LendMeetsClose},
    {"owner_borrower", OwnersEndMeetsBorrowersEnd},
    {"attach_borrower", AttachMeetsBorrowersEnd},
    {"owner_borrowers", OwnersEndMeetsTwoBorrowers, 2},
    {"lend_borrower", LendMeetsBorrowersEnd},
    {"drop_borrower", LastHandleMeetsBorrowersEnd},
};

class OwnerListExploration : public ::testing::TestWithParam<Scenario> {};

TEST_P(OwnerListExploration, Holds) {
  const Result result =
      Explore({.name = GetParam().name, .preemptions = GetParam().preemptions}, GetParam().body);
  EXPECT_TRUE(result.passed()) << result.report();
  EXPECT_TRUE(result.exhausted) << result.report();
  std::printf("%s\n", result.report().c_str());
}

INSTANTIATE_TEST_SUITE_P(All, OwnerListExploration, ::testing::ValuesIn(kScenarios),
                         [](const auto& info) { return info.param.name; });

// ---- teeth ----

TEST(OwnerListMutations, AreNoticed) {
  const explorer::MutationTable table =
      explorer::ExploreMutations({.name = "owners", .preemptions = 2}, [](Execution& execution) {
        kScenarios[explorer::Choose(std::size(kScenarios))].body(execution);
      });
  EXPECT_TRUE(table.original.passed()) << table.report();
  EXPECT_EQ(table.undetected(), "") << table.report();
}

// The lock of the loans, which the table does not leave out.
struct WithoutLocks : Sync {
  struct Mutex {
    void lock() {}
    void unlock() {}
  };
};
TEST(LoanBookMutations, TheLockIsNeeded) {
  struct State {
    LoanBook<WithoutLocks, Loan, Item, Node> book;
    Item item;
    Node borrowers[2];
  };
  const Result result = explorer::Explore({.name = "loans"}, [](Execution& execution) {
    auto& state = execution.Make<State>();
    for (Node& borrower : state.borrowers) {
      execution.Thread([&state, &borrower] {
        Loan* spare = Sync::New<Loan>();
        state.book.Lend(&state.item, borrower, 1, spare, [](uint64_t) { return nullptr; });
        Sync::Delete(spare);
      });
    }
    execution.AtEnd([&state] { state.book.EndAll(&state.item); });
  });
  EXPECT_EQ(result.failure, FailureKind::kDataRace) << result.report();
}

// ---- negative controls: what it was before ----

// A node dropped its lists, and its reference only after its resources were closed.
void DropListsAlone(Node& node) {
  node.newest.set(nullptr);
  node.newest_in_cycle.set(nullptr);
  node.arrays.set(0);
  node.bytes.set(0);
}
TEST(OwnerListBefore, ListsThatAreDroppedWithoutTheReferenceAreFound) {
  const Result result =
      explorer::Explore({.name = "lists"}, HandlesMeetTheEndOfACycle<DropListsAlone>);
  EXPECT_EQ(result.failure, FailureKind::kCheck) << result.report();
}

// Attaching looked at liveness before the lock, and a node did not ask whether an item was closed.
TEST(OwnerListBefore, AttachingWithoutLookingAgainIsFound) {
  struct Old {
    Sync::Mutex lock;
    Sync::Plain<bool> linked{false};
    Sync::Atomic<bool> in_tree{false}, closed{false};
    Sync::Atomic<int> closes{0};
  };
  const Result result = explorer::Explore({.name = "attach"}, [](Execution& execution) {
    auto& old = execution.Make<Old>();
    execution.Thread([&] {
      if (old.closed.load(std::memory_order_relaxed)) return;
      std::lock_guard<Sync::Mutex> lock(old.lock);
      old.in_tree.store(true, std::memory_order_relaxed);
      old.linked.set(true);
    });
    execution.Thread([&] {
      if (old.in_tree.load(std::memory_order_relaxed)) {
        std::lock_guard<Sync::Mutex> lock(old.lock);
        old.linked.set(false);
      }
      if (!old.closed.exchange(true)) old.closes.fetch_add(1);
    });
    execution.AtEnd([&] {
      if (old.linked.get()) old.closes.fetch_add(1);  // the node closes
      Check(old.closes.load() == 1, "closed once");
    });
  });
  EXPECT_EQ(result.failure, FailureKind::kCheck) << result.report();
}

// A node noted in `care` that it closed the item, by a load and a store, while a mirror was made.
TEST(OwnerListBefore, NotingByLoadAndStoreIsFound) {
  const Result result = explorer::Explore({.name = "care"}, [](Execution& execution) {
    auto& item = execution.Make<Item>();
    execution.Thread([&] {
      const uint8_t care = item.care.load(std::memory_order_relaxed);
      item.care.store(care | Item::kOwnerGone, std::memory_order_release);
    });
    execution.Thread([&] { item.care.fetch_or(Item::kMirrored, std::memory_order_relaxed); });
    execution.AtEnd([&] {
      Check((item.care.load(std::memory_order_relaxed) & Item::kMirrored) != 0, "noted");
    });
  });
  EXPECT_EQ(result.failure, FailureKind::kCheck) << result.report();
}

}  // namespace
}  // namespace tidepool
