#include "tidepool/memory/ownership/owner_budgets.h"

#include <mutex>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/ownership_snapshot.h"
#include "tidepool/memory/sync/budget_chain.h"

namespace tidepool::internal {

bool ArriveInBudgets(const OwnerNode* from, const OwnerNode& to, int64_t arrays,
                     int64_t bytes) noexcept {
  return BudgetChain<OwnerNode>::Arrive(from, to, arrays, bytes);
}

void CancelArrival(const OwnerNode* from, const OwnerNode& to, int64_t arrays,
                   int64_t bytes) noexcept {
  BudgetChain<OwnerNode>::CancelArrival(from, to, arrays, bytes);
}

void Leave(const OwnerNode& from, const OwnerNode* to, int64_t arrays, int64_t bytes) noexcept {
  BudgetChain<OwnerNode>::Leave(from, to, arrays, bytes);
}

void ThrowBeyondBudget(uint64_t ref, int64_t arrays, int64_t bytes, const std::string& what) {
  // The budget that would be exceeded.
  uint64_t at = ref;
  std::string limit;
  while (OwnerNode* node = NodeOf(at)) {
    std::lock_guard<SpinLock> lock(node->lock);
    if (node->ref.load(std::memory_order_relaxed) != at) break;
    if (const OwnerBudget* budget = node->budget.get()) {
      const int64_t used_bytes = budget->bytes.load(std::memory_order_relaxed);
      const int64_t used_arrays = budget->arrays.load(std::memory_order_relaxed);
      if (bytes > budget->limit_bytes - used_bytes || arrays > budget->limit_arrays - used_arrays) {
        limit = absl::StrCat(" has ", used_arrays, " arrays of ", used_bytes,
                             " bytes below it, budget ", budget->limit_bytes, " bytes",
                             budget->limit_arrays == INT64_MAX
                                 ? ""
                                 : absl::StrCat(" and ", budget->limit_arrays, " arrays"));
        break;
      }
    }
    if (node->parent == nullptr) break;
    at = node->parent->ref.load(std::memory_order_relaxed);
  }
  throw OutOfMemoryError(absl::StrCat(what, ": ", bytes, " bytes for ", DescribeNode(ref),
                                      " exceed a budget: ", DescribeNode(at), limit),
                         DumpText(SnapshotOf(OwnerRef(at), true)));
}

}  // namespace tidepool::internal
