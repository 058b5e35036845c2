// Which plan the next cycle begins with.
#include <algorithm>
#include <cstdint>

#include "tidepool/memory/workspace/free_ranges.h"
#include "tidepool/memory/workspace/plan_learner.h"

namespace tidepool {
namespace {

// Whether the cycles of `longer` begin with all that those of `plan` request.
bool IsBeginningOf(const CyclePlan& plan, const CyclePlan& longer) {
  const size_t requests = plan.requests.size();
  return requests < longer.requests.size() && longer.signatures[requests - 1] == plan.signature();
}

}  // namespace

// Under kFail, and where limits leave little, a plan fits what would not fit as it comes.
bool PlanLearner::MayWithhold() const {
  return keeps_plans() && expects_order_ && plans_.loaded_peak_bytes() == 0 &&
         config_.policy_spill == SpillPolicy::kReallocate && config_.max_size == 0 &&
         refused_at_ == 0;
}

// Little is served as well from what is kept by its size, and pages for it are no matter.
bool PlanLearner::IsLittle(const EndedCycle& cycle) { return cycle.reach <= FreeRanges::kLittle; }

// Whether the next cycle begins without a plan. True where this one did, and has a plan: it need not be planned, and nothing
// is wrong with that.
bool PlanLearner::ObserveWithheld(const EndedCycle& cycle, const Shape& before, const Shape& shape,
                                  bool followed) {
  const bool withheld = std::exchange(withholds_, false);
  expected_ = nullptr;
  if (!MayWithhold()) return false;
  const bool in_order =
      !followed && !comes_again_ && trust_.CameBehind(before.signature, shape.signature);
  // What is large is served from pages that fit its plans, which is worth more than what it takes to find one.
  const bool is_little = IsLittle(cycle);
  LearnedCycle* const own = followed ? nullptr : plans_.Find(shape.signature, shape.requests);
  const bool served = cycle.was_served() && cycle.changes * kRequestsForChange <= shape.requests;
  trust_.Saw(!is_little || served || in_order || (own != nullptr && comes_again_));
  if (own != nullptr) own->seen_at = cycles_;
  withholds_ = is_little && trust_.withholds() && !(comes_again_ && (followed || own != nullptr));
  if (!withheld || own == nullptr || cycle.followed != nullptr || cycle.misses > 0) return false;
  Use(own, /*followed=*/false);
  SetNext(own);
  AddReach(cycle, /*unserved=*/true);
  ForgetOld();
  FitPages();
  DecideToRecord();
  LearnOrder(before, shape);
  return true;
}

// Kinds that take turns are begun with the plan that they have, where they come in the order in which they came before.
void PlanLearner::LearnOrder(const Shape& before, const Shape& shape) noexcept {
  LearnedCycle* const own = plans_.Find(shape.signature, shape.requests);
  LearnedCycle* const previous =
      comes_again_ ? own : plans_.Find(before.signature, before.requests);
  if (previous != nullptr) {
    previous->then_signature = shape.signature;
    previous->then_requests = shape.requests;
  }
  if (own != nullptr) ExpectBehind(*own);
}

void PlanLearner::ExpectBehind(const LearnedCycle& own) noexcept {
  if (own.then_requests == 0) return;
  const LearnedCycle* const then = plans_.Find(own.then_signature, own.then_requests);
  if (then != &own) expected_ = then;
}

// Whether the next cycles change nothing but counts as long as they are like this one, and how many.
void PlanLearner::ExpectSteady(const EndedCycle& cycle) noexcept {
  const uint32_t requests = cycle.made.count();
  if (cycle.followed != next() || cycle.is_recorded() || inexact_cycles_ > 0 ||
      oversized_cycles_ > 0 || !reach_.is_clear() || is_ahead()) {
    return;
  }
  if (keeps_plans() && requests != next_->plan->requests.size()) return;
  const LearnedCycle& used = plans_.last_used();
  if (&used != next_ || !used.paid || used.patience < PlanSet::kMostPatience) return;
  // Until it is looked at anew.
  LearnedCycle* const own = plans_.Find(last_shape_.signature, last_shape_.requests);
  RepetitionWatch& watch = own != nullptr ? own->watch : watch_;
  const int left = watch.next_look() - 1 - watch.repetitions;
  if (left <= 0) return;
  if (watch.repetitions == 0) watch.since = cycles_;  // the next one may be the first
  steady_watch_ = &watch;
  steady_ = next_;
  steady_version_ = version_;
  const uint64_t same = keeps_outliers_ ? PlanSet::kMostUnused - 1 - cycles_ % PlanSet::kMostUnused
                                        : plans_.CyclesUntilOutlier(cycles_);
  steady_left_ = std::min<uint64_t>(static_cast<uint64_t>(left), same);
}

// What was served by the plan of a longer one, of which it is the beginning, comes again as another of these: the next one
// begins with the longest and changes plans nowhere. One that repeats has its own.
void PlanLearner::ExpectLonger(const LearnedCycle& followed) noexcept {
  const LearnedCycle* const own = next();
  if (comes_again_ || own == nullptr || own == &followed) return;
  if (IsBeginningOf(*own->plan, *followed.plan)) expected_ = &followed;
}

}  // namespace tidepool
