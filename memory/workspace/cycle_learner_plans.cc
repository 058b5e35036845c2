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
// A shape that repeats is looked at anew after so many repetitions, then twice as many, and so on.
constexpr int kMostRepetitions = 4096;
// By so many cycles: lifetimes that vary from one to the next are taken at their longest.
constexpr int kRecordedCycles = 4;
// A plan that was remade so often for the sake of others is remade in another way.
constexpr uint32_t kRemadeInOneWay = 8;

}  // namespace

void CycleLearner::LearnPlan(const CycleSummary& cycle) {
  if (cycle.made.count() == 0) return;
  const uint64_t now = counters_.cycles;
  recorded_ = recorder_.active();
  recorder_.Finish(cycle.made);
  const Shape shape = ShapeOf(cycle);
  const bool followed = cycle.misses == 0 && learned_ != nullptr;
  missing_cycles_ = followed ? 0 : missing_cycles_ + 1;
  if (followed && keeps_learning()) {
    UseExactPlan(cycle, shape);
  } else if (learned_ != nullptr) {
    plans_.Use(learned_, now, followed);
  }
  Repeats(cycle, shape, followed);
  const bool at_once = plans_.empty() || keeps_learning();
  if (missing_cycles_ >= (at_once ? 1 : kMissingCyclesBeforeLearning)) {
    MakePlan(Lifetimes(cycle), shape);
  }
  if (plans_.ForgetOutliers(now)) {
    if (!plans_.Holds(learned_)) FollowNext(nullptr);
    PlansChanged();
    oversized_cycles_ = kOversizedCycles;
  }
  ShrinkToPlans();
}

CycleLearner::Shape CycleLearner::ShapeOf(const CycleSummary& cycle) const {
  const uint32_t count = cycle.made.count();
  if (recorded_) return {recorder_.signature(), count};
  return {learned_->plan->signatures[count - 1], count};
}

// What the cycle requested: as recorded, or as the plan has it, which it followed to its end.
std::vector<LifetimeBuffer> CycleLearner::Lifetimes(const CycleSummary& cycle) const {
  if (recorded_) return recorder_.requests();
  const auto planned = learned_->plan->requests.begin();
  std::vector<LifetimeBuffer> requests(planned, planned + cycle.made.count());
  for (uint32_t slot = 0; slot < requests.size(); ++slot) {
    requests[slot].upper = cycle.made.upper(slot);
  }
  return requests;
}

// A cycle without misses may still be another one than its plan's: shorter, or of smaller requests.
// One that is so again and again and needs much less gets a plan of its own, so that the larger one
// can be forgotten.
void CycleLearner::UseExactPlan(const CycleSummary& cycle, const Shape& shape) {
  LearnedCycle* exact = plans_.Find(shape.signature, shape.requests);
  if (exact != nullptr) {
    inexact_cycles_ = 0;
    // One that left its own plan and was helped out by another has other lifetimes now.
    if (recorder_.left_plan() == exact->plan.get()) return MakePlan(Lifetimes(cycle), shape);
    plans_.Use(exact, counters_.cycles, true);
    if (exact != learned_) FollowNext(exact);
    return;
  }
  const size_t planned = learned_->plan->layout.peak_bytes();
  size_t needed = cycle.cursor;
  if (recorded_) {
    needed = static_cast<size_t>(
        LiveLowerBound(recorder_.requests(), static_cast<int64_t>(alignment_)));
  }
  if (needed >= planned - planned / 4) return plans_.Use(learned_, counters_.cycles, false);
  if (++inexact_cycles_ <= 1) return;
  if (recorded_) {
    MakePlan(recorder_.requests(), shape);
  } else {
    MakePlanOfBeginning(cycle.made.count());
  }
}

namespace {

// Whether a plan for this cycle alone could need less. A steady one is only looked at.
bool CouldBeSmaller(const CyclePlan& plan, uint64_t signature, const RequestView& made) {
  if (plan.signature() != signature || plan.requests.size() != made.count()) return true;
  if (!plan.pins.empty() &&
      plan.peak_bytes > plan.lower_bound_bytes + plan.lower_bound_bytes / 16) {
    return true;
  }
  for (uint32_t slot = 0; slot < made.count(); ++slot) {
    if (made.upper(slot) < plan.requests[slot].upper) return true;
  }
  return false;
}

}  // namespace

// A plan may be larger than the cycle that repeats under it needs, and none of its cycles misses:
// lifetimes have become shorter, it ends earlier, or its places were pinned for the sake of others.
// So what repeats is looked at now and then, and planned for itself alone.
void CycleLearner::Repeats(const CycleSummary& cycle, const Shape& shape, bool followed) {
  if (!followed || shape != repeated_) {
    repeated_ = shape;
    repetitions_ = 0;
    seen_.clear();
    seen_cycles_ = 0;
  }
  if (!followed || learned_ == nullptr || ++repetitions_ < refresh_after_) return;
  if (seen_cycles_ == 0 && !CouldBeSmaller(*learned_->plan, shape.signature, cycle.made)) {
    repetitions_ = 0;
    refresh_after_ = std::min(kMostRepetitions, 2 * refresh_after_);
    return;
  }
  if (seen_cycles_ == 0) {
    seen_ = Lifetimes(cycle);
  } else {
    for (uint32_t slot = 0; slot < seen_.size(); ++slot) {
      seen_[slot].upper = std::max(seen_[slot].upper, cycle.made.upper(slot));
    }
  }
  if (++seen_cycles_ < kRecordedCycles) return;
  const std::vector<LifetimeBuffer> seen = std::move(seen_);
  seen_.clear();
  seen_cycles_ = repetitions_ = 0;
  refresh_after_ = std::min(kMostRepetitions, 2 * refresh_after_);
  PlacedRequests alone = PlaceRequests(seen, {}, alignment_);
  const size_t planned = learned_->plan->layout.peak_bytes();
  if (alone.peak_bytes >= planned - planned / 16) return;
  Install(std::move(alone));
  SearchBetterPlan();
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

namespace {

// The first `count` requests where `plan` has them, and those of `pins` that come after.
std::vector<PinnedBuffer> PinsOfBeginning(const CyclePlan& plan, uint32_t count,
                                          std::vector<PinnedBuffer> pins) {
  std::erase_if(pins, [count](const PinnedBuffer& pin) { return pin.buffer < count; });
  std::vector<PinnedBuffer> all;
  all.reserve(count + pins.size());
  for (uint32_t slot = 0; slot < count; ++slot) {
    if (plan.layout.IsOutside(slot)) continue;
    all.push_back({slot, static_cast<int64_t>(plan.layout.offset(slot))});
  }
  all.insert(all.end(), pins.begin(), pins.end());
  return all;
}

}  // namespace

void CycleLearner::MakePlan(std::vector<LifetimeBuffer> requests, const Shape& shape) {
  std::vector<PinnedBuffer> pins = recorder_.pins();
  const LearnedCycle* same = plans_.Find(shape.signature, shape.requests);
  if (same == nullptr) {
    refresh_after_ = kFirstRefresh;
  } else {
    // What a cycle left its own plan with are its own places, not those of others. One that left
    // another plan must lie where that one has it, which may have moved since. Should the two go on
    // moving for each other, it takes over the whole beginning instead, for as many times.
    const CyclePlan* const left = recorder_.left_plan();
    if (left == nullptr || left == same->plan.get()) {
      pins = same->plan->pins;
    } else if (same->remade / kRemadeInOneWay % 2 == 1) {
      pins = PinsOfBeginning(*left, recorder_.left_at(), std::move(pins));
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
