// What a workspace does between cycles: sizes and plans.
#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace_core.h"

namespace tidepool {

const char WorkspaceCore::kMaintenance = 0;

void WorkspaceCore::RequireClosed(const char* operation) const {
  if (!is_open()) return;
  ThrowFailedPrecondition(
      absl::StrCat("workspace [", id, "]: ", operation, " needs a closed workspace; it is open"));
}

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

void WorkspaceCore::TrimPool() {
  spills_.Trim();
  AccountOwned();
}

// Who spills again soon after the blocks were given back keeps them longer.
void WorkspaceCore::TrimIdleBlocks() {
  constexpr int kMostCycles = 96;
  if (spilled_count > 0) {
    if (cycles_without_spill_ >= cycles_keeping_blocks_ &&
        cycles_without_spill_ <= 4 * cycles_keeping_blocks_) {
      cycles_keeping_blocks_ = std::min(kMostCycles, 2 * cycles_keeping_blocks_);
    }
    cycles_without_spill_ = 0;
    return;
  }
  cycles_without_spill_ = std::min(cycles_without_spill_ + 1, 4 * kMostCycles + 1);
  if (cycles_without_spill_ >= cycles_keeping_blocks_ && spills_.owned_bytes() > 0) TrimPool();
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
      LearnPlan();
      return;
  }
}

void WorkspaceCore::Initialize() {
  const Maintenance maintenance(*this, "Initialize");
  if (config.policy_learning == LearningPolicy::kNone || peak_cycle_bytes == 0) return;
  if (!plans_.empty()) return;  // they set the size
  if (size == 0 || config.policy_spill == SpillPolicy::kReallocate) Grow(peak_cycle_bytes);
}

void WorkspaceCore::Destroy() {
  const Maintenance maintenance(*this, "Destroy");
  DrainRemote();
  // Old handles are stale already: their stamps are of cycles that have ended.
  ForgetPlans();
  peak_cycle_bytes = 0;
  bytes_last_cycle = 0;
  cycles_learned_from_ = 0;
  spills_.Trim();
  ResizePages(0);
  lacks_initial_pages_ = true;
}

void WorkspaceCore::Trim() {
  const Maintenance maintenance(*this, "Trim");
  DrainRemote();
  spills_.Trim();
  size_t needed = size;
  if (!plans_.empty()) {
    learned_ = nullptr;  // may be among those that go; the next cycle looks for one
    plan_ = &no_plan_;
    plans_.ForgetLarger(plans_.cycles().front()->plan.peak_bytes());
    PlansChanged();
    needed = needed_size_;
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
  Unpoison(base_, capacity_);
  pages_.Resize(0);
  base_ = pages_.base();
  capacity_ = 0;
  lacks_pages_ = true;
  AccountOwned();
}

void WorkspaceCore::TakePagesAgain() {
  if (!lacks_pages_) return;
  ResizePages(size);
  PrefaultPages(std::max(plans_.peak_bytes(), bytes_last_cycle));
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
