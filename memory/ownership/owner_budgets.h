// Budgets of nodes: counters at the nodes that have one, of all that is attached below them.
//
// One budget after the other takes what arrives, if it has room, and gives it back when a later one has
// none, so that a limit holds however many threads try at once; of two that there is room for one of, both
// may be refused then. What is counted is never beyond a limit, so that no sum overflows. A move changes
// only the budgets that count one end of it, so that it never needs room for what is below a budget
// already.
//
// With the locks of the nodes given, which are open: their ancestors stay what they are. Cost:
// nothing to speak of where there is no budget.
#ifndef TIDEPOOL_MEMORY_OWNERSHIP_OWNER_BUDGETS_H_
#define TIDEPOOL_MEMORY_OWNERSHIP_OWNER_BUDGETS_H_

#include <cstdint>
#include <string>

#include "tidepool/memory/ownership/owner_node.h"

namespace tidepool::internal {

// Of something that comes from `from`, null: from no node. False, and nothing has changed, when a
// budget of `to` that does not count `from`'s would be exceeded.
bool ArriveInBudgets(const OwnerNode* from, const OwnerNode& to, int64_t arrays,
                     int64_t bytes) noexcept;
inline bool Arrive(const OwnerNode* from, const OwnerNode& to, int64_t arrays,
                   int64_t bytes) noexcept {
  return to.budgeted == nullptr || ArriveInBudgets(from, to, arrays, bytes);
}
// Takes Arrive back.
void CancelArrival(const OwnerNode* from, const OwnerNode& to, int64_t arrays,
                   int64_t bytes) noexcept;
// The other half of a move that cannot fail any more; `to` null: to no node.
void Leave(const OwnerNode& from, const OwnerNode* to, int64_t arrays, int64_t bytes) noexcept;

// Before a refusal, without locks: what has ended with its cycle leaves the nodes below the budget that has no
// room for so much, whatever handles are left of it. False when nothing did. Looks at every array below
// that budget.
bool MakeRoom(uint64_t ref, int64_t arrays, int64_t bytes);
[[noreturn]] void ThrowBeyondBudget(uint64_t ref, int64_t arrays, int64_t bytes,
                                    const std::string& what);

}  // namespace tidepool::internal

#endif  // TIDEPOOL_MEMORY_OWNERSHIP_OWNER_BUDGETS_H_
