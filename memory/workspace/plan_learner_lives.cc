// Cycles of the same requests whose lifetimes are other ones each time.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "tidepool/memory/mapped_vector.h"
#include "tidepool/memory/workspace/plan_family.h"
#include "tidepool/memory/workspace/plan_learner.h"

namespace tidepool {
namespace {

// A plan that was made anew so often is given up when longer lifetimes come again, sooner where one
// was before.
constexpr uint32_t kRemadeBeforeGivenUp = 2;

// Lifetimes that have grown so often are taken to the end of the cycle when they grow again, where
// that is not far more than is alive.
constexpr uint32_t kRemadeBeforeToEnd = 6;

// One of kinds that begin alike that was given up so often is planned again when the others have not come for long.
constexpr uint32_t kGivenUpForGood = 2;

// Others are not given up for one that comes more rarely.
constexpr uint64_t kMostAwayAlike = 256;

// Kinds that begin alike and come within so many cycles are in one another's way.
constexpr uint64_t kCyclesOfOneMind = 1024;

size_t WithRoom(size_t alive) { return alive + alive / 16; }

}  // namespace

// What one more cycle shows of the lifetimes of a kind.
void PlanLearner::Look(const EndedCycle& cycle, size_t alignment, RepetitionWatch& watch) {
  MappedVector<LifetimeBuffer> lifetimes = cycle.Lifetimes();
  const auto alive =
      static_cast<size_t>(LiveLowerBound(lifetimes, static_cast<int64_t>(alignment)));
  if (watch.seen_cycles == 0) {
    watch.seen = std::move(lifetimes);
  } else {
    for (uint32_t slot = 0; slot < watch.seen.size(); ++slot) {
      watch.seen[slot].upper = std::max(watch.seen[slot].upper, lifetimes[slot].upper);
    }
  }
  watch.most_alive = std::max(watch.most_alive, alive);
}

// Pages that can become smaller, of cycles whose lifetimes are known: a batch's readers release it
// at any time.
bool PlanLearner::MayGiveUp(const EndedCycle& cycle) const {
  return cycle.knows_lifetimes && config_.policy_spill == SpillPolicy::kReallocate;
}

// Whether pages for `needed` bytes are far larger than what is `alive` in these cycles, and in
// those of other kinds, which use the same pages; each cycle of a pool has some of its own.
bool PlanLearner::IsLoose(size_t needed, size_t alive, const LearnedCycle* own) const {
  if (needed <= std::max({LoosePlans::MostPlanned(alive), initial_bytes_, config_.min_size}))
    return false;
  if (keeps_outliers_) return true;
  for (const auto& other : plans_.cycles()) {
    if (other.get() == own) continue;
    alive =
        std::max(alive, other->most_alive > 0 ? other->most_alive : other->plan->lower_bound_bytes);
  }
  return needed > LoosePlans::MostPlanned(alive);
}

// The cycle has left its plan, because it has longer lifetimes. Whether the plan is given up for
// it, rather than made for the longest there were; `to_end`: those that grow to the end of the cycle.
bool PlanLearner::GivesUp(const EndedCycle& cycle, const Shape& shape, LearnedCycle& same,
                          bool* to_end) {
  *to_end = same.remade >= kRemadeBeforeToEnd;
  if (!MayGiveUp(cycle) || !cycle.has_lifetimes()) return false;
  const auto alignment = static_cast<int64_t>(alignment_);
  same.most_alive =
      std::max(same.most_alive, static_cast<size_t>(LiveLowerBound(cycle.Lifetimes(), alignment)));
  const LoosePlans::Kind* const kind = loose_.Find(shape.signature, shape.requests);
  const bool before = kind != nullptr && !kind->last.alike;
  if (!before && same.remade < kRemadeBeforeGivenUp) return false;
  // What the plan would be made for.
  WantedPlan wanted;
  wanted.same = same.plan;
  if (TakesLonger(same)) wanted.longer = same.longer;
  wanted.longest = same.longest;
  const auto needed = [&] {
    return static_cast<size_t>(LiveLowerBound(LongestLifetimes(wanted, cycle), alignment));
  };
  wanted.to_end = *to_end;
  if (*to_end && IsLoose(needed(), same.most_alive, &same)) wanted.to_end = *to_end = false;
  const size_t longest = needed();
  if (!IsLoose(longest, same.most_alive, &same)) return false;
  // In plans of those that begin alike it would miss.
  const std::optional<Family> family = keeps_plans() ? FamilyOf(cycle, &same, 0) : Family();
  if (!family.has_value()) return false;
  const size_t most_alive = same.most_alive;
  GiveUp(same, longest, most_alive);
  if (!family->empty()) GiveUpAlike(cycle.first_bytes(), longest, most_alive, nullptr);
  return true;
}

void PlanLearner::GiveUp(const LearnedCycle& own, size_t needed, size_t most_alive) {
  const MappedVector<LifetimeBuffer>& requests = own.plan->requests;
  loose_.Add({own.plan->signature(), requests.size(), static_cast<size_t>(requests.front().size),
              needed, most_alive, cycles_});
  plans_.Forget(&own);
  ++plans_given_up_;
  GaveUp(most_alive);
}

// Pages come down at once. What comes without the plan is about what is alive and has gaps.
void PlanLearner::GaveUp(size_t most_alive) noexcept {
  loose_cycles_ = 0;
  ForgotSome();
  for (int i = 0; i < RecentNeed::kOften; ++i) reach_.Add(WithRoom(most_alive));
  SetUnplannedBytes();
  const size_t wanted = SizeFor(std::max(plans_.peak_bytes(), unplanned_need()));
  if (wanted < bytes_ && may_change()) SetBytes(wanted);
}

// ---- kinds that begin alike -------------------------------------------------------------------

PlanList::Range PlanLearner::BeginningWith(size_t first_bytes) const {
  const PlanList& plans = *plans_.list();
  PlanList::Range range{0, static_cast<uint32_t>(plans.size())};
  plans.Narrow(0, ExtendSignature(kNoRequests, first_bytes), &range);
  return range;
}

// A request that they have in common keeps its place as long as in any of them. Whether that is why
// they need far more than any has alive, so that all are given up.
bool PlanLearner::GivesUpAlike(const WantedPlan& wanted, const NewPlans& made) {
  if (!wanted.may_give_up || wanted.family.empty()) return false;
  size_t needed = made.plan->layout.peak_bytes(), alive = made.plan->most_alive_bytes();
  for (const PlanSet::Replacement& other : made.others) {
    needed = std::max(needed, other.by->layout.peak_bytes());
  }
  for (const auto& plan : wanted.family) alive = std::max(alive, plan->most_alive_bytes());
  if (!IsLoose(needed, alive, nullptr)) return false;
  if (wanted.same == nullptr) {
    // It may never come again, and the others stay as long as that is so (ObserveLoose).
    const CyclePlan& plan = *made.plan;
    loose_.Add({plan.signature(), plan.requests.size(),
                static_cast<size_t>(plan.requests.front().size), needed, alive, cycles_,
                /*alike=*/true});
    effort_.PutOff();
    return true;
  }
  GiveUpAlike(static_cast<size_t>(made.plan->requests.front().size), needed, alive,
              made.plan.get());
  return true;
}

// `also`: of the kind that has no plan yet; or null.
void PlanLearner::GiveUpAlike(size_t first_bytes, size_t needed, size_t most_alive,
                              const CyclePlan* also) {
  const std::shared_ptr<const PlanList> plans = plans_.list();  // what is given up is of it
  const PlanList::Range alike = BeginningWith(first_bytes);
  const auto add = [&](const CyclePlan& plan) {
    loose_.Add({plan.signature(), plan.requests.size(), first_bytes, needed, most_alive, cycles_,
                /*alike=*/true});
  };
  if (also != nullptr) add(*also);
  for (uint32_t i = alike.begin; i < alike.end; ++i) {
    const CyclePlan& plan = *(*plans)[i].plan;
    if (also == nullptr || plan.signature() != also->signature()) add(plan);
  }
  for (uint32_t i = alike.begin; i < alike.end; ++i) {
    const CyclePlan& plan = *(*plans)[i].plan;
    const LearnedCycle* const held = plans_.Find(plan.signature(), plan.requests.size());
    if (held == nullptr) continue;
    plans_given_up_ += held->paid;  // others are guesses
    plans_.Forget(held);
  }
  GaveUp(most_alive);
}

// One that has no plan, and begins as others that were given up together and go on coming: it would
// be too large with them, and they would miss in it.
bool PlanLearner::AlikeWereGivenUp(const EndedCycle& cycle, const Shape& shape) {
  if (cycle.is_unrecorded()) return false;
  const LoosePlans::Kind* const other = loose_.LatestAlike(cycle.first_bytes(), shape.signature);
  if (other == nullptr || cycles_ - other->came_at > kCyclesOfOneMind) return false;
  LoosePlans::Reason why = other->last;
  why.signature = shape.signature;
  why.requests = shape.requests;
  why.cycle = cycles_;
  loose_.Add(why);
  return true;
}

// It follows no plan of its own, and is looked at now and then whether its lifetimes are regular
// again.
std::optional<WantedPlan> PlanLearner::ObserveLoose(const EndedCycle& cycle,
                                                    LoosePlans::Kind& kind) {
  const bool served = cycle.misses == 0 && cycle.followed != nullptr;
  const uint64_t away = cycles_ - kind.came_at;
  missing_cycles_ = 0;
  kind.came_at = cycles_;
  if (cycle.followed != nullptr) {
    Use(cycle.followed, false);
    SetNext(cycle.followed);
  }
  if (!served && kind.last.alike && away <= kMostAwayAlike &&
      !BeginningWith(kind.last.first_bytes).empty()) {
    // One of these has a plan, and this one misses in it.
    GiveUpAlike(kind.last.first_bytes, kind.last.needed_bytes, kind.last.alive_bytes, nullptr);
  }
  effort_.PutOff();
  std::optional<WantedPlan> wanted;
  RepetitionWatch& watch = kind.watch;
  if (watch.repetitions == 0) watch.since = cycles_ - 1;
  watch.repetitions = std::min(watch.repetitions + 1, watch.next_look());
  const bool looks = watch.repetitions == watch.next_look();
  loose_cycles_ = looks ? 0 : std::min(loose_cycles_ + 1, kLooseBeforeUnrecorded);
  // One that begins as others do was not too large alone: at first it is planned as soon as it comes twice running.
  const bool alone = kind.last.alike && comes_again_ && kind.given_up <= kGivenUpForGood;
  if ((looks || alone) && cycle.is_unrecorded()) RecordAgain();
  if ((looks || alone) && cycle.has_lifetimes()) {
    Look(cycle, alignment_, watch);
    if (alone) watch.since = cycles_ - 2;
    if (++watch.seen_cycles == LooksOf(watch) || alone) wanted = PlanAgain(cycle, kind);
  }
  AddReach(cycle, /*unserved=*/!served && !wanted.has_value());
  ForgetOld();
  FitPages();
  DecideToRecord();
  return wanted;
}

// As its lifetimes were of late, if little more than what was alive is enough for them together.
std::optional<WantedPlan> PlanLearner::PlanAgain(const EndedCycle& cycle, LoosePlans::Kind& kind) {
  RepetitionWatch& watch = kind.watch;
  const LoosePlans::Reason& why = kind.last;
  const LoosePlans::Kind* const other =
      why.alike ? loose_.LatestAlike(why.first_bytes, why.signature) : nullptr;
  const bool others_come = other != nullptr && other->came_at > watch.since;
  const size_t most_alive = watch.most_alive;
  const size_t enough =
      why.alike ? LoosePlans::MostPlanned(most_alive) : LoosePlans::WorthPlanning(most_alive);
  MappedVector<LifetimeBuffer> seen = std::move(watch.seen);
  watch.Restart();
  watch.WaitLonger(LoosePlans::kMostRepetitions);
  if (static_cast<size_t>(LiveLowerBound(seen, static_cast<int64_t>(alignment_))) > enough) {
    return std::nullopt;
  }
  if (!plans_.HasRoom(cycles_, comes_again_)) return std::nullopt;
  if (others_come) return std::nullopt;
  std::optional<Family> family = Family();
  if (keeps_plans()) family = FamilyOf(cycle, nullptr, 0);
  if (!family.has_value() || !Affords(*family, /*mends=*/false)) return std::nullopt;
  std::optional<WantedPlan> wanted = Want(WantedPlan::Kind::kAlone);
  if (!wanted.has_value()) return wanted;
  effort_.Spend(seen.size() + RequestsOf(*family));
  wanted->peak_to_beat = enough + enough / 15 + alignment_;
  wanted->family = *std::move(family);
  wanted->most_alive = most_alive;
  wanted->seen = std::move(seen);
  return wanted;
}

}  // namespace tidepool
