// What a cycle that has ended teaches.
#include <algorithm>
#include <optional>
#include <utility>

#include "tidepool/memory/mapped_vector.h"
#include "tidepool/memory/workspace/plan_family.h"
#include "tidepool/memory/workspace/plan_learner.h"

namespace tidepool {

MappedVector<LifetimeBuffer> EndedCycle::Lifetimes() const {
  if (is_recorded()) return recorder->requests();
  const auto planned = followed->plan->requests.begin();
  MappedVector<LifetimeBuffer> requests(planned, planned + made.count());
  for (uint32_t slot = 0; slot < requests.size(); ++slot) requests[slot].upper = made.upper(slot);
  return requests;
}

namespace {

// Under kOptimized, a plan that was not followed for this many cycles running is made anew.
constexpr int kMissingCyclesBeforeLearning = 2;
// A shape that repeats is looked at anew after some repetitions, then after twice as many, and so on to so many;
// where that was wrong, further on to so many.
constexpr int kMostRepetitions = 4096;
constexpr int kMostRepetitionsOfVaried = 1 << 20;
// A plan with the shorter lifetimes of late is left for longer ones so soon: they vary.
constexpr uint64_t kCyclesOfOneMind = 1024;
// By at least so many cycles, and half of those it was waited for up to so many: lifetimes that vary from one to
// the next are taken at their longest.
constexpr int kFewestRecordedCycles = 4;
constexpr int kMostRecordedCycles = 64;
// Kinds that begin alike and are looked at whatever the last ones would have cost.
constexpr uint32_t kFewAlike = 16;
// What no plan of a family has room for is given up after so many.
constexpr uint32_t kRemadeInVain = 8;
// What came so often behind itself goes on, perhaps, where hardly anything else comes back.
constexpr uint64_t kRunsOn = 2;
// Of the requests of others so many are planned again for one that is new, about.
constexpr size_t kShareOfNew = 4;
// Whether the plan of the same requests allows the lifetimes they had.
bool Allows(const CyclePlan& plan, const EndedCycle& cycle) {
  for (uint32_t slot = 0; slot < plan.requests.size(); ++slot) {
    if (cycle.upper(slot) > plan.requests[slot].upper) return false;
  }
  return true;
}

// Whether the cycle has left its own plan, which allows its lifetimes, because that has no room for a request in the
// pages, where the free ranges had (kFail). Another plan of these would be the same, but for others that it goes around.
bool IsTooTight(const CyclePlan& plan, const EndedCycle& cycle) {
  return plan.peak_bytes > plan.layout.peak_bytes() && cycle.recorder->left_plan() == &plan &&
         Allows(plan, cycle);
}

// Whether a plan for this cycle alone could need less. A steady one is only looked at.
bool CouldBeSmaller(const CyclePlan& plan, uint64_t signature, const EndedCycle& cycle) {
  const uint32_t count = cycle.made.count();
  if (plan.signature() != signature || plan.requests.size() != count) return true;
  if (plan.peak_bytes > plan.lower_bound_bytes + plan.lower_bound_bytes / 16) return true;
  for (uint32_t slot = 0; slot < count; ++slot) {
    if (cycle.upper(slot) < plan.requests[slot].upper) return true;
  }
  return false;
}

}  // namespace

int PlanLearner::LooksOf(const RepetitionWatch& watch) {
  return std::clamp(watch.refresh_after / 2, kFewestRecordedCycles, kMostRecordedCycles);
}

PlanLearner::Shape PlanLearner::ShapeOf(const EndedCycle& cycle) {
  const uint32_t count = cycle.made.count();
  if (cycle.followed == nullptr || cycle.is_recorded()) return {cycle.recorder->signature(), count};
  return {cycle.followed->plan->signatures[count - 1], count};
}

std::optional<WantedPlan> PlanLearner::Observe(const EndedCycle& cycle) {
  if (cycle.refused != nullptr) return ObserveRefused(cycle);
  if (ObserveSteady(cycle)) return std::nullopt;
  steady_ = nullptr;
  if (lifetimes_wanted_ > 0) --lifetimes_wanted_;
  ++cycles_;
  if (is_off()) return std::nullopt;
  totals_.Add(cycle.bytes);
  if (!learns_lifetimes()) {
    LearnTotal();
    return std::nullopt;
  }
  if (cycle.made.count() == 0 || !cycle.current) return std::nullopt;
  effort_.Served(cycle.made.count());
  served_ = std::min(served_ + cycle.made.count(), 2 * kMostPriceOfMending * kMostFamilyRequests);
  served_for_pages_ =
      std::min(served_for_pages_ + cycle.made.count(), kMostPriceOfPages * kMostFamilyRequests);
  // Pages for what was learned since may have been refused.
  if (cycle.followed != nullptr && !plans_.Holds(cycle.followed)) return std::nullopt;
  const Shape shape = ShapeOf(cycle);
  if (shape == wanted_shape_ && cycle.has_lifetimes()) lifetimes_wanted_ = 0;
  const Shape before = std::exchange(last_shape_, shape);
  comes_again_ = shape == before;
  came_running_ = comes_again_ ? came_running_ + 1 : 0;
  const bool followed = cycle.misses == 0 && cycle.followed != nullptr;
  if (ObserveWithheld(cycle, before, shape, followed)) return std::nullopt;
  if (crowds_.Leaves(cycle.first_bytes(), shape.signature)) return ObserveCrowd(cycle);
  if (LoosePlans::Kind* const kind = loose_.Find(shape.signature, shape.requests);
      kind != nullptr && plans_.Find(shape.signature, shape.requests) == nullptr) {
    return ObserveLoose(cycle, *kind);
  }
  const uint64_t given_up = plans_given_up_;
  missing_cycles_ = followed ? 0 : missing_cycles_ + 1;
  if (!followed) loose_cycles_ = 0;
  std::optional<WantedPlan> wanted;
  if (followed && keeps_plans()) {
    wanted = UseExactPlan(cycle, shape);
  } else if (cycle.followed != nullptr) {
    Use(cycle.followed, followed);
    SetNext(cycle.followed);
  }
  if (!wanted.has_value()) wanted = Repeats(cycle, shape, followed);
  // Other lifetimes of the same requests are learned at once too.
  const bool at_once =
      plans_.empty() || keeps_plans() || plans_.Find(shape.signature, shape.requests) != nullptr;
  if (missing_cycles_ >= (at_once ? 1 : kMissingCyclesBeforeLearning)) {
    wanted = WantCycle(cycle, shape);
  }
  // What a cycle reached of which the plan was given up now is what that plan needed.
  AddReach(cycle, /*unserved=*/!followed && !wanted.has_value() && plans_given_up_ == given_up);
  ForgetOld();
  FitPages();
  DecideToRecord();
  if (expects_order_ && keeps_plans()) LearnOrder(before, shape);
  if (followed && keeps_plans() && plans_.Holds(cycle.followed)) ExpectLonger(*cycle.followed);
  if (followed && !wanted.has_value() && plans_.Holds(cycle.followed)) ExpectSteady(cycle);
  return wanted;
}

std::optional<WantedPlan> PlanLearner::Want(WantedPlan::Kind kind) {
  if (!in_making_.Begin()) return std::nullopt;
  WantedPlan wanted;
  wanted.kind = kind;
  wanted.learning = in_making_.learning();
  wanted.limit_bytes = most_bytes();
  if (cycles_ - refused_at_ < kCyclesOfOneMind && cycles_ >= room_from_) {
    wanted.room = std::min(wanted.limit_bytes, refused_room_);
  }
  wanted.alignment = alignment_;
  if (keeps_within_pages_) wanted.most_peak = bytes_;
  return wanted;
}

// Whether longer lifetimes that had gone are planned for again with those that have come.
bool PlanLearner::TakesLonger(const LearnedCycle& same) const {
  const uint32_t regrets = same.regrets + (same.longer != nullptr ? 1 : 0);
  return regrets >= CycleHistory::kFewRegrets ||
         (same.alone_at != 0 && cycles_ - same.alone_at <= kCyclesOfOneMind);
}

std::optional<WantedPlan> PlanLearner::WantCycle(const EndedCycle& cycle, const Shape& shape) {
  LearnedCycle* const same = plans_.Find(shape.signature, shape.requests);
  if (same == nullptr) {
    // One plan is of use only for cycles that follow one another.
    using Answer = PlanningEffort::Answer;
    const bool rarely = trust_.doubts() && came_running_ < kRunsOn && IsLittle(cycle);
    // What has few requests would begin without its plan however often it comes.
    const uint64_t often =
        shape.requests < kRequestsForChange ? PlanningEffort::kNeverOften : PlanningEffort::kOften;
    const Answer pays = keeps_plans()
                            ? effort_.PaysFor(shape.signature, cycles_, rarely ? often : 0)
                        : effort_.Pays(comes_again_) ? Answer::kYes
                                                     : Answer::kNo;
    if (pays != Answer::kYes) {
      if (effort_.GivesUp()) ForgetGuesses();
      const bool may_pay = pays == Answer::kNextTime || (rarely && comes_again_);
      if (may_pay && cycle.is_unrecorded()) RecordAgain();
      return std::nullopt;
    }
  }
  if (cycle.is_unrecorded()) {
    RecordAgain();
    effort_.PutOff();
    return std::nullopt;
  }
  if (same == nullptr) {
    if (!effort_.Affords(shape.requests)) {
      effort_.PutOff();
      return std::nullopt;
    }
    if (AlikeWereGivenUp(cycle, shape)) {
      effort_.PutOff();
      return std::nullopt;
    }
    if (!plans_.HasRoom(cycles_, comes_again_)) {
      effort_.PutOff();
      return std::nullopt;
    }
  }
  if (same != nullptr) {
    if (const uint64_t away = AwayFor(*same); away >= PlanningEffort::kLeastGoneAfter)
      ComeBack(*same, away);
    same->seen_at = cycles_;
    if (IsRemadeTooSoon(*same) || !effort_.Affords(shape.requests)) {
      NoteLives(cycle, *same);
      Use(same, false);
      SetNext(same);
      effort_.PutOff();
      return std::nullopt;
    }
  }
  bool to_end = false;
  if (same != nullptr && GivesUp(cycle, shape, *same, &to_end)) {
    effort_.PutOff();
    return std::nullopt;
  }
  // The last to throw: what is wanted must be adopted or given up.
  std::optional<Family> family = Family();
  if (keeps_plans()) family = FamilyOf(cycle, same, 0);
  if (!family.has_value() && same != nullptr && !PlansInCrowd(cycle, *same)) {
    effort_.PutOff();
    return std::nullopt;
  }
  if (!family.has_value() || !Affords(*family, same != nullptr))
    family.emplace();  // alone, as long as that is
  if (same != nullptr && IsTooTight(*same->plan, cycle) &&
      (family->empty() || same->remade >= kRemadeInVain)) {
    Use(same, false);
    SetNext(same);
    return std::nullopt;
  }
  std::optional<WantedPlan> wanted = Want(WantedPlan::Kind::kCycle);
  if (!wanted.has_value()) return wanted;
  wanted->pins = keeps_plans() && !IsRefused(cycle.recorder->left_plan());
  wanted->may_give_up = MayGiveUp(cycle);
  wanted->least_gain = LeastGainOf(*family);
  // What is new is planned with all others only where it needs much more around them.
  effort_.Spend(shape.requests + RequestsOf(*family) / (same != nullptr ? 1 : kShareOfNew));
  wanted->family = *std::move(family);
  if (same == nullptr) return wanted;
  // With the longest lifetimes there were, so that those that vary converge.
  wanted->same = same->plan;
  wanted->longest = std::move(same->longest);
  if (Allows(*same->plan, cycle)) {
    // It is the other one's places that were in its way.
    const CyclePlan* const left = cycle.recorder->left_plan();
    LearnedCycle* const other =
        left != nullptr ? plans_.Find(left->signature(), left->requests.size()) : nullptr;
    if (other != nullptr && other->alone) other->watch.WaitLonger(kMostRepetitionsOfVaried);
    return wanted;
  }
  // It had been planned for shorter lifetimes alone. Where that was soon, or again and again, they
  // vary: then it has the longest there ever were, and is planned for shorter ones ever more
  // rarely.
  const bool takes = TakesLonger(*same);
  const std::shared_ptr<const CyclePlan> longer = std::move(same->longer);
  if (longer != nullptr) ++same->regrets;
  if (!takes) {
    same->watch.refresh_after = RepetitionWatch::kFirst;
  } else if (longer != nullptr) {
    wanted->longer = longer;
    same->watch.WaitLonger(kMostRepetitionsOfVaried);
  }
  wanted->to_end = to_end;
  return wanted;
}

// A cycle without misses may still be another one than its plan's: shorter, or of smaller requests.
// One that is so again and again and needs much less gets a plan of its own, so that the larger one
// can be forgotten.
std::optional<WantedPlan> PlanLearner::UseExactPlan(const EndedCycle& cycle, const Shape& shape) {
  SetNext(cycle.followed);
  const LearnedCycle* const exact = plans_.Find(shape.signature, shape.requests);
  if (exact != nullptr) {
    inexact_cycles_ = 0;
    // One that was served by another plan, or helped out by one, may have lifetimes now that its own does not
    // allow. Then that is made anew, though nothing missed: others are made around it. (It may also have made a
    // request that was refused.)
    if (cycle.followed != exact || cycle.is_recorded()) {
      if (!cycle.has_lifetimes()) {
        WantLifetimes(shape);
      } else if (!Allows(*exact->plan, cycle)) {
        std::optional<WantedPlan> wanted = WantCycle(cycle, shape);
        if (wanted.has_value() || !plans_.Holds(exact)) return wanted;  // it may be given up
      }
    }
    Use(exact, true);
    SetNext(exact);
    return std::nullopt;
  }
  const size_t planned = cycle.followed->plan->layout.peak_bytes();
  size_t needed = cycle.cursor;
  if (cycle.is_recorded()) {
    needed = static_cast<size_t>(
        LiveLowerBound(cycle.recorder->requests(), static_cast<int64_t>(alignment_)));
  }
  if (needed >= planned - planned / 4) {
    Use(cycle.followed, false);
    return std::nullopt;
  }
  if (++inexact_cycles_ <= 1) return std::nullopt;
  if (cycle.is_recorded()) return WantCycle(cycle, shape);
  std::optional<WantedPlan> wanted = Want(WantedPlan::Kind::kBeginning);
  if (wanted.has_value()) wanted->whole = cycle.followed->plan;
  return wanted;
}

// A plan may be larger than the cycles that repeat under it need, and none of them misses: lifetimes have
// become shorter, they end earlier, or places were chosen for the sake of others. So what repeats is looked at
// now and then, whatever came between, and planned for what it was of late.
std::optional<WantedPlan> PlanLearner::Repeats(const EndedCycle& cycle, const Shape& shape,
                                               bool followed) {
  LearnedCycle* const own = plans_.Find(shape.signature, shape.requests);
  if (own == nullptr && shape != watched_) {
    watched_ = shape;
    watch_ = {};
  }
  RepetitionWatch& watch = own != nullptr ? own->watch : watch_;
  if (!followed) {
    watch.Restart();
    return std::nullopt;
  }
  if (watch.repetitions == 0) watch.since = cycles_ - 1;
  watch.repetitions = std::min(watch.repetitions + 1, watch.next_look());
  if (watch.repetitions < watch.next_look()) return std::nullopt;
  // Of hundreds that begin alike one is looked at when all could be planned again, as else each would be in vain.
  if (keeps_plans() && !comes_again_ && served_for_pages_ < price_refused_) {
    const PlanList::Range alike = BeginningWith(cycle.first_bytes());
    if (alike.end - alike.begin > kFewAlike) return std::nullopt;
  }
  if (!cycle.has_lifetimes()) {
    WantLifetimes(shape);
    return std::nullopt;
  }
  const CyclePlan& plan = *next_->plan;
  if (watch.seen_cycles == 0 && !CouldBeSmaller(plan, shape.signature, cycle)) {
    watch.repetitions = 0;
    watch.WaitLonger(kMostRepetitions);
    return std::nullopt;
  }
  Look(cycle, alignment_, watch);
  const int looks = LooksOf(watch);
  if (++watch.seen_cycles < looks) {
    // Where longer ones came back there may be kinds in bursts, which cycles that follow one
    // another do not show: so these are looked for, here and there, for as long as it was waited.
    if (own != nullptr && own->regrets > 0) {
      const uint64_t mixed = ExtendSignature(cycles_, static_cast<size_t>(watch.repetitions));
      watch.not_before =
          watch.repetitions + 1 + static_cast<int>(mixed % (2 * watch.refresh_after / looks));
    }
    if (!cycle.knows_lifetimes) WantLifetimes(shape);
    return std::nullopt;
  }
  // What did not come meanwhile need not be thought of.
  std::optional<Family> family = Family();
  if (keeps_plans()) family = FamilyOf(cycle, own, watch.since);
  const size_t least_gain = family.has_value() ? LeastGainOf(*family) : 0;
  const bool pays = plan.layout.peak_bytes() > least_gain;
  if (!family.has_value() || !pays || !Affords(*family, /*mends=*/false)) {
    watch.Restart();
    if (!family.has_value() || !pays) watch.WaitLonger(kMostRepetitions);
    return std::nullopt;
  }
  // The plan is far larger than what is alive, and lifetimes that are shorter of late are no help.
  const bool loose = own != nullptr && family->empty() && MayGiveUp(cycle) && next_ == own &&
                     IsLoose(plan.layout.peak_bytes(), watch.most_alive, own);
  if (loose && (own->comes_in_turns() ||
                IsLoose(LiveLowerBound(watch.seen, static_cast<int64_t>(alignment_)),
                        watch.most_alive, own))) {
    GiveUp(*own, plan.layout.peak_bytes(), watch.most_alive);
    return std::nullopt;
  }
  std::optional<WantedPlan> wanted = Want(WantedPlan::Kind::kAlone);
  if (!wanted.has_value()) return wanted;
  if (own != nullptr) own->most_alive = watch.most_alive;
  if (loose) wanted->loose_of = watch.most_alive;
  effort_.Spend(watch.seen.size() + RequestsOf(*family));
  wanted->peak_to_beat = plan.layout.peak_bytes();
  wanted->least_gain = least_gain;
  wanted->family = *std::move(family);
  wanted->most_alive = watch.most_alive;
  wanted->seen = std::move(watch.seen);
  watch.Restart();
  watch.WaitLonger(kMostRepetitions);
  return wanted;
}

// For as long as it takes until a cycle comes again that takes turns with some others.
void PlanLearner::WantLifetimes(const Shape& shape) noexcept {
  wanted_shape_ = shape;
  lifetimes_wanted_ = kCyclesWritten;
}

}  // namespace tidepool
