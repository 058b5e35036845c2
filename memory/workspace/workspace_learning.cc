// What a workspace does between cycles: sizes and plans.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/planning/greedy_planner.h"
#include "tidepool/memory/workspace/workspace_core.h"

namespace tidepool {

void WorkspaceCore::RequireClosed(const char* operation) const {
  if (!is_open()) return;
  ThrowFailedPrecondition(
      absl::StrCat("workspace [", id, "]: ", operation, " needs a closed workspace; it is open"));
}

size_t WorkspaceCore::LearnedSize(size_t needed) const {
  size_t learned = needed;
  if (config.policy_allocation == AllocationPolicy::kOverallocate) {
    learned += config.overallocation_limit.ExtraFor(learned);
  }
  learned = std::max(learned, config.min_size);
  return config.max_size > 0 ? std::min(learned, config.max_size) : learned;
}

void WorkspaceCore::TrimPool() {
  pool_.Trim();
  AccountOwned();
}

void WorkspaceCore::Grow(size_t needed) {
  const size_t learned = std::max(LearnedSize(needed), size);
  if (learned == size) return;
  // Blocks kept from learning are given back first, so that both are never held at once.
  TrimPool();
  ResizePages(learned);
  PrefaultPages(learned);
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
  const Placement placement = PlanGreedy(record_, static_cast<int64_t>(alignment_));
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
  RequireClosed("Initialize");
  if (config.policy_learning == LearningPolicy::kNone || peak_cycle_bytes == 0) return;
  if (!plan_.empty()) return;  // it set the size
  if (size == 0 || config.policy_spill == SpillPolicy::kReallocate) Grow(peak_cycle_bytes);
}

void WorkspaceCore::Destroy() {
  RequireClosed("Destroy");
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
}

void WorkspaceCore::Trim() {
  RequireClosed("Trim");
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
    ResizePages(needed);
  }
  AccountOwned();
}

}  // namespace tidepool
