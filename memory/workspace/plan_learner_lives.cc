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
constexpr uint32_t kRemadeBeforeToEnd = 8;

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
bool PlanLearner::IsLoose(size_t needed, size_t alive, const LearnedCycle& own) const {
  if (needed <= std::max({LoosePlans::MostPlanned(alive), initial_bytes_, config_.min_size}))
    return false;
  if (keeps_outliers_) return true;
  for (const auto& other : plans_.cycles()) {
    if (other.get() == &own) continue;
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
  same.most_alive = std::max(same.most_alive,
                             static_cast<size_t>(LiveLowerBound(cycle.Lifetimes(), alignment)));
  const bool before = loose_.Find(shape.signature, shape.requests) != nullptr;
  if (!before && same.remade < kRemadeBeforeGivenUp) return false;
  // What the plan would be made for.
  WantedPlan wanted;
  wanted.same = same.plan;
  if (TakesLonger(same)) wanted.longer = same.longer;
  const auto needed = [&] {
    return static_cast<size_t>(LiveLowerBound(LongestLifetimes(wanted, cycle), alignment));
  };
  wanted.to_end = *to_end;
  if (*to_end && IsLoose(needed(), same.most_alive, same)) wanted.to_end = *to_end = false;
  const size_t longest = needed();
  if (!IsLoose(longest, same.most_alive, same)) return false;
  // Plans of kinds that begin alike are larger for one another's sake, and each would miss where another one begins.
  const std::optional<Family> family = keeps_plans() ? FamilyOf(cycle, &same, 0) : Family();
  if (!family.has_value() || !family->empty()) return false;
  GiveUp(same, longest, same.most_alive);
  return true;
}

// Pages come down at once. What comes without the plan is about what is alive and has gaps.
void PlanLearner::GiveUp(const LearnedCycle& own, size_t needed, size_t most_alive) {
  const MappedVector<LifetimeBuffer>& requests = own.plan->requests;
  loose_.Add({own.plan->signature(), requests.size(), static_cast<size_t>(requests.front().size),
              needed, most_alive, cycles_});
  plans_.Forget(&own);
  if (!plans_.Holds(next_)) next_ = plans_.empty() ? nullptr : plans_.cycles().front().get();
  ++plans_given_up_;
  loose_cycles_ = 0;
  Changed();
  for (int i = 0; i < RecentNeed::kOften; ++i) reach_.Add(WithRoom(most_alive));
  SetUnplannedBytes();
  const size_t wanted = SizeFor(std::max(plans_.peak_bytes(), reach_.peak()));
  if (wanted < bytes_ && may_change()) SetBytes(wanted);
}

// It follows no plan of its own, and is looked at now and then whether its lifetimes are regular
// again.
std::optional<WantedPlan> PlanLearner::ObserveLoose(const EndedCycle& cycle,
                                                    LoosePlans::Kind& kind) {
  const bool served = cycle.misses == 0 && cycle.followed != nullptr;
  missing_cycles_ = 0;
  kind.came_at = cycles_;
  if (cycle.followed != nullptr) {
    Use(cycle.followed, false);
    SetNext(cycle.followed);
  }
  effort_.PutOff();
  std::optional<WantedPlan> wanted;
  RepetitionWatch& watch = kind.watch;
  watch.repetitions = std::min(watch.repetitions + 1, watch.next_look());
  const bool looks = watch.repetitions == watch.next_look();
  loose_cycles_ = looks ? 0 : std::min(loose_cycles_ + 1, kLooseBeforeUnrecorded);
  if (looks && cycle.has_lifetimes()) {
    Look(cycle, alignment_, watch);
    if (++watch.seen_cycles == LooksOf(watch)) wanted = PlanAgain(cycle, watch);
  }
  AddReach(cycle, /*unserved=*/!served && !wanted.has_value());
  ForgetOld();
  FitPages();
  DecideToRecord();
  return wanted;
}

// As its lifetimes were of late, if little more than what was alive is enough for them together.
std::optional<WantedPlan> PlanLearner::PlanAgain(const EndedCycle& cycle, RepetitionWatch& watch) {
  const size_t most_alive = watch.most_alive, enough = LoosePlans::WorthPlanning(most_alive);
  MappedVector<LifetimeBuffer> seen = std::move(watch.seen);
  watch.Restart();
  watch.WaitLonger(LoosePlans::kMostRepetitions);
  if (static_cast<size_t>(LiveLowerBound(seen, static_cast<int64_t>(alignment_))) > enough) {
    return std::nullopt;
  }
  if (!plans_.HasRoom(cycles_, comes_again_)) return std::nullopt;
  std::optional<Family> family = Family();
  if (keeps_plans()) family = FamilyOf(cycle, nullptr, 0);
  if (!family.has_value() || !Affords(*family, /*mends=*/false)) return std::nullopt;
  std::optional<WantedPlan> wanted = Want(WantedPlan::Kind::kAlone);
  if (!wanted.has_value()) return wanted;
  wanted->peak_to_beat = enough + enough / 15 + alignment_;
  wanted->family = *std::move(family);
  wanted->most_alive = most_alive;
  wanted->seen = std::move(seen);
  return wanted;
}

}  // namespace tidepool
