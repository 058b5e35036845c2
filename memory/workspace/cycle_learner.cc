#include "tidepool/memory/workspace/cycle_learner.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/io/file_reader.h"

namespace tidepool {

CycleLearner::CycleLearner(const WorkspaceConfig& config, size_t alignment, WorkspacePages& pages,
                           WorkspaceSpills& spills, WorkspaceCounters& counters)
    : config_(config),
      alignment_(alignment),
      pages_(pages),
      spills_(spills),
      counters_(counters),
      plans_(keeps_learning() ? PlanSet::kMostPlans : 1) {}

size_t CycleLearner::state_bytes() const {
  return recorder_.state_bytes() + follower_.state_bytes() +
         (plans_.empty() ? 0 : plans_.state_bytes());
}

// ---- within a cycle ---------------------------------------------------------------------------

void CycleLearner::BeginCycle() noexcept {
  if (search_ != nullptr && search_->ready()) AdoptBetterPlan();
  if (learned_ == nullptr && !plans_.empty()) FollowNext(plans_.cycles().front().get());
  recorder_.Begin(learned_ == nullptr && learns_lifetimes() && serves_from_pages());
}

bool CycleLearner::PlaceOffPlan(const RequestView& made, size_t rounded, size_t* offset) {
  recorder_.Leave(*plan(), made);
  if (!keeps_learning()) return false;
  const uint32_t slot = made.count();
  if (SwitchPlan(made, rounded) && follower_.TryPlace(slot, rounded, offset)) return true;
  if (follower_.TryPlaceWithin(slot, rounded, offset)) return true;
  if (slot > 0) return false;
  LearnedCycle* smallest = nullptr;
  const auto first_of = [](const LearnedCycle& cycle) {
    return cycle.plan->requests.front().size;
  };
  for (const auto& cycle : plans_.cycles()) {
    if (first_of(*cycle) >= static_cast<int64_t>(rounded) && !cycle->plan->layout.IsOutside(0) &&
        (smallest == nullptr || first_of(*cycle) < first_of(*smallest))) {
      smallest = cycle.get();
    }
  }
  FollowFromHere(smallest, made);
  return smallest != nullptr && follower_.TryPlaceWithin(0, rounded, offset);
}

namespace {

// Whether what is alive lies where the plan has it, and leaves the next request its place.
bool CanTakeOver(const CyclePlan& plan, const RequestView& made) {
  const PlanLayout::Slot& next = plan.layout.slot(made.count());
  for (uint32_t slot = 0; slot < made.count(); ++slot) {
    if (!made.IsInPages(slot)) continue;
    const PlanLayout::Slot& planned = plan.layout.slot(slot);
    if (planned.bytes < made.slots[slot].buffer()->request.bytes ||
        planned.offset != static_cast<size_t>(made.offset(slot))) {
      return false;
    }
    if (next.bytes > 0 && planned.offset < next.offset + next.bytes &&
        next.offset < planned.offset + planned.bytes) {
      return false;
    }
  }
  return true;
}

}  // namespace

// To a plan that has made the same requests so far, and this one next.
bool CycleLearner::SwitchPlan(const RequestView& made, size_t rounded) {
  const uint64_t signature = ExtendSignature(recorder_.signature(), rounded);
  for (const auto& cycle : plans_.cycles()) {
    const CyclePlan& plan = *cycle->plan;
    if (cycle.get() == learned_ || plan.signatures.size() <= made.count() ||
        plan.signatures[made.count()] != signature || !CanTakeOver(plan, made)) {
      continue;
    }
    FollowFromHere(cycle.get(), made);
    ++counters_.plan_switches;
    return true;
  }
  return false;
}

void CycleLearner::FollowFromHere(LearnedCycle* cycle, const RequestView& made) noexcept {
  SetPlan(cycle);
  follower_.Follow(cycle != nullptr ? &cycle->plan->layout : nullptr, made.count());
  if (cycle == nullptr) return;
  for (uint32_t slot = 0; slot < made.count(); ++slot) {
    if (made.IsInPages(slot)) follower_.Assume(slot);
  }
}

void CycleLearner::SetPlan(LearnedCycle* cycle) noexcept {
  learned_ = cycle;
  if (cycle == nullptr) return;
  const CyclePlan& plan = *cycle->plan;
  counters_.planned_peak_bytes = plan.peak_bytes;
  counters_.live_lower_bound_bytes = plan.lower_bound_bytes;
  counters_.requested_bytes = plan.requested_bytes;
  counters_.planned_requests = plan.requests.size();
}

// Between cycles.
void CycleLearner::FollowNext(LearnedCycle* cycle) noexcept {
  SetPlan(cycle);
  follower_.Follow(cycle != nullptr ? &cycle->plan->layout : nullptr, 0);
}

// ---- totals -----------------------------------------------------------------------------------

void CycleLearner::Learn(const CycleSummary& cycle) {
  ++cycles_learned_from_;
  if (config_.debug_mode != DebugMode::kDisabled ||
      config_.policy_allocation == AllocationPolicy::kAlways || counters_.peak_cycle_bytes == 0) {
    return;
  }
  if (learns_lifetimes()) {
    LearnPlan(cycle);
  } else {
    LearnTotal(cycle.bytes);
  }
}

void CycleLearner::LearnTotal(size_t bytes) {
  if (config_.policy_learning == LearningPolicy::kNone) return;
  bool learns = config_.policy_spill == SpillPolicy::kReallocate && bytes > pages_.size();
  if (pages_.size() == 0) {
    learns = config_.policy_learning == LearningPolicy::kFirstLoop ||
             (config_.cycles_before_initialization > 0 &&
              cycles_learned_from_ >= static_cast<uint64_t>(config_.cycles_before_initialization));
  }
  if (learns) Grow(counters_.peak_cycle_bytes);
}

// Blocks kept from learning are given back first, so that both are never held at once.
void CycleLearner::Grow(size_t needed) {
  if (!pages_.GrowsFor(needed)) return;
  spills_.Trim();
  pages_.Grow(needed);
}

void CycleLearner::Initialize() {
  if (config_.policy_learning == LearningPolicy::kNone || counters_.peak_cycle_bytes == 0) return;
  if (!plans_.empty()) return;  // they set the size
  if (pages_.size() == 0 || config_.policy_spill == SpillPolicy::kReallocate) {
    Grow(counters_.peak_cycle_bytes);
  }
}

void CycleLearner::Trim() {
  size_t needed = pages_.size();
  if (!plans_.empty()) {
    FollowNext(nullptr);  // what is followed may be among those that go; the next cycle looks for one
    plans_.ForgetLarger(plans_.cycles().front()->plan->layout.peak_bytes());
    PlansChanged();
    needed = needed_size_;
  } else if (config_.policy_learning != LearningPolicy::kNone && counters_.bytes_last_cycle > 0) {
    needed = std::max(LearnedSize(config_, counters_.bytes_last_cycle), config_.initial_size);
  }
  if (needed >= pages_.size()) return;
  counters_.peak_cycle_bytes =
      std::min<size_t>(counters_.peak_cycle_bytes,
                       std::max<size_t>(needed, counters_.bytes_last_cycle));
  pages_.Shrink(needed);
}

void CycleLearner::Forget() noexcept {
  search_ = nullptr;
  searched_plan_ = nullptr;
  FollowNext(nullptr);
  plans_.Clear();
  missing_cycles_ = inexact_cycles_ = 0;
  repeated_ = {};
  repetitions_ = 0;
  refresh_after_ = kFirstRefresh;
  cycles_learned_from_ = 0;
  PlansChanged();
  counters_.planned_peak_bytes = counters_.live_lower_bound_bytes = 0;
  counters_.requested_bytes = counters_.planned_requests = 0;
}

// ---- plans of others --------------------------------------------------------------------------

size_t CycleLearner::Load(std::vector<PlacedRequests> cycles, const std::string& path,
                          std::string* ignored) {
  size_t room = keeps_learning() ? PlanSet::kMostPlans : 1;
  size_t pages = 0;
  const size_t most_bytes = pages_.most_bytes();
  std::erase_if(cycles, [&](const PlacedRequests& cycle) {
    if (room == 0) {
      *ignored = absl::StrCat(OneLine(path), ": more plans than are kept");
      return true;
    }
    if (cycle.peak_bytes > most_bytes) {
      *ignored = absl::StrCat(OneLine(path), ": a plan of ", cycle.peak_bytes,
                              " bytes, expected at most ", most_bytes);
      return true;
    }
    --room;
    pages = std::max(pages, cycle.peak_bytes);
    return false;
  });
  if (cycles.empty()) return 0;
  if (pages > pages_.capacity()) Grow(pages);
  search_ = nullptr;
  // The last used one last, so that it is the next cycle's.
  for (auto cycle = cycles.rbegin(); cycle != cycles.rend(); ++cycle) Install(std::move(*cycle));
  return cycles.size();
}

void CycleLearner::Adopt(std::shared_ptr<const CyclePlan> plan, size_t bytes) {
  if (plan != nullptr) follower_.Reserve(plan->requests.size());
  Forget();
  if (bytes != pages_.size()) {
    // Blocks of the learning batch are given back first, so that both are never held at once.
    spills_.Trim();
    pages_.Resize(bytes);
    pages_.Prefault(bytes);
  }
  if (plan == nullptr) return;
  FollowNext(plans_.Add(std::move(plan), counters_.cycles));
  PlansChanged();
}

}  // namespace tidepool
