// How a learner makes plans, keeps them, finds better ones and lets them go.
#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "tidepool/memory/workspace/cycle_learner.h"

namespace tidepool {
namespace {

// Under kOptimized, a plan that was not followed for this many cycles running is made anew.
constexpr int kMissingCyclesBeforeLearning = 2;
// A plan that is made anew so soon has lifetimes that vary: it gets the longest ones seen.
constexpr uint64_t kCyclesOfOneMind = 8;
// Pages beyond what the plans need are given back after so many cycles.
constexpr int kOversizedCycles = 3;
// A plan that was made around others and repeats so often is made anew for itself alone.
constexpr int kRepetitionsBeforeUnpinning = 8;

// A twentieth above what can be had is not worth a new plan.
bool IsWasteful(const CyclePlan& plan) {
  return plan.peak_bytes > plan.lower_bound_bytes + plan.lower_bound_bytes / 20;
}

}  // namespace

void CycleLearner::LearnPlan(const CycleSummary& cycle) {
  if (cycle.requests == 0) return;
  const uint64_t now = counters_.cycles;
  const bool followed = cycle.misses == 0 && learned_ != nullptr;
  missing_cycles_ = followed ? 0 : missing_cycles_ + 1;
  if (!followed) repetitions_ = 0;
  if (followed && keeps_learning()) {
    UseExactPlan(cycle);
  } else if (learned_ != nullptr) {
    plans_.Use(learned_, now, followed);
  }
  const bool at_once = plans_.empty() || keeps_learning();
  if (missing_cycles_ >= (at_once ? 1 : kMissingCyclesBeforeLearning)) MakePlan();
  if (plans_.ForgetOutliers(now)) {
    if (!plans_.Holds(learned_)) FollowNext(nullptr);
    PlansChanged();
    oversized_cycles_ = kOversizedCycles;
  }
  ShrinkToPlans();
}

// A cycle without misses may still be another one than its plan's: shorter, or of smaller requests.
// One that is so again and again and needs much less gets a plan of its own, so that the larger one
// can be forgotten.
void CycleLearner::UseExactPlan(const CycleSummary& cycle) {
  const CyclePlan& followed = *learned_->plan;
  const uint64_t signature =
      recorder_.active() ? recorder_.signature() : followed.signatures[cycle.requests - 1];
  LearnedCycle* exact = plans_.Find(signature, cycle.requests);
  if (exact != nullptr) {
    inexact_cycles_ = 0;
    plans_.Use(exact, counters_.cycles, true);
    if (exact != learned_) {
      FollowNext(exact);
      repetitions_ = 0;
    }
    return RepeatedExactly();
  }
  repetitions_ = 0;
  const size_t needed = recorder_.active()
                            ? static_cast<size_t>(LiveLowerBound(
                                  recorder_.requests(), static_cast<int64_t>(alignment_)))
                            : cycle.cursor;
  const size_t planned = followed.layout.peak_bytes();
  if (needed >= planned - planned / 4) return plans_.Use(learned_, counters_.cycles, false);
  if (++inexact_cycles_ <= 1) return;
  if (recorder_.active()) {
    MakePlan();
  } else {
    MakePlanOfBeginning(cycle.requests);
  }
}

// Pins keep requests where other plans have them, which may be far above what this cycle needs. One
// that repeats and repeats is not left for those others: it is planned for itself.
void CycleLearner::RepeatedExactly() {
  const CyclePlan& plan = *learned_->plan;
  if (++repetitions_ < kRepetitionsBeforeUnpinning || plan.pins.empty() || !IsWasteful(plan)) return;
  repetitions_ = 0;
  PlacedRequests alone = PlaceRequests(plan.requests, {}, alignment_);
  if (alone.peak_bytes < plan.peak_bytes) Install(std::move(alone));
}

// What the plan says of the requests that were made is a plan for them, and one that a cycle can
// leave for the whole at any time.
void CycleLearner::MakePlanOfBeginning(uint32_t requests) {
  const CyclePlan& whole = *learned_->plan;
  PlacedRequests beginning;
  beginning.requests.assign(whole.requests.begin(), whole.requests.begin() + requests);
  beginning.offsets.assign(whole.offsets.begin(), whole.offsets.begin() + requests);
  for (size_t i = 0; i < requests; ++i) {
    LifetimeBuffer& request = beginning.requests[i];
    request.upper = std::min<int64_t>(request.upper, requests);
    beginning.pins.push_back({i, beginning.offsets[i]});
    beginning.peak_bytes = std::max(
        beginning.peak_bytes, static_cast<size_t>(beginning.offsets[i] + request.size));
    beginning.requested_bytes += static_cast<size_t>(request.size);
  }
  beginning.lower_bound_bytes = static_cast<size_t>(
      LiveLowerBound(beginning.requests, static_cast<int64_t>(alignment_)));
  Install(std::move(beginning));
}

void CycleLearner::MakePlan() {
  std::vector<LifetimeBuffer> requests = recorder_.requests();
  std::vector<PinnedBuffer> pins = recorder_.pins();
  const LearnedCycle* same = plans_.Find(recorder_.signature(), requests.size());
  if (same != nullptr) {
    // What a cycle left its own plan with are its own places, not those of others. One that left
    // another plan must lie where that one has it, which may have moved since.
    if (recorder_.left_plan() == same->plan.get() || recorder_.left_plan() == nullptr) {
      pins = same->plan->pins;
    }
    if (counters_.cycles - same->learned_at <= kCyclesOfOneMind) {
      for (size_t i = 0; i < requests.size(); ++i) {
        requests[i].upper = std::max(requests[i].upper, same->plan->requests[i].upper);
      }
    }
  }
  if (!keeps_learning()) pins.clear();
  Install(PlaceRequests(requests, pins, alignment_));
  SearchBetterPlan();
}

void CycleLearner::Install(PlacedRequests placed) {
  std::shared_ptr<const CyclePlan> plan = MakeCyclePlan(std::move(placed), pages_.most_bytes());
  follower_.Reserve(plan->requests.size());
  if (plan->layout.peak_bytes() > pages_.capacity()) Grow(plan->layout.peak_bytes());
  LearnedCycle* const added = plans_.Add(std::move(plan), counters_.cycles);  // the last to throw
  inexact_cycles_ = missing_cycles_ = 0;
  FollowNext(added);
  ++counters_.plans;
  PlansChanged();
}

void CycleLearner::PlansChanged() noexcept {
  if (learned_ != nullptr) {
    const CyclePlan& plan = *learned_->plan;
    counters_.planned_peak_bytes = plan.peak_bytes;
    counters_.live_lower_bound_bytes = plan.lower_bound_bytes;
    counters_.requested_bytes = plan.requested_bytes;
    counters_.planned_requests = plan.requests.size();
  }
  counters_.plans_kept = plans_.size();
  needed_size_ = std::max(LearnedSize(config_, plans_.peak_bytes()), pages_.initial_bytes());
  oversized_cycles_ = 0;
  ++version_;
}

// Only where pages could grow again.
void CycleLearner::ShrinkToPlans() {
  if (config_.policy_spill != SpillPolicy::kReallocate || pages_.is_mapped_file() ||
      plans_.empty() || pages_.size() <= needed_size_) {
    return;
  }
  if (++oversized_cycles_ >= kOversizedCycles) pages_.Resize(needed_size_);
}

// ---- better plans -------------------------------------------------------------------------------

bool CycleLearner::any_pinned() const {
  return std::any_of(plans_.cycles().begin(), plans_.cycles().end(),
                     [](const auto& cycle) { return !cycle->plan->pins.empty(); });
}

// A plan that others were made around stays as it is.
void CycleLearner::SearchBetterPlan() noexcept {
  search_ = nullptr;
  const CyclePlan& plan = *learned_->plan;
  if (config_.plan_search_seconds == 0 || plan.peak_bytes == plan.lower_bound_bytes ||
      any_pinned()) {
    return;
  }
  BackgroundPlanOptions options;
  options.budget = absl::Seconds(config_.plan_search_seconds);
  options.peak_to_beat = static_cast<int64_t>(plan.peak_bytes);
  try {
    search_ = BackgroundPlanner::Shared().Submit(plan.requests, static_cast<int64_t>(alignment_),
                                                 options);
    searched_plan_ = learned_->plan;
  } catch (const std::exception&) {
    // The plan there is will do.
  }
}

// Between cycles: nothing lies in the pages.
void CycleLearner::AdoptBetterPlan() noexcept {
  const std::shared_ptr<PlanTicket> search = std::move(search_);
  const std::shared_ptr<const CyclePlan> beaten = std::move(searched_plan_);
  std::optional<Placement> better = search->Take();
  if (!better.has_value() || any_pinned()) return;
  const auto at = std::find_if(plans_.cycles().begin(), plans_.cycles().end(),
                               [&](const auto& cycle) { return cycle->plan == beaten; });
  if (at == plans_.cycles().end()) return;
  std::shared_ptr<const CyclePlan> plan;
  try {
    PlacedRequests placed = *beaten;
    placed.offsets = std::move(better->offsets);
    placed.peak_bytes = static_cast<size_t>(better->peak);
    placed.lower_bound_bytes = static_cast<size_t>(better->lower_bound);
    plan = MakeCyclePlan(std::move(placed), pages_.most_bytes());
  } catch (const std::bad_alloc&) {
    return;
  }
  if (plan->layout.peak_bytes() > pages_.capacity()) return;  // the pages were trimmed meanwhile
  (*at)->plan = std::move(plan);
  if (at->get() == learned_) FollowNext(learned_);
  ++counters_.plans_improved;
  PlansChanged();
}

}  // namespace tidepool
