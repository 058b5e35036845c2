#include "tidepool/memory/ownership/owner_budgets.h"

#include <mutex>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/ownership_snapshot.h"

namespace tidepool::internal {
namespace {

// The next node with a budget above one that has one.
OwnerNode* Above(const OwnerNode& budgeted) {
  return budgeted.parent != nullptr ? budgeted.parent->budgeted : nullptr;
}

// The first budget of `of` that counts `other`'s too; null when none does.
const OwnerNode* FirstShared(const OwnerNode& of, const OwnerNode* other) {
  if (other == nullptr || other->budgeted == nullptr) return nullptr;
  for (const OwnerNode* at = of.budgeted; at != nullptr; at = Above(*at)) {
    for (const OwnerNode* its = other->budgeted; its != nullptr; its = Above(*its)) {
      if (its == at) return at;
    }
  }
  return nullptr;
}

// To the budgets of `node` before `end`.
void Add(const OwnerNode& node, const OwnerNode* end, int64_t arrays, int64_t bytes) noexcept {
  for (OwnerNode* at = node.budgeted; at != end; at = Above(*at)) {
    at->budget->arrays.fetch_add(arrays, std::memory_order_relaxed);
    at->budget->bytes.fetch_add(bytes, std::memory_order_relaxed);
  }
}

bool Take(std::atomic<int64_t>& used, int64_t limit, int64_t more) noexcept {
  int64_t now = used.load(std::memory_order_relaxed);
  do {
    if (more > limit - now) return false;
  } while (!used.compare_exchange_weak(now, now + more, std::memory_order_relaxed));
  return true;
}

bool Take(OwnerBudget& budget, int64_t arrays, int64_t bytes) noexcept {
  if (!Take(budget.arrays, budget.limit_arrays, arrays)) return false;
  if (Take(budget.bytes, budget.limit_bytes, bytes)) return true;
  budget.arrays.fetch_sub(arrays, std::memory_order_relaxed);
  return false;
}

}  // namespace

bool ArriveInBudgets(const OwnerNode* from, const OwnerNode& to, int64_t arrays,
                     int64_t bytes) noexcept {
  const OwnerNode* const end = FirstShared(to, from);
  for (const OwnerNode* at = to.budgeted; at != end; at = Above(*at)) {
    if (Take(*at->budget, arrays, bytes)) continue;
    Add(to, at, -arrays, -bytes);
    return false;
  }
  return true;
}

void CancelArrival(const OwnerNode* from, const OwnerNode& to, int64_t arrays,
                   int64_t bytes) noexcept {
  if (to.budgeted != nullptr) Add(to, FirstShared(to, from), -arrays, -bytes);
}

void Leave(const OwnerNode& from, const OwnerNode* to, int64_t arrays, int64_t bytes) noexcept {
  if (from.budgeted != nullptr) Add(from, FirstShared(from, to), -arrays, -bytes);
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
