// Ownership moves: attach, detach, return. A move locks both nodes, looks, and relinks; whatever can
// fail does so before.
#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/ownership.h"

namespace tidepool {
namespace {

constexpr uint8_t kLoanBits = Buffer::kLent | Buffer::kOwnerGone;

enum class Refusal { kNone, kClosed, kCapped, kBudget, kRetry, kDead };

void AddCare(Buffer* buffer, uint8_t bits) noexcept {
  buffer->care.fetch_or(bits, std::memory_order_relaxed);
}

bool IsIn(const OwnerNode& node, const Buffer* buffer, uint64_t ref) noexcept {
  return node.ref.load(std::memory_order_relaxed) == ref &&
         buffer->link.node.load(std::memory_order_relaxed) == ref;
}

// `force`: the target was checked, reserved and cannot finish closing meanwhile (AttachAll).
Refusal TryMove(Buffer* buffer, OwnerNode& target, bool force) noexcept {
  const uint64_t from_ref = buffer->link.node.load(std::memory_order_acquire);
  OwnerNode* from = NodeOf(from_ref);
  internal::Lock(from, &target);
  Refusal refusal = Refusal::kNone;
  const uint64_t target_ref = target.ref.load(std::memory_order_relaxed);
  const auto bytes = static_cast<int64_t>(buffer->bytes);
  bool left_cycle = false;
  if (from != nullptr && !IsIn(*from, buffer, from_ref)) {
    // Moved meanwhile; or dropped with the cycle it was made in, which made it stale.
    left_cycle = buffer->link.node.load(std::memory_order_relaxed) == from_ref;
    refusal = left_cycle ? Refusal::kDead : Refusal::kRetry;
  } else if (target.state.load(std::memory_order_relaxed) != NodeState::kOpen && !force) {
    refusal = Refusal::kClosed;
  } else if (from == &target) {
    // It stays; its loans end.
  } else if (target.caps.load(std::memory_order_relaxed) > 0 && !force) {
    refusal = Refusal::kCapped;
  } else {
    if (from != nullptr) internal::ChargeAnyway(*from, -1, -bytes);
    if (force) {
      internal::ChargeAnyway(target, 1, bytes);
    } else if (!internal::Charge(target, 1, bytes)) {
      if (from != nullptr) internal::ChargeAnyway(*from, 1, bytes);
      refusal = Refusal::kBudget;
    }
    uint64_t expected = 0;
    if (refusal != Refusal::kNone) {
    } else if (from != nullptr) {
      internal::Unlink(*from, buffer);
      buffer->link.node.store(target_ref, std::memory_order_release);
      internal::Link(target, buffer);
    } else if (buffer->link.node.compare_exchange_strong(expected, target_ref,
                                                         std::memory_order_acq_rel)) {
      AddCare(buffer, Buffer::kInTree);
      internal::Link(target, buffer);
    } else {
      internal::ChargeAnyway(target, -1, -bytes);
      refusal = Refusal::kRetry;
    }
  }
  internal::Unlock(from, &target);
  if (left_cycle) {
    uint64_t expected = from_ref;
    buffer->link.node.compare_exchange_strong(expected, 0, std::memory_order_relaxed);
  }
  return refusal;
}

// `index`: which one of several.
[[noreturn]] void ThrowDeadBuffer(const char* operation, const Buffer& buffer, int64_t index = -1) {
  ThrowFailedPrecondition(absl::StrCat(operation, ": the array ",
                                       index < 0 ? "" : absl::StrCat("at place ", index, ", "),
                                       "of ", buffer.bytes, " bytes is not alive",
                                       index < 0 ? "" : "; none was moved"));
}

[[noreturn]] void ThrowRefused(const char* operation, OwnerNode& target, Refusal refusal,
                               int64_t arrays, int64_t bytes) {
  const uint64_t ref = target.ref.load(std::memory_order_relaxed);
  if (refusal == Refusal::kBudget) internal::ThrowBeyondBudget(ref, arrays, bytes, operation);
  ThrowFailedPrecondition(absl::StrCat(
      operation, ": ", DescribeNode(ref),
      refusal == Refusal::kClosed ? " is closed" : " is capped: nothing new may be attached to it",
      "; the array stays where it was"));
}

void AttachTo(OwnerNode& target, Buffer* buffer, const char* operation) {
  Refusal refusal;
  do {
    if (!buffer->IsAlive()) ThrowDeadBuffer(operation, *buffer);
    refusal = TryMove(buffer, target, false);
  } while (refusal == Refusal::kRetry || refusal == Refusal::kDead);
  if (refusal != Refusal::kNone) {
    ThrowRefused(operation, target, refusal, 1, static_cast<int64_t>(buffer->bytes));
  }
  if ((buffer->care.load(std::memory_order_relaxed) & kLoanBits) != 0) internal::EndLoans(buffer);
}

// What buffers that move to a node add to a budget that counts the node's.
struct BudgetUse {
  const OwnerNode* node;
  int64_t arrays = 0;
  int64_t bytes = 0;
};

const OwnerNode* NextBudget(const OwnerNode& node) {
  return node.parent != nullptr ? node.parent->budgeted : nullptr;
}

std::vector<BudgetUse> BudgetsOf(OwnerNode& node) {
  std::vector<BudgetUse> budgets;
  std::lock_guard<SpinLock> lock(node.lock);
  if (node.state.load(std::memory_order_relaxed) != NodeState::kOpen) return budgets;
  for (const OwnerNode* at = node.budgeted; at != nullptr; at = NextBudget(*at)) {
    budgets.push_back({at});
  }
  return budgets;
}

// Of a buffer that is below a budget already it needs no more.
void CountArrival(Buffer* buffer, std::vector<BudgetUse>& budgets) noexcept {
  if (budgets.empty()) return;
  const uint64_t from_ref = buffer->link.node.load(std::memory_order_acquire);
  OwnerNode* from = NodeOf(from_ref);
  if (from != nullptr) from->lock.lock();
  const bool owned = from != nullptr && IsIn(*from, buffer, from_ref);
  for (BudgetUse& use : budgets) {
    const OwnerNode* at = owned ? from->budgeted : nullptr;
    while (at != nullptr && at != use.node) at = NextBudget(*at);
    if (at != nullptr) continue;
    ++use.arrays;
    use.bytes += static_cast<int64_t>(buffer->bytes);
  }
  if (from != nullptr) from->lock.unlock();
}

bool Fits(const BudgetUse& use) noexcept {
  const OwnerBudget& budget = *use.node->budget;
  return budget.bytes.load(std::memory_order_relaxed) + use.bytes <= budget.limit_bytes &&
         budget.arrays.load(std::memory_order_relaxed) + use.arrays <= budget.limit_arrays;
}

void AttachAllTo(OwnerNode& target, absl::Span<const BufferHandle* const> buffers,
                 const char* operation) {
  // The sum, once each; then nothing may fail.
  int64_t arrays = 0, bytes = 0;
  const uint64_t target_ref = target.ref.load(std::memory_order_relaxed);
  std::vector<BudgetUse> budgets = BudgetsOf(target);
  std::vector<Buffer*> moves;
  moves.reserve(buffers.size());
  for (size_t i = 0; i < buffers.size(); ++i) {
    Buffer* buffer = buffers[i]->get();
    if (buffer == nullptr) continue;
    if (!buffer->IsAlive()) ThrowDeadBuffer(operation, *buffer, static_cast<int64_t>(i));
    moves.push_back(buffer);  // a second time it moves from the target to the target
  }
  std::vector<Buffer*> once = moves;
  std::sort(once.begin(), once.end());
  once.erase(std::unique(once.begin(), once.end()), once.end());
  for (Buffer* buffer : once) {
    if (buffer->link.node.load(std::memory_order_acquire) == target_ref) continue;
    ++arrays;
    bytes += static_cast<int64_t>(buffer->bytes);
    CountArrival(buffer, budgets);
  }
  Refusal refusal = Refusal::kNone;
  {
    std::lock_guard<SpinLock> lock(target.lock);
    if (target.state.load(std::memory_order_relaxed) != NodeState::kOpen) {
      refusal = Refusal::kClosed;
    } else if (arrays > 0 && target.caps.load(std::memory_order_relaxed) > 0) {
      refusal = Refusal::kCapped;
    } else {
      for (const BudgetUse& use : budgets) {
        if (Fits(use)) continue;
        refusal = Refusal::kBudget;
        arrays = use.arrays;
        bytes = use.bytes;
        break;
      }
      if (refusal == Refusal::kNone) ++target.arriving;  // closing waits for it
    }
  }
  if (refusal != Refusal::kNone) ThrowRefused(operation, target, refusal, arrays, bytes);
  for (Buffer* buffer : moves) {
    while (buffer->IsAlive()) {
      const Refusal moved = TryMove(buffer, target, true);
      if (moved != Refusal::kRetry && moved != Refusal::kDead) break;
    }
    if ((buffer->care.load(std::memory_order_relaxed) & kLoanBits) != 0) {
      internal::EndLoans(buffer);
    }
  }
  std::lock_guard<SpinLock> lock(target.lock);
  --target.arriving;
}

// Out of whichever node has it.
void TakeOut(Buffer* buffer) noexcept {
  while (OwnerNode* node = NodeOf(buffer->link.node.load(std::memory_order_acquire))) {
    if (internal::UnlinkFrom(*node, buffer)) return;
  }
}

void GiveToHandles(Buffer* buffer) noexcept {
  TakeOut(buffer);
  if ((buffer->care.load(std::memory_order_relaxed) & kLoanBits) != 0) internal::EndLoans(buffer);
}

}  // namespace

void Ownership::Attach(const BufferHandle& handle) {
  if (is_null()) return;
  OwnerNode& target = Checked("Attach");
  // An array without elements has no bytes to own.
  if (handle.get() != nullptr) AttachTo(target, handle.get(), "Attach");
}

void Ownership::AttachAll(absl::Span<const BufferHandle* const> buffers) {
  if (is_null()) return;
  AttachAllTo(Checked("AttachAll"), buffers, "AttachAll");
}

void Ownership::Detach(const BufferHandle& handle) {
  if (is_null()) return;
  OwnerNode& node = Checked("Detach");
  Buffer* buffer = handle.get();
  if (buffer == nullptr) return;
  const bool owned = internal::UnlinkFrom(node, buffer);
  if ((buffer->care.load(std::memory_order_relaxed) & kLoanBits) == 0) return;
  if (!owned) {
    if (!internal::IsLentTo(*buffer, node)) return;
    TakeOut(buffer);  // whoever lent it here has lost it: a detached array is its handles'
  }
  internal::EndLoans(buffer);
}

OwnerNode& Ownership::CheckMayReturn() const {
  OwnerNode& node = Checked("Ret");
  if (node.is_root) {
    ThrowFailedPrecondition(absl::StrCat("Ret: ", ref().ToString(), " is a root and has no parent"));
  }
  if (!is_open()) ThrowRefused("Ret", node, Refusal::kClosed, 0, 0);
  return node;
}

void Ownership::Return(const BufferHandle& handle) {
  if (is_null()) return;
  OwnerNode& node = CheckMayReturn();
  Buffer* buffer = handle.get();
  if (buffer == nullptr) return;
  if (!buffer->IsAlive()) ThrowDeadBuffer("Ret", *buffer);
  const bool owned = buffer->link.node.load(std::memory_order_acquire) == ref().bits();
  if (!owned && internal::EndLoanTo(buffer, node)) return;
  if (!node.parent->is_root) return AttachTo(*node.parent, buffer, "Ret");
  GiveToHandles(buffer);
}

void Ownership::ReturnAll(absl::Span<const BufferHandle* const> handles) {
  if (is_null()) return;
  OwnerNode& node = CheckMayReturn();
  // What each of them does is decided before the first moves: one may be there twice.
  std::vector<const BufferHandle*> moves;
  std::vector<Buffer*> lent;
  for (const BufferHandle* handle : handles) {
    Buffer* buffer = handle->get();
    if (buffer == nullptr) continue;
    if (!buffer->IsAlive()) ThrowDeadBuffer("Ret", *buffer);
    const bool owned = buffer->link.node.load(std::memory_order_acquire) == ref().bits();
    if (!owned && internal::IsLentTo(*buffer, node)) {
      lent.push_back(buffer);
    } else {
      moves.push_back(handle);
    }
  }
  if (node.parent->is_root) {
    for (const BufferHandle* handle : moves) GiveToHandles(handle->get());
  } else if (!moves.empty()) {
    AttachAllTo(*node.parent, moves, "Ret");
  }
  for (Buffer* buffer : lent) internal::EndLoanTo(buffer, node);
}

namespace internal {

bool UnlinkFrom(OwnerNode& node, Buffer* buffer) noexcept {
  const uint64_t ref = buffer->link.node.load(std::memory_order_acquire);
  if (NodeOf(ref) != &node) return false;
  std::lock_guard<SpinLock> lock(node.lock);
  if (!IsIn(node, buffer, ref)) {
    if (node.ref.load(std::memory_order_relaxed) == ref) return false;  // moved meanwhile
    uint64_t expected = ref;  // dropped with the node's cycle
    buffer->link.node.compare_exchange_strong(expected, 0, std::memory_order_relaxed);
    return false;
  }
  ChargeAnyway(node, -1, -static_cast<int64_t>(buffer->bytes));
  Unlink(node, buffer);
  buffer->link.node.store(0, std::memory_order_release);
  return true;
}

}  // namespace internal

}  // namespace tidepool
