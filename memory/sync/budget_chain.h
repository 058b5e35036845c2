// BudgetChain: counters at the nodes of a tree that have a budget, of all that is below them
// (memory/ownership/owner_budgets.h).
//
// Invariants: what has arrived and not left never exceeds a limit, however many threads try at once; when
// nobody is at it the counters are exact. What arrives is added first and taken back when that is too much:
// of two that find room for one, the later sees both. So both may be refused then, and one that fits may be
// refused for one that does not and is about to be taken back.
//
// Orders: none, all are additions to single counters. The nodes' locks, which the callers have, keep the
// tree as it is. owner_list_exploration_test explores it.
#ifndef TIDEPOOL_MEMORY_SYNC_BUDGET_CHAIN_H_
#define TIDEPOOL_MEMORY_SYNC_BUDGET_CHAIN_H_

#include <atomic>
#include <cstdint>

namespace tidepool {

// Node: budgeted, the nearest with a budget, itself included; parent; budget, with limit_bytes,
// limit_arrays and the Atomic<int64_t> bytes and arrays.
template <typename Node>
class BudgetChain {
 public:
  // Of something that comes from `from`, null: from no node. False, and nothing has changed, when a
  // budget of `to` that does not count `from`'s would be exceeded.
  static bool Arrive(const Node* from, const Node& to, int64_t arrays, int64_t bytes) noexcept {
    if (to.budgeted == nullptr) return true;
    const Node* const end = FirstShared(to, from);
    Add(to, end, arrays, bytes);
    for (const Node* at = to.budgeted; at != end; at = Above(*at)) {
      const auto& budget = *at->budget;
      if (budget.bytes.load(std::memory_order_relaxed) > budget.limit_bytes ||
          budget.arrays.load(std::memory_order_relaxed) > budget.limit_arrays) {
        Add(to, end, -arrays, -bytes);
        return false;
      }
    }
    return true;
  }
  // Takes Arrive back.
  static void CancelArrival(const Node* from, const Node& to, int64_t arrays,
                            int64_t bytes) noexcept {
    if (to.budgeted != nullptr) Add(to, FirstShared(to, from), -arrays, -bytes);
  }
  // The other half of a move that cannot fail any more; `to` null: to no node.
  static void Leave(const Node& from, const Node* to, int64_t arrays, int64_t bytes) noexcept {
    if (from.budgeted != nullptr) Add(from, FirstShared(from, to), -arrays, -bytes);
  }

 private:
  // The next node with a budget above one that has one.
  static const Node* Above(const Node& budgeted) {
    return budgeted.parent != nullptr ? budgeted.parent->budgeted : nullptr;
  }
  // The first budget of `of` that counts `other`'s too; null when none does.
  static const Node* FirstShared(const Node& of, const Node* other) {
    if (other == nullptr || other->budgeted == nullptr) return nullptr;
    for (const Node* at = of.budgeted; at != nullptr; at = Above(*at)) {
      for (const Node* its = other->budgeted; its != nullptr; its = Above(*its)) {
        if (its == at) return at;
      }
    }
    return nullptr;
  }
  // To the budgets of `node` before `end`.
  static void Add(const Node& node, const Node* end, int64_t arrays, int64_t bytes) noexcept {
    for (const Node* at = node.budgeted; at != end; at = Above(*at)) {
      at->budget->arrays.fetch_add(arrays, std::memory_order_relaxed);
      at->budget->bytes.fetch_add(bytes, std::memory_order_relaxed);
    }
  }
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_SYNC_BUDGET_CHAIN_H_
