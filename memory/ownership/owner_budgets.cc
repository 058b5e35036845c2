#include "tidepool/memory/ownership/owner_budgets.h"

#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_events.h"
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

namespace {

// The budget that would be exceeded: its node, and in `limit` what it has; empty when there is none.
uint64_t FindFull(uint64_t ref, int64_t arrays, int64_t bytes, std::string* limit) {
  uint64_t at = ref;
  while (OwnerNode* node = NodeOf(at)) {
    std::lock_guard<SpinLock> lock(node->lock);
    if (node->ref.load(std::memory_order_relaxed) != at) break;
    if (const OwnerBudget* budget = node->budget.get()) {
      const int64_t used_bytes = budget->bytes.load(std::memory_order_relaxed);
      const int64_t used_arrays = budget->arrays.load(std::memory_order_relaxed);
      if (bytes > budget->limit_bytes - used_bytes || arrays > budget->limit_arrays - used_arrays) {
        *limit = absl::StrCat(" has ", used_arrays, " arrays of ", used_bytes,
                              " bytes below it, budget ", budget->limit_bytes, " bytes",
                              budget->limit_arrays == INT64_MAX
                                  ? ""
                                  : absl::StrCat(" and ", budget->limit_arrays, " arrays"));
        break;
      }
    }
    if (node->parent == nullptr) break;
    at = node->parent->opened_ref;
  }
  return at;
}

// With the lock.
bool DropDead(OwnerNode& node, Buffer* newest) noexcept {
  bool any = false;
  while (Buffer* const buffer = newest) {
    newest = buffer->link.older.get();
    if (buffer->IsAlive()) continue;
    Leave(node, nullptr, 1, static_cast<int64_t>(buffer->bytes));
    node.Unlink(buffer);
    buffer->link.node.Set(OwnerWord<StdSync>::kHandles);
    any = true;
  }
  return any;
}

}  // namespace

bool MakeRoom(uint64_t ref, int64_t arrays, int64_t bytes) {
  std::string limit;
  std::vector<uint64_t> below = {FindFull(ref, arrays, bytes, &limit)};
  if (limit.empty()) return false;
  bool any = false;
  while (!below.empty()) {
    const uint64_t at = below.back();
    below.pop_back();
    OwnerNode& node = *NodeOf(at);
    std::lock_guard<SpinLock> lock(node.lock);
    if (node.ref.load(std::memory_order_relaxed) != at || !node.is_open()) continue;
    any |= DropDead(node, node.newest.get());
    any |= DropDead(node, node.newest_in_cycle.get());
    for (const OwnerNode* child = node.newest_child; child != nullptr; child = child->older) {
      below.push_back(child->opened_ref);
    }
  }
  return any;
}

void ThrowBeyondBudget(uint64_t ref, int64_t arrays, int64_t bytes, const std::string& what) {
  std::string limit;
  const uint64_t at = FindFull(ref, arrays, bytes, &limit);
  const OwnershipSnapshot snapshot = SnapshotOf(OwnerRef(at), true);
  ThrowOutOfMemory(
      {snapshot.empty() ? Host() : snapshot.front().device, nullptr, bytes, "a manager"},
      "the budget of a manager",
      absl::StrCat(what, ": ", bytes, " bytes for ", DescribeNode(ref),
                   " exceed a budget: ", DescribeNode(at), limit),
      DumpText(snapshot));
}

}  // namespace tidepool::internal
