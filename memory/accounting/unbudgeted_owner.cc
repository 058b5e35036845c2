#include "tidepool/memory/accounting/unbudgeted_owner.h"

#include <atomic>

namespace tidepool {
namespace internal {
extern constinit std::atomic<const MemoryOwner*> owner_beside_budgets;  // memory_budget.cc
}  // namespace internal

MemoryOwner& OwnerBesideBudgets() {
  static MemoryOwner* const owner = [] {
    MemoryOwner* const made = &MemoryOwner::Process().Child("dry runs");
    internal::owner_beside_budgets.store(made, std::memory_order_release);
    return made;
  }();
  return *owner;
}

}  // namespace tidepool
