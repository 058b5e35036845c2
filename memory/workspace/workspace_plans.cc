// How a workspace follows, leaves and makes plans. Part of WorkspaceCore.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "tidepool/memory/planning/pinned_planner.h"
#include "tidepool/memory/workspace/workspace_core.h"

namespace tidepool {
namespace {

// Under kOptimized, a plan that was not followed for this many cycles running is made anew.
constexpr int kMissingCyclesBeforeLearning = 2;
// A plan that is made anew so soon has lifetimes that vary: it gets the longest ones seen.
constexpr uint64_t kCyclesOfOneMind = 8;
// Pages beyond what the plans need are given back after so many cycles.
constexpr int kOversizedCycles = 3;

}  // namespace

// ---- within a cycle ---------------------------------------------------------------------------

// What came before followed the plan, so the plan tells what it was; lifetimes that are over are
// taken from it as well.
void WorkspaceCore::StartRecording() {
  const size_t count = slot_count_;
  record_.reserve(std::max<size_t>(64, 2 * count));
  record_.assign(learned_->requests.begin(), learned_->requests.begin() + count);
  pins_.clear();
  for (size_t slot = 0; slot < count; ++slot) {
    const Buffer* buffer = slots_[slot];
    if (buffer == nullptr) {
      record_[slot].upper = std::min<int64_t>(record_[slot].upper, count);
    } else if (buffer->request.spill == nullptr) {
      pins_.push_back({slot, buffer->data - base_});
    }
  }
  record_signature_ = count == 0 ? kNoRequests : learned_->signatures[count - 1];
  recording_ = true;
  quick_slots_ = 0;
}

// The request is not what the plan says. kTraining: maybe it is what another plan says, or it is
// smaller than planned; a cycle that begins like none goes one request behind the other.
bool WorkspaceCore::PlaceOffPlan(size_t rounded, size_t* offset) {
  if (!recording_) StartRecording();
  if (config.policy_learning != LearningPolicy::kTraining) return false;
  if (SwitchPlan(rounded) && plan_->TryPlace(slot_count_, rounded, offset)) return true;
  if (plan_->TryPlaceWithin(slot_count_, rounded, offset)) return true;
  if (slot_count_ > 0) return false;
  LearnedCycle* smallest = nullptr;
  for (const auto& cycle : plans_.cycles()) {
    const int64_t first = cycle->requests.front().size;
    if (first >= static_cast<int64_t>(rounded) && !cycle->plan.IsOutside(0) &&
        (smallest == nullptr || first < smallest->requests.front().size)) {
      smallest = cycle.get();
    }
  }
  FollowPlan(smallest);
  return smallest != nullptr && plan_->TryPlaceWithin(0, rounded, offset);
}

// To a plan that has made the same requests so far, and this one next.
bool WorkspaceCore::SwitchPlan(size_t rounded) {
  const uint64_t signature = ExtendSignature(record_signature_, rounded);
  for (const auto& cycle : plans_.cycles()) {
    if (cycle.get() == learned_ || cycle->signatures.size() <= slot_count_ ||
        cycle->signatures[slot_count_] != signature || !HasLiveWherePlanned(*cycle)) {
      continue;
    }
    FollowPlan(cycle.get());
    ++stats.plan_switches;
    return true;
  }
  return false;
}

bool WorkspaceCore::HasLiveWherePlanned(const LearnedCycle& cycle) const {
  for (uint32_t slot = 0; slot < slot_count_; ++slot) {
    const Buffer* buffer = slots_[slot];
    if (buffer == nullptr || buffer->request.spill != nullptr) continue;
    if (cycle.plan.IsOutside(slot) || cycle.plan.offset(slot) != size_t(buffer->data - base_) ||
        cycle.requests[slot].size < static_cast<int64_t>(buffer->request.bytes)) {
      return false;
    }
  }
  return true;
}

void WorkspaceCore::FollowPlan(LearnedCycle* cycle) {
  plan_->TakeOver(0);
  learned_ = cycle;
  plan_ = cycle != nullptr ? &cycle->plan : &no_plan_;
  if (cycle == nullptr) return;
  plan_->TakeOver(slot_count_);
  for (uint32_t slot = 0; slot < slot_count_; ++slot) {
    if (slots_[slot] != nullptr && slots_[slot]->request.spill == nullptr) plan_->Assume(slot);
  }
}

// ---- between cycles ---------------------------------------------------------------------------

void WorkspaceCore::LearnPlan() {
  const uint64_t now = stats.cycles;
  if (slot_count_ == 0) return;
  const bool followed = misses_this_cycle_ == 0 && learned_ != nullptr;
  const bool keeps_learning = config.policy_learning == LearningPolicy::kTraining;
  missing_cycles_ = followed ? 0 : missing_cycles_ + 1;
  if (followed && keeps_learning) {
    UseExactPlan(now);
  } else if (learned_ != nullptr) {
    plans_.Use(learned_, now, followed);
  }
  const bool at_once = plans_.empty() || keeps_learning;
  if (missing_cycles_ >= (at_once ? 1 : kMissingCyclesBeforeLearning)) MakePlan();
  if (plans_.ForgetOutliers(now)) {
    if (!plans_.Holds(learned_)) {
      learned_ = nullptr;
      plan_ = &no_plan_;
    }
    PlansChanged();
    oversized_cycles_ = kOversizedCycles;
  }
  ShrinkToPlans();
}

// A cycle without misses may still be another one than its plan's: shorter, or of smaller requests.
// One that is so again and again and needs much less gets a plan of its own, so that the larger one
// can be forgotten.
void WorkspaceCore::UseExactPlan(uint64_t now) {
  const uint64_t signature =
      recording_ ? record_signature_ : learned_->signatures[slot_count_ - 1];
  LearnedCycle* exact = plans_.Find(signature, slot_count_);
  if (exact != nullptr) {
    inexact_cycles_ = 0;
    plans_.Use(exact, now, true);
    if (exact != learned_) FollowPlan(exact);
    return;
  }
  auto needs_less = [this](size_t bytes) {
    return bytes < learned_->plan.peak_bytes() - learned_->plan.peak_bytes() / 4;
  };
  const size_t needed =
      recording_ ? static_cast<size_t>(LiveLowerBound(record_, static_cast<int64_t>(alignment_)))
                 : cursor;
  if (!needs_less(needed)) return plans_.Use(learned_, now, false);
  if (++inexact_cycles_ > 1) recording_ ? MakePlan() : MakePlanOfBeginning();
}

// What the plan says of the requests that were made is a plan for them, and one that a cycle can
// leave for the whole at any time.
void WorkspaceCore::MakePlanOfBeginning() {
  auto cycle = std::make_unique<LearnedCycle>();
  const size_t count = slot_count_;
  cycle->requests.assign(learned_->requests.begin(), learned_->requests.begin() + count);
  cycle->offsets.assign(learned_->offsets.begin(), learned_->offsets.begin() + count);
  for (size_t i = 0; i < count; ++i) {
    cycle->requests[i].upper = std::min<int64_t>(cycle->requests[i].upper, count);
    cycle->pins.push_back({i, cycle->offsets[i]});
    cycle->peak_bytes =
        std::max(cycle->peak_bytes,
                 static_cast<size_t>(cycle->offsets[i] + cycle->requests[i].size));
  }
  cycle->lower_bound_bytes = static_cast<size_t>(
      LiveLowerBound(cycle->requests, static_cast<int64_t>(alignment_)));
  cycle->requested_bytes = bytes_this_cycle;
  cycle->learned_at = cycle->used_at = stats.cycles;
  InstallPlan(std::move(cycle));
}

void WorkspaceCore::MakePlan() {
  auto cycle = std::make_unique<LearnedCycle>();
  const LearnedCycle* same = plans_.Find(record_signature_, record_.size());
  if (same != nullptr) {
    pins_ = same->pins;
    if (stats.cycles - same->learned_at <= kCyclesOfOneMind) {
      for (size_t i = 0; i < record_.size(); ++i) {
        record_[i].upper = std::max(record_[i].upper, same->requests[i].upper);
      }
    }
  }
  if (config.policy_learning != LearningPolicy::kTraining) pins_.clear();
  Placement placement = PlanAround(record_, pins_, static_cast<int64_t>(alignment_));
  cycle->requests = record_;
  cycle->offsets = std::move(placement.offsets);
  cycle->pins = pins_;
  cycle->peak_bytes = static_cast<size_t>(placement.peak);
  cycle->lower_bound_bytes = static_cast<size_t>(placement.lower_bound);
  cycle->requested_bytes = bytes_this_cycle;
  cycle->learned_at = cycle->used_at = stats.cycles;
  InstallPlan(std::move(cycle));
  SearchBetterPlan();
}

// What may not become pages is planned outside of them.
size_t WorkspaceCore::PlanLimit() const {
  if (size > 0 && config.policy_spill != SpillPolicy::kReallocate) return capacity_;
  return config.max_size > 0 ? std::max(capacity_, config.max_size) : SIZE_MAX;
}

void WorkspaceCore::InstallPlan(std::unique_ptr<LearnedCycle> cycle) {
  cycle->plan = WorkspacePlan(cycle->requests, cycle->offsets, PlanLimit());
  uint64_t signature = kNoRequests;
  cycle->signatures.reserve(cycle->requests.size());
  for (const LifetimeBuffer& request : cycle->requests) {
    signature = ExtendSignature(signature, static_cast<size_t>(request.size));
    cycle->signatures.push_back(signature);
  }
  if (cycle->plan.peak_bytes() > capacity_) Grow(cycle->plan.peak_bytes());
  // Nothing throws from here on but the list's own growth, before which nothing is changed.
  inexact_cycles_ = 0;
  learned_ = plans_.Add(std::move(cycle));
  plan_ = &learned_->plan;
  missing_cycles_ = 0;
  ++stats.plans;
  PlansChanged();
}

void WorkspaceCore::PlansChanged() {
  if (learned_ != nullptr) {
    stats.planned_peak_bytes = learned_->peak_bytes;
    stats.live_lower_bound_bytes = learned_->lower_bound_bytes;
    stats.requested_bytes = learned_->requested_bytes;
    stats.planned_requests = learned_->requests.size();
  }
  stats.plans_kept = plans_.size();
  needed_size_ = std::max(LearnedSize(plans_.peak_bytes()), initial_pages_);
  oversized_cycles_ = 0;
  AccountState();
}

// A plan that others were made around stays as it is.
void WorkspaceCore::SearchBetterPlan() noexcept {
  search_ = nullptr;
  if (config.plan_search_seconds == 0 || learned_->peak_bytes == learned_->lower_bound_bytes) return;
  for (const auto& cycle : plans_.cycles()) {
    if (!cycle->pins.empty()) return;
  }
  BackgroundPlanOptions options;
  options.budget = absl::Seconds(config.plan_search_seconds);
  options.peak_to_beat = static_cast<int64_t>(learned_->peak_bytes);
  try {
    search_ = BackgroundPlanner::Shared().Submit(learned_->requests,
                                                 static_cast<int64_t>(alignment_), options);
    searched_cycle_ = learned_;
  } catch (const std::exception&) {
    // The plan there is will do.
  }
}

// Between cycles: nothing lies in the pages.
void WorkspaceCore::AdoptBetterPlan() noexcept {
  const std::shared_ptr<PlanTicket> search = std::move(search_);
  std::optional<Placement> better = search->Take();
  if (!better.has_value()) return;
  if (!plans_.Holds(searched_cycle_)) return;
  for (const auto& cycle : plans_.cycles()) {
    if (!cycle->pins.empty()) return;
  }
  try {
    WorkspacePlan plan(searched_cycle_->requests, better->offsets, PlanLimit());
    if (plan.peak_bytes() > capacity_) return;  // the pages were trimmed meanwhile
    searched_cycle_->plan = std::move(plan);
  } catch (const std::bad_alloc&) {
    return;
  }
  searched_cycle_->offsets = std::move(better->offsets);
  searched_cycle_->peak_bytes = static_cast<size_t>(better->peak);
  searched_cycle_->lower_bound_bytes = static_cast<size_t>(better->lower_bound);
  ++stats.plans_improved;
  PlansChanged();
}

void WorkspaceCore::FinishPlanSearch() {
  RequireClosed("FinishPlanSearch");
  if (search_ == nullptr) return;
  search_->Wait();
  const Maintenance maintenance(*this, "FinishPlanSearch");
  TakePagesAgain();
  AdoptBetterPlan();
}

void WorkspaceCore::ForgetPlans() {
  search_ = nullptr;
  learned_ = nullptr;
  plan_ = &no_plan_;
  plans_.Clear();
  missing_cycles_ = 0;
  PlansChanged();
  stats.planned_peak_bytes = stats.live_lower_bound_bytes = 0;
  stats.requested_bytes = stats.planned_requests = 0;
}

// Only where pages could grow again.
void WorkspaceCore::ShrinkToPlans() {
  if (config.policy_spill != SpillPolicy::kReallocate || file_ != nullptr || plans_.empty() ||
      size <= needed_size_) {
    return;
  }
  if (++oversized_cycles_ >= kOversizedCycles) ResizePages(needed_size_);
}

}  // namespace tidepool
