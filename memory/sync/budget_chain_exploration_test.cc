// Budgets of a tree under every interleaving: no limit is exceeded, no count is lost.
#include <gtest/gtest.h>

#include <cstdio>

#include "tidepool/memory/sync/budget_chain.h"
#include "tidepool/memory/testing/explorer/explore.h"
#include "tidepool/memory/testing/explorer/mutations.h"
#include "tidepool/memory/testing/explorer/sync.h"

namespace tidepool {
namespace {

using explorer::Check;
using explorer::Execution;
using explorer::Result;
using explorer::Sync;

struct Budget {
  int64_t limit_bytes = 0, limit_arrays = 0;
  Sync::Atomic<int64_t> bytes{0}, arrays{0};
};
struct Node {
  Node* parent = nullptr;
  Node* budgeted = nullptr;
  Budget* budget = nullptr;
};
using Chain = BudgetChain<Node>;

// A root with room for 10 bytes in 2 arrays, below it `narrow` with room for 6 and `free` without a budget.
struct Tree {
  Tree() {
    root.budgeted = free.budgeted = &root;
    root.budget = &budgets[0];
    narrow.budget = &budgets[1];
    narrow.budgeted = &narrow;
    narrow.parent = free.parent = &root;
    budgets[0].limit_bytes = 10;
    budgets[0].limit_arrays = 2;
    budgets[1].limit_bytes = 6;
    budgets[1].limit_arrays = 9;
  }
  void Arrive(int thread, const Node* from, const Node& to, int64_t bytes) {
    arrived[thread].set(Chain::Arrive(from, to, 1, bytes));
  }
  int64_t Of(int thread, int64_t bytes) const { return arrived[thread].get() ? bytes : 0; }
  void CheckCounts(int64_t in_root, int64_t in_narrow, int64_t arrays) const {
    Check(budgets[0].bytes.load() == in_root && budgets[1].bytes.load() == in_narrow &&
              budgets[0].arrays.load() == arrays,
          "the counts are exact");
    Check(in_root <= 10 && in_narrow <= 6 && arrays <= 2, "no limit is exceeded");
  }

  Node root, narrow, free;
  Budget budgets[2];
  Sync::Plain<bool> arrived[3];
};

void ArrivalsBelowTwoBudgets(Execution& execution) {
  auto& tree = execution.Make<Tree>();
  execution.Thread([&] { tree.Arrive(0, nullptr, tree.narrow, 6); });
  execution.Thread([&] { tree.Arrive(1, nullptr, tree.free, 6); });
  execution.AtEnd([&] {
    tree.CheckCounts(tree.Of(0, 6) + tree.Of(1, 6), tree.Of(0, 6), tree.Of(0, 1) + tree.Of(1, 1));
  });
}

// A move within the root needs no room in the root.
void AMoveBesideAnArrival(Execution& execution) {
  auto& tree = execution.Make<Tree>();
  tree.Arrive(2, nullptr, tree.free, 5);
  execution.Thread([&] {
    tree.Arrive(0, &tree.free, tree.narrow, 5);
    if (tree.arrived[0].get()) Chain::Leave(tree.free, &tree.narrow, 1, 5);
  });
  execution.Thread([&] { tree.Arrive(1, nullptr, tree.narrow, 3); });
  execution.AtEnd([&] {
    tree.CheckCounts(5 + tree.Of(1, 3), tree.Of(0, 5) + tree.Of(1, 3), 1 + tree.Of(1, 1));
  });
}

void ThreeArrivalsOneCancelled(Execution& execution) {
  auto& tree = execution.Make<Tree>();
  execution.Thread([&] {
    tree.Arrive(0, nullptr, tree.narrow, 4);
    if (tree.arrived[0].get()) Chain::CancelArrival(nullptr, tree.narrow, 1, 4);
  });
  execution.Thread([&] { tree.Arrive(1, nullptr, tree.narrow, 4); });
  execution.Thread([&] { tree.Arrive(2, nullptr, tree.free, 7); });
  execution.AtEnd([&] {
    tree.CheckCounts(tree.Of(1, 4) + tree.Of(2, 7), tree.Of(1, 4), tree.Of(1, 1) + tree.Of(2, 1));
  });
}

TEST(BudgetChainExploration, LimitsHold) {
  struct {
    const char* name;
    void (*body)(Execution&);
    int preemptions;
  } const scenarios[] = {
      {"arrivals", ArrivalsBelowTwoBudgets, 3},
      {"a move", AMoveBesideAnArrival, 3},
      {"three arrivals", ThreeArrivalsOneCancelled, 2},
  };
  for (const auto& scenario : scenarios) {
    const Result result =
        Explore({.name = scenario.name, .preemptions = scenario.preemptions}, scenario.body);
    EXPECT_TRUE(result.passed() && result.exhausted) << result.report();
    std::printf("%s\n", result.report().c_str());
  }
  // There is no order to be weakened.
  const explorer::MutationTable table =
      explorer::ExploreMutations({.name = "budgets", .preemptions = 1}, ArrivalsBelowTwoBudgets);
  for (const explorer::MutationTable::Row& row : table.rows) {
    EXPECT_FALSE(row.where.starts_with("budget_chain.h")) << row.text();
  }
}

// Looking first and adding then lets both in.
TEST(BudgetChainBefore, LookingFirstIsFound) {
  const Result result = explorer::Explore({.name = "look"}, [](Execution& execution) {
    auto& budget = execution.Make<Budget>();
    for (int i = 0; i < 2; ++i) {
      execution.Thread([&budget] {
        if (budget.bytes.load(std::memory_order_relaxed) + 6 > 10) return;
        budget.bytes.fetch_add(6, std::memory_order_relaxed);
      });
    }
    execution.AtEnd([&budget] { Check(budget.bytes.load() <= 10, "no limit is exceeded"); });
  });
  EXPECT_EQ(result.failure, explorer::FailureKind::kCheck) << result.report();
}

}  // namespace
}  // namespace tidepool
