// Cycles in which memory was refused.
//
// What is alive at once in such a cycle may fit all the same: a new workspace places what comes without knowing how long it
// lives, and below a limit the gaps between what was kept are what the next request lacks. As such a cycle has failed, nothing
// would be learned from it, and the next one would be refused where it was. So what it had until then is planned, with the
// request that was refused and the lifetimes that are known by then, where that fits what the workspace may own: the next
// cycle comes further, and all of it in the end.
#include <algorithm>
#include <optional>
#include <utility>

#include "tidepool/memory/workspace/plan_learner.h"

namespace tidepool {

std::optional<WantedPlan> PlanLearner::ObserveRefused(const EndedCycle& cycle) {
  if (is_off() || !learns_lifetimes()) return std::nullopt;
  const RefusedRequest& refused = *cycle.refused;
  refused_room_ = refused.room();
  refused_at_ = cycles_;
  // Of a pool: what it had of the pages leaves gaps that nobody else gets.
  if (keeps_outliers_ && cycle.followed == nullptr && unplanned_bytes_ > 0) {
    ForgetReach();
    reach_from_ = cycles_ + reach_wait_;
    reach_wait_ = std::min(2 * reach_wait_, kMostCyclesWithoutAhead);
  }
  Shape shape = ShapeOf(cycle);
  shape = {ExtendSignature(shape.signature, refused.bytes()), shape.requests + 1};
  if (refusals_to_skip_ > 0) {
    --refusals_to_skip_;
    return std::nullopt;
  }
  const LearnedCycle* const same = plans_.Find(shape.signature, shape.requests);
  // The only plan there may be is not given for it.
  if (!keeps_plans() && !plans_.empty() && !IsRefused(plans_.cycles().front()->plan.get())) {
    return std::nullopt;
  }
  if (same == nullptr) {
    using Answer = PlanningEffort::Answer;
    const Answer pays = effort_.PaysFor(shape.signature, cycles_);
    if (pays != Answer::kYes && effort_.GivesUp()) ForgetGuesses();
    if (pays != Answer::kNo && cycle.is_unrecorded()) RecordAgain();
    DecideToRecord();
    if (pays != Answer::kYes || !plans_.HasRoom(cycles_, /*surely=*/false)) return std::nullopt;
  }
  if (cycle.is_unrecorded()) return std::nullopt;
  MappedVector<LifetimeBuffer> requests = refused.Behind(cycle.Lifetimes());
  if (same != nullptr) {
    bool is_longer = false;
    for (size_t i = 0; i < requests.size(); ++i) {
      const int64_t planned = same->plan->requests[i].upper;
      is_longer |= requests[i].upper > planned;
      requests[i].upper = std::max(requests[i].upper, planned);
    }
    if (!is_longer) return std::nullopt;  // it is other memory that it lacked
  }
  if (static_cast<size_t>(LiveLowerBound(requests, static_cast<int64_t>(alignment_))) >
      refused.room()) {
    return std::nullopt;
  }
  std::optional<WantedPlan> wanted = Want(WantedPlan::Kind::kRefused);
  if (!wanted.has_value()) return wanted;
  wanted->most_peak = refused.room();
  wanted->seen = std::move(requests);
  return wanted;
}

// What is alive would fit, and no plan of it does: the next ones are looked at ever more rarely, so that refusals do not
// cost a plan each.
void PlanLearner::AdoptRefused(bool fits) noexcept {
  constexpr uint64_t kMostSkipped = 1 << 10;
  refusals_to_skip_ =
      fits ? 0 : std::max<uint64_t>(1, std::min(2 * refusals_skipped_, kMostSkipped));
  refusals_skipped_ = refusals_to_skip_;
}

// The same of whole cycles' plans, which are fitted into what memory there was.
void PlanLearner::AdoptFitted(const WantedPlan& wanted, const CyclePlan& plan) noexcept {
  constexpr uint64_t kMostWait = 1 << 10;
  if (wanted.room == SIZE_MAX) return;
  const bool fits = plan.peak_bytes <= wanted.room;
  room_wait_ = fits ? 1 : std::min(2 * room_wait_, kMostWait);
  room_from_ = fits ? 0 : cycles_ + room_wait_;
}

bool PlanLearner::IsRefused(const CyclePlan* plan) const {
  if (!any_refused_ || plan == nullptr) return false;
  const LearnedCycle* const held = plans_.Find(plan->signature(), plan->requests.size());
  return held != nullptr && held->refused;
}

// What `longer` begins with has no use beside it.
void PlanLearner::ForgetRefused(const CyclePlan& longer) noexcept {
  const size_t requests = longer.requests.size();
  const auto is_beginning = [&](const std::shared_ptr<LearnedCycle>& held) {
    const size_t its = held->plan->requests.size();
    return held->refused && its < requests && held->plan->signature() == longer.signatures[its - 1];
  };
  const PlanSet::Cycles& cycles = plans_.cycles();
  for (;;) {
    const auto at = std::find_if(cycles.begin(), cycles.end(), is_beginning);
    if (at == cycles.end()) break;
    if (at->get() == next_) SetNext(nullptr);
    plans_.Forget(at->get());
  }
  any_refused_ =
      std::any_of(cycles.begin(), cycles.end(), [](const auto& held) { return held->refused; });
}

}  // namespace tidepool
