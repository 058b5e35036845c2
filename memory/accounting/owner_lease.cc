#include "tidepool/memory/accounting/owner_lease.h"

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <new>
#include <vector>

#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/device_check.h"

namespace tidepool {

OwnerLease::OwnerLease(MemoryOwner& parent, const std::string& name)
    : owner_([&] {
        MemoryOwner* owner = &parent;
        while (owner->is_tag()) owner = owner->parent();
        std::lock_guard<std::mutex> lock(MemoryOwner::TreeMutex());
        return &owner->FindOrMakeLocked(name, /*is_tag=*/false, /*leased=*/true);
      }()) {}

OwnerLease::OwnerLease(const OwnerLease& other) noexcept : owner_(other.owner_) {
  std::lock_guard<std::mutex> lock(MemoryOwner::TreeMutex());
  if (!owner_->is_shared()) ++owner_->leases_;
}

OwnerLease::~OwnerLease() {
  {
    std::lock_guard<std::mutex> lock(MemoryOwner::TreeMutex());
    if (owner_->is_shared() || --owner_->leases_ > 0 || owner_->stays_) return;
    owner_->BecomeGone();
    if (MemoryOwner::gone_ <= kGoneOwnersNamed) return;
  }
  MemoryBudget::MergeGone(kGoneOwnersNamed, kGoneOwnersName);
}

MemoryOwnersHold::MemoryOwnersHold() {
  std::lock_guard<std::mutex> lock(MemoryOwner::TreeMutex());
  ++MemoryOwner::holds_;
}

MemoryOwnersHold::~MemoryOwnersHold() {
  {
    std::lock_guard<std::mutex> lock(MemoryOwner::TreeMutex());
    if (--MemoryOwner::holds_ > 0 || MemoryOwner::gone_ <= kGoneOwnersNamed) return;
  }
  MemoryBudget::MergeGone(kGoneOwnersNamed, kGoneOwnersName);
}

// ---- merging ----------------------------------------------------------------------------------

void MemoryBudget::MergeGone(int64_t named, const char* into) noexcept {
  std::lock_guard<std::mutex> ledger(MemoryTracker::Global().mutex_);
  std::lock_guard<std::mutex> tree(MemoryOwner::TreeMutex());
  while (MemoryOwner::gone_ > named && MemoryOwner::holds_ == 0) {
    MemoryOwner& node = *MemoryOwner::first_gone_;
    try {
      if (Merge(node, into)) continue;
    } catch (const std::bad_alloc&) {
      return;  // with the next one that goes
    }
    node.ComeBack();
    node.stays_ = true;
  }
}

// With both locks. False: it has bytes, or a limit.
bool MemoryBudget::Merge(MemoryOwner& node, const char* into) {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  std::vector<MemoryTracker::DeviceLedger>& devices = MemoryTracker::Global().devices_;
  const auto counts_of = [](const MemoryTracker::DeviceLedger& at, const MemoryOwner& owner) {
    return owner.index() < at.by_owner.size() ? at.by_owner[owner.index()].get() : nullptr;
  };
  bool holds = false;
  for (const MemoryTracker::DeviceLedger& at : devices) {
    const MemoryTracker::Counts* const counts = counts_of(at, node);
    if (counts == nullptr) continue;
    holds |= counts->added != 0 || counts->owned != 0 || counts->used != 0;
    for (const MemoryUsage& usage : counts->kinds) holds |= usage.current_bytes != 0;
  }
  ForEachPossibleDevice([&](Device device) {
    const BudgetLine* const line = FindLine(node, device);
    if (line == nullptr) return;
    holds |= line->taken.load(kRelaxed) != 0 || line->limit.load(kRelaxed) != kUnlimited ||
             line->soft_limit.load(kRelaxed) != kUnlimited;
  });
  if (holds) return false;
  MemoryOwner& sum = node.parent()->FindOrMakeLocked(into, /*is_tag=*/false, /*leased=*/false);
  for (MemoryTracker::DeviceLedger& at : devices) {
    if (counts_of(at, node) != nullptr && counts_of(at, sum) == nullptr) {
      MemoryTracker::AddMissingNodes(at, &sum);
    }
  }
  ForEachPossibleDevice([&](Device device) {
    if (FindLine(node, device) != nullptr) MakeLines(sum, device);
  });
  // From here on nothing fails.
  for (MemoryTracker::DeviceLedger& at : devices) {
    const MemoryTracker::Counts* const from = counts_of(at, node);
    if (from == nullptr) continue;
    MemoryTracker::Counts& to = *counts_of(at, sum);
    for (int kind = 0; kind < kMemoryKinds; ++kind) {
      int64_t& peak = to.kinds[kind].peak_bytes;
      peak = std::max(peak, from->kinds[kind].peak_bytes);
    }
    to.total_peak = std::max(to.total_peak, from->total_peak);
    at.by_owner[node.index()].reset();
  }
  ForEachPossibleDevice([&](Device device) {
    const BudgetLine* const from = FindLine(node, device);
    if (from == nullptr) return;
    BudgetLine& to = *FindLine(sum, device);
    to.requests.store(to.requests.load(kRelaxed) + from->requests.load(kRelaxed), kRelaxed);
    const int64_t ever = to.requested_bytes.load(kRelaxed);
    to.requested_bytes.store(
        ever + std::min(from->requested_bytes.load(kRelaxed), INT64_MAX - ever), kRelaxed);
    delete from;
  });
  for (const auto& lines : node.lines_) delete lines.load(kRelaxed);
  sum.merged_.fetch_add(1, kRelaxed);
  MemoryOwner::Free(node);
  return true;
}

}  // namespace tidepool
