// BudgetChain: counters at the nodes of a tree that have a budget, of all that is below them
// (memory/ownership/owner_budgets.h).
//
// Invariants: no counter ever exceeds its limit, however many threads try at once, so that no sum
// overflows; when nobody is at it the counters are exact. One budget after the other takes what arrives, if
// it has room, and gives it back when a later one has none. So of two that there is room for one of, both may
// be refused, and one that fits may be refused for one that does not and is about to be taken back.
//
// Orders: none, all are steps on single counters. The nodes' locks, which the callers have, keep the
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
    for (const Node* at = to.budgeted; at != end; at = Above(*at)) {
      if (Take(*at->budget, arrays, bytes)) continue;
      Add(to, at, -arrays, -bytes);
      return false;
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
  template <typename Counter>
  static bool TakeOf(Counter& used, int64_t limit, int64_t more) noexcept {
    int64_t now = used.load(std::memory_order_relaxed);
    do {
      if (more > limit - now) return false;
    } while (!used.compare_exchange_strong(now, now + more, std::memory_order_relaxed));
    return true;
  }
  template <typename Budget>
  static bool Take(Budget& budget, int64_t arrays, int64_t bytes) noexcept {
    if (!TakeOf(budget.arrays, budget.limit_arrays, arrays)) return false;
    if (TakeOf(budget.bytes, budget.limit_bytes, bytes)) return true;
    budget.arrays.fetch_sub(arrays, std::memory_order_relaxed);
    return false;
  }
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
