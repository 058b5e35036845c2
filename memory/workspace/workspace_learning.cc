// What a workspace does between cycles: sizes, plans, pages. The other half of WorkspaceCore.
#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/planning/greedy_planner.h"
#include "tidepool/memory/provider/poison.h"
#include "tidepool/memory/workspace/workspace_core.h"

namespace tidepool {

const char WorkspaceCore::kMaintenance = 0;

WorkspaceCore::Maintenance::Maintenance(WorkspaceCore& core, const char* operation) : core_(core) {
  const void* expected = nullptr;
  while (!core.owner_.compare_exchange_weak(expected, &kMaintenance, std::memory_order_acquire)) {
    if (expected != nullptr && expected != &kMaintenance) {
      ThrowFailedPrecondition(absl::StrCat("workspace [", core.id, "]: ", operation,
                                           " needs a closed workspace; it is open"));
    }
    expected = nullptr;
    std::this_thread::yield();
  }
}

size_t WorkspaceCore::LearnedSize(size_t needed) const {
  size_t learned = needed;
  if (config.policy_allocation == AllocationPolicy::kOverallocate) {
    learned += config.overallocation_limit.ExtraFor(learned);
  }
  learned = std::max(learned, config.min_size);
  return config.max_size > 0 ? std::min(learned, config.max_size) : learned;
}

void WorkspaceCore::AccountOwned() {
  const int64_t owned = static_cast<int64_t>(pages_.committed_bytes() + pool_.owned_bytes() +
                                             (guard_ != nullptr ? guard_->owned_bytes() : 0));
  MemoryTracker::Global().AddOwned(&account_, owned - owned_reported_);
  owned_reported_ = owned;
}

void WorkspaceCore::TrimPool() {
  pool_.Trim();
  AccountOwned();
}

void WorkspaceCore::TakeInitialPages() {
  if (config.initial_size > 0 && config.debug_mode != DebugMode::kBypassEverything &&
      config.debug_mode != DebugMode::kGuard) {
    size_t wanted = config.initial_size;
    if (config.policy_allocation == AllocationPolicy::kOverallocate) {
      const size_t extra = config.overallocation_limit.ExtraFor(wanted);
      wanted = wanted <= SIZE_MAX - extra ? wanted + extra : SIZE_MAX;
    }
    if (config.max_size > 0) wanted = std::min(wanted, config.max_size);
    ResizePages(wanted);
  }
  lacks_initial_pages_ = false;
}

void WorkspaceCore::ResizePages(size_t new_size) {
  if (new_size > SIZE_MAX / 4) {
    throw OutOfMemoryError(
        absl::StrCat("workspace [", id, "]: pages of ", new_size, " bytes cannot exist"),
        MemoryTracker::Global().Snapshot().ToString());
  }
  const size_t capacity = (new_size + config.alignment - 1) & ~(config.alignment - 1);
  // The system may give these addresses to others.
  if (capacity_ > 0) UnpoisonBlock(pages_.base(), capacity_);
  pages_.Resize(capacity);
  if (capacity > 0) PoisonBlock(pages_.base(), capacity);
  size = new_size;
  capacity_ = capacity;
  lacks_pages_ = false;
  AccountOwned();
}

void WorkspaceCore::Grow(size_t needed) {
  const size_t learned = std::max(LearnedSize(needed), size);
  if (learned == size) return;
  // Blocks kept from learning are given back first, so that both are never held at once.
  TrimPool();
  ResizePages(learned);
}

void WorkspaceCore::Learn() {
  if (config.debug_mode != DebugMode::kDisabled ||
      config.policy_allocation == AllocationPolicy::kAlways || peak_cycle_bytes == 0) {
    return;
  }
  const bool may_grow = config.policy_spill == SpillPolicy::kReallocate && bytes_this_cycle > size;
  switch (config.policy_learning) {
    case LearningPolicy::kNone:
      return;
    case LearningPolicy::kFirstLoop:
      if (size == 0 || may_grow) Grow(peak_cycle_bytes);
      return;
    case LearningPolicy::kOverTime:
      if (size == 0) {
        if (config.cycles_before_initialization == 0 ||
            cycles_learned_from_ < static_cast<uint64_t>(config.cycles_before_initialization)) {
          return;
        }
        Grow(peak_cycle_bytes);
      } else if (may_grow) {
        Grow(peak_cycle_bytes);
      }
      return;
    case LearningPolicy::kOptimized:
    case LearningPolicy::kTraining:
      if (recording_ && !record_.empty()) MakePlan();
      return;
  }
}

void WorkspaceCore::MakePlan() {
  const Placement placement = PlanGreedy(record_, static_cast<int64_t>(config.alignment));
  const size_t peak = static_cast<size_t>(placement.peak);
  // What may not become pages is planned outside of them.
  const bool may_grow = size == 0 || config.policy_spill == SpillPolicy::kReallocate;
  size_t limit = SIZE_MAX;
  if (!may_grow) limit = capacity_;
  if (may_grow && config.max_size > 0) limit = std::max(capacity_, config.max_size);
  WorkspacePlan plan(record_, placement.offsets, limit);
  if (plan.peak_bytes() > capacity_) Grow(plan.peak_bytes());
  plan_ = std::move(plan);
  missing_cycles_ = 0;
  ++stats.plans;
  stats.planned_peak_bytes = peak;
  stats.live_lower_bound_bytes = static_cast<size_t>(placement.lower_bound);
  stats.requested_bytes = bytes_this_cycle;
  stats.planned_requests = record_.size();
}

void WorkspaceCore::Initialize() {
  const Maintenance maintenance(*this, "Initialize");
  if (config.policy_learning == LearningPolicy::kNone || peak_cycle_bytes == 0) return;
  if (!plan_.empty()) return;  // it set the size
  if (size == 0 || config.policy_spill == SpillPolicy::kReallocate) Grow(peak_cycle_bytes);
}

void WorkspaceCore::Destroy() {
  const Maintenance maintenance(*this, "Destroy");
  DrainRemote();
  // Old handles are stale already: their stamps are of cycles that have ended.
  plan_ = WorkspacePlan();
  peak_cycle_bytes = 0;
  bytes_last_cycle = 0;
  cycles_learned_from_ = 0;
  missing_cycles_ = 0;
  stats.planned_peak_bytes = stats.live_lower_bound_bytes = 0;
  stats.requested_bytes = stats.planned_requests = 0;
  pool_.Trim();
  ResizePages(0);
  lacks_initial_pages_ = true;
  AccountState();
}

void WorkspaceCore::Trim() {
  const Maintenance maintenance(*this, "Trim");
  DrainRemote();
  pool_.Trim();
  size_t needed = size;
  if (!plan_.empty()) {
    needed = std::max(LearnedSize(plan_.peak_bytes()), config.initial_size);
  } else if (config.policy_learning != LearningPolicy::kNone && bytes_last_cycle > 0) {
    needed = std::max(LearnedSize(bytes_last_cycle), config.initial_size);
  }
  if (needed < size) {
    peak_cycle_bytes = std::min(peak_cycle_bytes, std::max(needed, bytes_last_cycle));
    if (lacks_pages_) {
      size = needed;
    } else {
      ResizePages(needed);
    }
  }
  AccountOwned();
}

// ---- reclaiming -----------------------------------------------------------------------------

void WorkspaceCore::DropPages() noexcept {
  UnpoisonBlock(pages_.base(), capacity_);
  pages_.Resize(0);
  capacity_ = 0;
  lacks_pages_ = true;
  AccountOwned();
}

// Nothing that Workspace's accessors read is written here: they may run on the workspace's own
// thread meanwhile.
int64_t WorkspaceCore::Reclaim(ReclaimDepth depth) noexcept {
  const void* expected = nullptr;
  if (!owner_.compare_exchange_strong(expected, &kMaintenance, std::memory_order_acquire)) {
    if (expected != &kMaintenance) reclaim_requested_.store(true, std::memory_order_relaxed);
    return 0;
  }
  const int64_t before = owned_reported_;
  TrimPool();
  const uint64_t stamp = stamp_.load(std::memory_order_relaxed);
  const bool idle = depth == ReclaimDepth::kIdle || stamp == stamp_at_periodic_reclaim_;
  if (depth == ReclaimDepth::kPeriodic) stamp_at_periodic_reclaim_ = stamp;
  // What is in a mapped file stays there.
  const bool keeps = config.policy_location == LocationPolicy::kMmap;
  if (depth != ReclaimDepth::kSpare && idle && !keeps && capacity_ > 0) DropPages();
  const int64_t reclaimed = before - owned_reported_;
  owner_.store(nullptr, std::memory_order_release);
  return reclaimed;
}

}  // namespace tidepool
