#include "tidepool/memory/accounting/owner_lease.h"

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <new>

#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/device_check.h"

namespace tidepool {

OwnerLease::OwnerLease(MemoryOwner& parent, const std::string& name)
    : owner_([&] {
        MemoryOwner* owner = &parent;
        while (owner->is_tag()) owner = owner->parent();
        std::lock_guard<std::mutex> lock(MemoryOwner::TreeMutex());
        return &owner->FindOrMakeLocked(name, /*is_tag=*/false, MemoryOwner::Claim::kLease);
      }()) {}

OwnerLease::OwnerLease(MemoryOwner& node) noexcept : owner_(&node) {
  std::lock_guard<std::mutex> lock(MemoryOwner::TreeMutex());
  (owner_->is_shared() ? owner_->parent() : owner_)->Take(MemoryOwner::Claim::kLease);
}

OwnerLease::OwnerLease(const OwnerLease& other) noexcept : OwnerLease(*other.owner_) {}

OwnerLease::~OwnerLease() {
  {
    std::lock_guard<std::mutex> lock(MemoryOwner::TreeMutex());
    if (!(owner_->is_shared() ? owner_->parent() : owner_)->EndLease()) return;
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

// All with both locks.
class MemoryBudget::Merging {
 public:
  // False: it has bytes, or a limit, or is what others are merged into. What went before it below it goes with it.
  static bool Merge(MemoryOwner& node, const char* into) {
    MemoryOwner* const below[] = {node.SumBelow(), node.others_[0].get(), node.others_[1].get()};
    if (Holds(node)) return false;
    for (MemoryOwner* const each : below) {
      if (each != nullptr && Holds(*each)) return false;
    }
    MemoryOwner& sum =
        node.parent()->FindOrMakeLocked(into, /*is_tag=*/false, MemoryOwner::Claim::kSum);
    if (&sum == &node) return false;
    MakePlaces(node, sum);
    // From here on nothing fails.
    int64_t nodes = 1;
    for (MemoryOwner* const each : below) {
      if (each == nullptr) continue;
      nodes += each->merged();
      Drop(*each);  // what it had the node has as well
    }
    Add(node, sum);
    Drop(node);
    sum.merged_.fetch_add(nodes, kRelaxed);
    return true;
  }

 private:
  static constexpr auto kRelaxed = std::memory_order_relaxed;

  static MemoryTracker::Counts* CountsOf(const MemoryTracker::DeviceLedger& at,
                                         const MemoryOwner& owner) noexcept {
    return owner.index() < at.by_owner.size() ? at.by_owner[owner.index()].get() : nullptr;
  }

  static bool Holds(const MemoryOwner& node) noexcept {
    bool holds = false;
    for (const MemoryTracker::DeviceLedger& at : MemoryTracker::Global().devices_) {
      const MemoryTracker::Counts* const counts = CountsOf(at, node);
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
    return holds;
  }

  // For what Add() adds.
  static void MakePlaces(const MemoryOwner& from, MemoryOwner& to) {
    for (MemoryTracker::DeviceLedger& at : MemoryTracker::Global().devices_) {
      if (CountsOf(at, from) != nullptr && CountsOf(at, to) == nullptr)
        MemoryTracker::AddMissingNodes(at, &to);
    }
    ForEachPossibleDevice([&](Device device) {
      if (FindLine(from, device) != nullptr) MakeLines(to, device);
    });
  }

  static void Add(const MemoryOwner& node, MemoryOwner& sum) noexcept {
    for (MemoryTracker::DeviceLedger& at : MemoryTracker::Global().devices_) {
      const MemoryTracker::Counts* const from = CountsOf(at, node);
      if (from == nullptr) continue;
      MemoryTracker::Counts& to = *CountsOf(at, sum);
      for (int kind = 0; kind < kMemoryKinds; ++kind) {
        int64_t& peak = to.kinds[kind].peak_bytes;
        peak = std::max(peak, from->kinds[kind].peak_bytes);
      }
      to.total_peak = std::max(to.total_peak, from->total_peak);
    }
    ForEachPossibleDevice([&](Device device) {
      const BudgetLine* const from = FindLine(node, device);
      if (from == nullptr) return;
      BudgetLine& to = *FindLine(sum, device);
      to.requests.store(to.requests.load(kRelaxed) + from->requests.load(kRelaxed), kRelaxed);
      const int64_t ever = to.requested_bytes.load(kRelaxed);
      to.requested_bytes.store(
          ever + std::min(from->requested_bytes.load(kRelaxed), INT64_MAX - ever), kRelaxed);
    });
  }

  static void Drop(MemoryOwner& node) noexcept {
    for (MemoryTracker::DeviceLedger& at : MemoryTracker::Global().devices_) {
      if (node.index() < at.by_owner.size()) at.by_owner[node.index()].reset();
    }
    ForEachPossibleDevice([&](Device device) { delete FindLine(node, device); });
    for (const auto& lines : node.lines_) delete lines.load(kRelaxed);
    MemoryOwner::Free(node);
  }
};

void MemoryBudget::MergeGone(int64_t named, const char* into) noexcept {
  std::lock_guard<std::mutex> ledger(MemoryTracker::Global().mutex_);
  std::lock_guard<std::mutex> tree(MemoryOwner::TreeMutex());
  while (MemoryOwner::gone_ > named && MemoryOwner::holds_ == 0) {
    MemoryOwner& node = *MemoryOwner::first_gone_;
    try {
      if (!Merging::Merge(node, into)) node.Stay();
    } catch (const std::bad_alloc&) {
      return;  // with the next one that goes
    }
  }
}

}  // namespace tidepool
