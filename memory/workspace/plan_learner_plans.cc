// How a plan is made that the learner wants, and what becomes of it.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "tidepool/memory/mapped_vector.h"
#include "tidepool/memory/workspace/plan_family.h"
#include "tidepool/memory/workspace/plan_learner.h"

namespace tidepool {
namespace {

// What the plan says of the requests that were made is a plan for them, and one that a cycle can
// leave for the whole at any time.
PlacedRequests Beginning(const CyclePlan& whole, uint32_t requests, size_t alignment) {
  PlacedRequests beginning;
  beginning.requests.assign(whole.requests.begin(), whole.requests.begin() + requests);
  for (size_t i = 0; i < requests; ++i) {
    LifetimeBuffer& request = beginning.requests[i];
    request.upper = std::min<int64_t>(request.upper, requests);
    beginning.offsets.push_back(
        static_cast<int64_t>(whole.layout.offset(static_cast<uint32_t>(i))));
    beginning.pins.push_back({i, beginning.offsets[i]});
    beginning.peak_bytes =
        std::max(beginning.peak_bytes, static_cast<size_t>(beginning.offsets[i] + request.size));
    beginning.requested_bytes += static_cast<size_t>(request.size);
  }
  beginning.lower_bound_bytes =
      static_cast<size_t>(LiveLowerBound(beginning.requests, static_cast<int64_t>(alignment)));
  return beginning;
}

// For `requests` alone, as far as wanted.pins lets it.
PlacedRequests Place(const WantedPlan& wanted, const EndedCycle& cycle,
                     absl::Span<const LifetimeBuffer> requests) {
  std::vector<PinnedBuffer> pins;
  if (wanted.pins) {
    // What a cycle left its own plan with are its own places, not those of others.
    const CyclePlan* const left = cycle.recorder->left_plan();
    const bool own = wanted.same != nullptr && (left == nullptr || left == wanted.same.get());
    pins = own ? wanted.same->pins : cycle.recorder->pins();
  }
  return PlaceRequests(requests, pins, wanted.alignment);
}

// `requests` and the family together.
std::vector<PlacedRequests> PlaceWithFamily(const WantedPlan& wanted,
                                            absl::Span<const LifetimeBuffer> requests,
                                            bool favoured) {
  std::vector<absl::Span<const LifetimeBuffer>> members = {requests};
  for (const auto& plan : wanted.family) members.push_back(plan->requests);
  return PlaceFamily(members, wanted.alignment, favoured ? 0 : members.size());
}

size_t LargestOf(absl::Span<const PlacedRequests> placed) {
  size_t peak = 0;
  for (const PlacedRequests& member : placed) peak = std::max(peak, member.peak_bytes);
  return peak;
}
size_t LargestOf(absl::Span<const std::shared_ptr<const CyclePlan>> plans) {
  size_t peak = 0;
  for (const auto& plan : plans) peak = std::max(peak, plan->peak_bytes);
  return peak;
}

MadePlans Made(const WantedPlan& wanted, PlacedRequests placed, size_t most_alive) {
  placed.alive_bytes = most_alive;
  auto made = std::make_shared<NewPlans>();
  made->plan = MakeCyclePlan(std::move(placed), wanted.limit_bytes);
  return made;
}

MadePlans Made(const WantedPlan& wanted, std::vector<PlacedRequests> placed, size_t most_alive) {
  placed[0].alive_bytes = most_alive;
  auto made = std::make_shared<NewPlans>();
  made->plan = MakeCyclePlan(std::move(placed[0]), wanted.limit_bytes);
  for (size_t i = 0; i < wanted.family.size(); ++i) {
    if (SamePlaces(placed[i + 1], *wanted.family[i])) continue;
    placed[i + 1].alive_bytes = wanted.family[i]->most_alive_bytes();
    made->others.push_back(
        {wanted.family[i], MakeCyclePlan(std::move(placed[i + 1]), wanted.limit_bytes)});
  }
  return made;
}

// At once in one cycle of these requests, of those that are known.
size_t MostAlive(const WantedPlan& wanted, const EndedCycle& cycle) {
  if (wanted.same == nullptr && wanted.family.empty()) return 0;  // as planned
  const auto alive = static_cast<size_t>(
      LiveLowerBound(cycle.Lifetimes(), static_cast<int64_t>(wanted.alignment)));
  return wanted.same == nullptr ? alive : std::max(alive, wanted.same->most_alive_bytes());
}

// Whether pages would become larger for it, though what it has alive fits into them.
bool IsTooLarge(const WantedPlan& wanted, const PlacedRequests& placed) {
  return placed.peak_bytes > wanted.most_peak && placed.lower_bound_bytes <= wanted.most_peak;
}
bool AreTooLarge(const WantedPlan& wanted, absl::Span<const PlacedRequests> placed) {
  return std::any_of(placed.begin(), placed.end(),
                     [&](const PlacedRequests& each) { return IsTooLarge(wanted, each); });
}

// By itself, which takes what is alive and hardly more.
MadePlans MakeWithinPages(const WantedPlan& wanted, const MappedVector<LifetimeBuffer>& requests,
                          size_t most_alive) {
  return Made(wanted, PlaceRequests(requests, {}, wanted.alignment), most_alive);
}

// Where memory was refused of late, of a new plan that needs more than there was: by itself, if that fits. (One that has
// been made already may go on changing, where what is refused decides what comes next.)
bool FitsAlone(const WantedPlan& wanted, const MappedVector<LifetimeBuffer>& requests, size_t peak,
               PlacedRequests* alone) {
  if (peak <= wanted.room || wanted.same != nullptr) return false;
  *alone = PlaceWithin(requests, wanted.alignment, wanted.room);
  return alone->peak_bytes <= wanted.room;
}

// A cycle that is new goes around what others have, unless that makes it much larger than it need
// be. One that has a plan and missed all the same is in the way of others, or they in its: all of
// them are planned together.
MadePlans MakeCycle(const WantedPlan& wanted, const EndedCycle& cycle,
                    const MappedVector<LifetimeBuffer>& requests) {
  const size_t alive = MostAlive(wanted, cycle);
  PlacedRequests fitted;
  if (wanted.family.empty()) {
    PlacedRequests placed = Place(wanted, cycle, requests);
    // Nobody knows whether it comes again: pages are not held for where a plan that it left had its beginning.
    if (wanted.same == nullptr &&
        placed.peak_bytes > LoosePlans::MostPlanned(placed.lower_bound_bytes)) {
      PlacedRequests alone = PlaceRequests(requests, {}, wanted.alignment);
      if (alone.peak_bytes < placed.peak_bytes) placed = std::move(alone);
    }
    if (FitsAlone(wanted, requests, placed.peak_bytes, &fitted))
      return Made(wanted, std::move(fitted), alive);
    if (IsTooLarge(wanted, placed)) return MakeWithinPages(wanted, requests, alive);
    return Made(wanted, std::move(placed), alive);
  }
  if (wanted.same != nullptr) {
    std::vector<PlacedRequests> together = PlaceWithFamily(wanted, requests, false);
    if (AreTooLarge(wanted, together)) return MakeWithinPages(wanted, requests, alive);
    return Made(wanted, std::move(together), alive);
  }
  PlacedRequests around = Place(wanted, cycle, requests);
  // Pages hold the largest of them in any case.
  const size_t least = std::max(around.lower_bound_bytes, LargestOf(wanted.family));
  if (around.peak_bytes > least + std::max(least / 16, wanted.least_gain)) {
    std::vector<PlacedRequests> together = PlaceWithFamily(wanted, requests, false);
    if (LargestOf(together) < std::max(around.peak_bytes, LargestOf(wanted.family)) &&
        !AreTooLarge(wanted, together)) {
      return Made(wanted, std::move(together), alive);
    }
  }
  if (FitsAlone(wanted, requests, around.peak_bytes, &fitted))
    return Made(wanted, std::move(fitted), alive);
  if (IsTooLarge(wanted, around)) return MakeWithinPages(wanted, requests, alive);
  return Made(wanted, std::move(around), alive);
}

// What has lived shorter for some time, with those that take turns with it. Null: it needs as much.
MadePlans MakeAlone(const WantedPlan& wanted) {
  if (wanted.family.empty()) {
    const size_t enough = wanted.peak_to_beat - wanted.peak_to_beat / 16;
    PlacedRequests alone = PlaceRequests(wanted.seen, {}, wanted.alignment);
    return alone.peak_bytes < enough ? Made(wanted, std::move(alone), wanted.most_alive) : nullptr;
  }
  const size_t enough = wanted.peak_to_beat - std::max(wanted.peak_to_beat / 16, wanted.least_gain);
  std::vector<PlacedRequests> together = PlaceWithFamily(wanted, wanted.seen, true);
  const bool pays = together[0].peak_bytes < enough &&
                    LargestOf(absl::MakeSpan(together).subspan(1)) <= LargestOf(wanted.family);
  return pays ? Made(wanted, std::move(together), wanted.most_alive) : nullptr;
}

}  // namespace

MappedVector<LifetimeBuffer> PlanLearner::LongestLifetimes(const WantedPlan& wanted,
                                                           const EndedCycle& cycle) {
  MappedVector<LifetimeBuffer> requests = cycle.Lifetimes();
  const auto last = static_cast<int64_t>(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    int64_t& upper = requests[i].upper;
    if (wanted.same != nullptr) {
      const int64_t known = wanted.same->requests[i].upper;
      upper = wanted.to_end && upper > known ? last : std::max(upper, known);
    }
    if (wanted.longer != nullptr) upper = std::max(upper, wanted.longer->requests[i].upper);
    if (i < wanted.longest.size()) upper = std::max(upper, wanted.longest[i]);
  }
  return requests;
}

MadePlans PlanLearner::MakePlan(const WantedPlan& wanted, const EndedCycle& cycle) {
  switch (wanted.kind) {
    case WantedPlan::Kind::kCycle:
      return MakeCycle(wanted, cycle, LongestLifetimes(wanted, cycle));
    case WantedPlan::Kind::kBeginning:
      return Made(wanted, Beginning(*wanted.whole, cycle.made.count(), wanted.alignment), 0);
    case WantedPlan::Kind::kAlone:
      return MakeAlone(wanted);
    case WantedPlan::Kind::kRefused: {
      const PlacedRequests placed = PlaceWithin(wanted.seen, wanted.alignment, wanted.most_peak);
      return placed.peak_bytes <= wanted.most_peak ? Made(wanted, placed, 0) : nullptr;
    }
  }
  return nullptr;
}

// The plans that begin as the cycle does, but its own, and whose cycles came since then or will
// come back: they are away for no more than twice as long as they were before. Who has no plan of
// its own yet gets one without these, so that the one that serves it can be forgotten.
std::optional<PlanLearner::Family> PlanLearner::FamilyOf(const EndedCycle& cycle,
                                                         const LearnedCycle* own,
                                                         uint64_t since) const {
  Family family;
  const PlanList& plans = *plans_.list();
  const PlanList::Range alike = BeginningWith(cycle.first_bytes());
  if (alike.end - alike.begin > kMostFamilyMembers) return std::nullopt;
  size_t requests = cycle.made.count();
  for (uint32_t i = alike.begin; i < alike.end; ++i) {
    const LearnedCycle& other = plans[i];
    if (&other == own || other.refused) continue;
    const uint64_t may_stay_away =
        own != nullptr ? std::min(2 * other.away, PlanSet::kMostCyclesAway) : 0;
    if (since > 0 && other.came_at <= since && cycles_ - other.came_at > may_stay_away) continue;
    requests += other.plan->requests.size();
    if (requests > kMostFamilyRequests) return std::nullopt;
    family.push_back(other.plan);
  }
  return family;
}

const LearnedCycle* PlanLearner::Adopt(const WantedPlan& wanted, const MadePlans& made) {
  if (!in_making_.End(wanted.learning)) return nullptr;
  if (wanted.kind == WantedPlan::Kind::kRefused) AdoptRefused(/*fits=*/made != nullptr);
  if (wanted.kind == WantedPlan::Kind::kAlone && !wanted.family.empty()) {
    price_of_pages_ =
        made != nullptr ? kLeastPriceOfPages : std::min(2 * price_of_pages_, kMostPriceOfPages);
  }
  if (made == nullptr && wanted.loose_of > 0 && next_ != nullptr && plans_.Holds(next_)) {
    if (next_->plan->layout.peak_bytes() == wanted.peak_to_beat) {
      GiveUp(*next_, wanted.peak_to_beat, wanted.loose_of);
    }
    return nullptr;
  }
  // Pages that took their first and only size meanwhile cannot hold it.
  if (made == nullptr || wanted.limit_bytes != most_bytes()) return nullptr;
  if (GivesUpAlike(wanted, *made)) return nullptr;
  const CyclePlan& plan = *made->plan;
  AdoptFitted(wanted, plan);
  const LearnedCycle* const before = plans_.Find(plan.signature(), plan.requests.size());
  const bool is_new = before == nullptr;
  std::shared_ptr<const CyclePlan> longer;
  if (wanted.kind == WantedPlan::Kind::kAlone && before != nullptr &&
      (before->longer == nullptr || !before->comes_in_turns())) {
    longer = before->plan;
  }
  if (!made->others.empty()) {
    const CyclePlan* const next = next_ != nullptr ? next_->plan.get() : nullptr;
    const uint64_t signature = next != nullptr ? next->signature() : 0;
    const size_t requests = next != nullptr ? next->requests.size() : 0;
    const std::shared_ptr<const PlanList> list = plans_.list();  // and with it what next_ is
    plans_.Replace(made->others);
    for (const PlanSet::Replacement& other : made->others) {
      LearnedCycle* const held = plans_.Find(other.by->signature(), other.by->requests.size());
      if (held != nullptr) held->alone = false;
    }
    if (next != nullptr) next_ = plans_.Find(signature, requests);
    plans_made_ += made->others.size();
    Changed();
  }
  if (any_refused_) ForgetRefused(plan);
  const LearnedCycle* const added = Install(made->plan);
  if (is_new) {
    // Of a cycle that was never seen before, as far as is known.
    plans_.last_used().most_alive = made->plan->most_alive_bytes();
    plans_.last_used().guessed = keeps_plans() && !comes_again_ && !effort_.waits();
    effort_.Spent(added->plan->requests.size(), cycles_);
    if (!effort_.trusts()) plans_.last_used().debt = effort_.Lose(added->plan->requests.size(), 0);
    WriteOff();
  }
  if (wanted.kind == WantedPlan::Kind::kRefused) {
    plans_.last_used().refused = any_refused_ = true;
  }
  plans_.SetAlone(wanted.kind == WantedPlan::Kind::kAlone, cycles_, std::move(longer));
  DecideToRecord();
  if (expects_order_ && keeps_plans()) ExpectBehind(plans_.last_used());
  return added;
}

}  // namespace tidepool
