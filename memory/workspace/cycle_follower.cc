#include "tidepool/memory/workspace/cycle_follower.h"

#include <algorithm>
#include <array>
#include <bit>
#include <new>
#include <utility>

namespace tidepool {
namespace {

// A cycle goes on without a plan when it has missed so many requests, and a quarter of those since the
// first that it missed.
constexpr uint32_t kMissesBeforeNone = 64;
constexpr uint32_t kMissedShare = 4;
// Plans that are looked at when a cycle leaves its own, and those that are tried.
constexpr uint32_t kMostLookedAt = 512;
constexpr uint32_t kMostTried = 8;
// Changes between so many are not remembered.
constexpr size_t kFewPlans = 16;

// Whether what is alive lies where the plan has it, and leaves the next request its place.
bool CanTakeOver(const CyclePlan& plan, const RequestView& made) {
  const PlanLayout::Slot& next = plan.layout.slot(made.count());
  for (uint32_t slot = 0; slot < made.count(); ++slot) {
    if (made.IsBesidePlans(slot)) {
      if (static_cast<size_t>(made.offset(slot)) < plan.layout.peak_bytes()) return false;
    }
    if (!made.IsInPlan(slot)) continue;
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

CycleFollower::CycleFollower(const WorkspaceConfig& config, WorkspaceCounters& counters)
    : config_(config), counters_(counters) {
  lesson_.plans = PlanList::None();
}

void CycleFollower::Take(const Lesson& lesson) {
  undisturbed_ = false;
  beginning_ = {};
  const bool same_plans = lesson.plans == lesson_.plans;
  if (!same_plans) placed_.Reserve(lesson.plans->most_requests());
  const bool follows = followed_ == lesson.next;
  // What is followed may go with the list.
  if (!follows) placed_.Follow(nullptr, 0);
  lesson_ = lesson;
  if (!same_plans) ForgetChanges();
  followed_ = follows ? followed_ : nullptr;
  Expect(lesson.next);
}

void CycleFollower::ReserveToWriteDown() { recorder_.ReserveFor(lesson_.plans->most_requests()); }

void CycleFollower::Expect(const LearnedCycle* next, const LearnedCycle* last) noexcept {
  lesson_.next = next;
  Count(last);
  if (followed_ == next) return;
  undisturbed_ = false;
  followed_ = next;
  placed_.Follow(next != nullptr ? &next->plan->layout : nullptr, 0);
}

const LearnedCycle* CycleFollower::BeginningWith(size_t rounded, size_t* peak_bytes) noexcept {
  const PlanList& plans = *lesson_.plans;
  if (beginning_.rounded != rounded) {
    beginning_ = {rounded};
    PlanList::Range range{0, static_cast<uint32_t>(plans.size())};
    plans.Narrow(0, ExtendSignature(kNoRequests, rounded), &range);
    plans.ForEach(range, [this](const LearnedCycle& cycle) {
      beginning_.peak_bytes = std::max(beginning_.peak_bytes, cycle.plan->layout.peak_bytes());
      if (beginning_.latest == nullptr || cycle.used_at > beginning_.latest->used_at) {
        beginning_.latest = &cycle;
      }
    });
  }
  *peak_bytes = beginning_.peak_bytes;
  if (followed_ != nullptr && beginning_.latest != nullptr &&
      followed_->plan->requests.front().size == static_cast<int64_t>(rounded)) {
    return followed_;
  }
  return beginning_.latest;
}

void CycleFollower::Forget() noexcept {
  beginning_ = {};
  changes_.reset();
  change_count_ = 0;
  undisturbed_ = false;
  followed_ = nullptr;
  placed_.Follow(nullptr, 0);
  lesson_ = {};
  lesson_.plans = PlanList::None();
}

void CycleFollower::SetFollowed(const LearnedCycle* cycle) noexcept {
  followed_ = cycle;
  Count(cycle);
}

void CycleFollower::Count(const LearnedCycle* cycle) noexcept {
  if (cycle == nullptr) {
    if (lesson_.plans->size() > 0) return;  // of the one that is known until another comes
    counters_.planned_peak_bytes = 0;
    counters_.live_lower_bound_bytes = 0;
    counters_.requested_bytes = 0;
    counters_.planned_requests = 0;
    return;
  }
  const CyclePlan& plan = *cycle->plan;
  counters_.planned_peak_bytes = plan.peak_bytes;
  counters_.live_lower_bound_bytes = plan.most_alive_bytes();
  counters_.requested_bytes = plan.requested_bytes;
  counters_.planned_requests = plan.requests.size();
}

void CycleFollower::BeginAnew(size_t capacity) noexcept {
  capacity_ = capacity;
  left_end_ = 0;
  alike_ = {};
  known_of_alike_ = kAlikeIsKnown;
  missed_ = made_changes_ = 0;
  help_ = Help::kUnknown;
  most_looked_at_ = kMostLookedAt;
  // Pages that could not be had are asked for again at the cycle's end.
  const LearnedCycle* next = lesson_.next;
  if (next != nullptr && next->plan->layout.peak_bytes() > capacity) next = nullptr;
  if (next != followed_) {
    SetFollowed(next);
    placed_.Follow(next != nullptr ? &next->plan->layout : nullptr, 0);
  }
  const bool learns = keeps_plans() || config_.policy_learning == LearningPolicy::kOptimized;
  const bool unplanned = learns && next == nullptr && config_.debug_mode == DebugMode::kDisabled &&
                         config_.policy_allocation != AllocationPolicy::kAlways;
  unrecorded_ = unplanned && !lesson_.records;
  recorder_.Begin(unplanned && lesson_.records);
  undisturbed_ = next != nullptr && next == lesson_.next;
}

bool CycleFollower::PlaceOffPlan(const RequestView& made, size_t rounded, size_t* offset) {
  undisturbed_ = false;
  const bool was_recorded = recorder_.active();
  const uint32_t slot = made.count();
  CatchUp(slot);
  recorder_.Leave(*plan(), made);
  if (!was_recorded) known_of_alike_ = kNothingIsKnown;
  if (keeps_plans()) {
    if (SwitchPlan(made, rounded) && placed_.TryPlace(slot, rounded, offset)) return true;
    const auto& planned = plan()->requests;
    const bool is_other =
        slot >= planned.size() || planned[slot].size != static_cast<int64_t>(rounded);
    if (is_other && !TriesLarger()) {
      slot > 0 ? LeaveForGood(made) : FollowFromHere(nullptr, made);
      return false;
    }
    if (placed_.TryPlaceWithin(slot, rounded, offset)) return true;
    if (slot == 0) {
      const LearnedCycle* const larger = lesson_.plans->SmallestThatBegins(rounded, capacity_);
      FollowFromHere(larger, made);
      return larger != nullptr && placed_.TryPlaceWithin(0, rounded, offset);
    }
  }
  if (missed_ == 0) first_miss_ = slot;
  if (missed_ == 0 || last_miss_ != slot) ++missed_;  // one that is refused is not made
  last_miss_ = slot;
  if (missed_ > kMissesBeforeNone && missed_ >= (slot - first_miss_) / kMissedShare) {
    LeaveForGood(made);
  }
  return false;
}

bool CycleFollower::TriesLarger() noexcept {
  if (help_ == Help::kUnknown) {
    // Without a plan it may be refused what the plan of a larger one has room for.
    const bool tries =
        trust_ > 0 || config_.policy_spill == SpillPolicy::kFail || ++untried_ >= kUntriedCycles;
    if (tries) untried_ = 0;
    help_ = tries ? Help::kTaken : Help::kNone;
  }
  return help_ == Help::kTaken;
}

// Of a cycle that was to be served by what was planned for larger requests.
void CycleFollower::Judge(uint32_t requests) noexcept {
  trust_ = missed_ <= requests / kMissedShare ? std::min(trust_ + kTrustForOneServed, kMostTrust)
                                              : std::max(trust_ - 1, 0);
}

void CycleFollower::LeaveForGood(const RequestView& made) noexcept {
  left_end_ = planned_end();
  FollowFromHere(nullptr, made);
}

// To a plan that has made the same requests so far, and this one next: the one that was used last of
// those that what is alive allows. Of very many some are looked at, here and there, and fewer each time in a cycle.
bool CycleFollower::SwitchPlan(const RequestView& made, size_t rounded) {
  const uint64_t signature = ExtendSignature(recorder_.signature(), rounded);
  Change* change = nullptr;
  if (lesson_.plans->size() > kFewPlans) {
    if (changes_ == nullptr) MakeChanges();
    if (changes_ != nullptr) change = &changes_[signature % change_count_];
  }
  if (change != nullptr && change->signature == signature && change->to != followed_ &&
      SwitchTo(*change->to, made)) {
    return true;
  }
  if (known_of_alike_ != kAlikeIsKnown) {
    alike_ = known_of_alike_ == kNothingIsKnown
                 ? lesson_.plans->Like(*plan(), made.count())
                 : lesson_.plans->Like(*plan(), made.count(), alike_);
    known_of_alike_ = kAlikeIsKnown;
  }
  PlanList::Range same = alike_;
  lesson_.plans->Narrow(made.count(), signature, &same);
  std::array<const LearnedCycle*, kMostTried> latest{};
  const auto look_at = [&](const LearnedCycle& each) {
    const LearnedCycle* cycle = &each;
    if (cycle == followed_) return;
    for (const LearnedCycle*& other : latest) {
      if (cycle == nullptr) break;
      if (other == nullptr || cycle->used_at > other->used_at) std::swap(cycle, other);
    }
  };
  const uint32_t size = same.end - same.begin;
  if (size <= most_looked_at_) {
    lesson_.plans->ForEach(same, look_at);
  } else {
    const uint32_t step = size / most_looked_at_;
    for (uint32_t i = same.begin; i < same.end; i += step) look_at((*lesson_.plans)[i]);
    most_looked_at_ = std::max(most_looked_at_ / 2, kMostTried);
  }
  for (const LearnedCycle* cycle : latest) {
    if (cycle == nullptr) break;
    if (!SwitchTo(*cycle, made)) continue;
    if (change != nullptr) *change = {signature, cycle};
    return true;
  }
  return false;
}

bool CycleFollower::SwitchTo(const LearnedCycle& cycle, const RequestView& made) noexcept {
  if (cycle.plan->layout.peak_bytes() > capacity_ || !CanTakeOver(*cycle.plan, made)) return false;
  FollowFromHere(&cycle, made);
  ++counters_.plan_switches;
  ++made_changes_;
  return true;
}

void CycleFollower::ForgetChanges() noexcept {
  if (lesson_.plans->size() > change_count_ && change_count_ < kMostChanges) {
    changes_.reset();
    change_count_ = 0;
  }
  std::fill_n(changes_.get(), change_count_, Change());
}

void CycleFollower::MakeChanges() noexcept {
  const size_t count = std::bit_ceil(4 * lesson_.plans->size());
  change_count_ = std::clamp(count, kFewestChanges, kMostChanges);
  changes_.reset(new (std::nothrow) Change[change_count_]);
  if (changes_ == nullptr) change_count_ = 0;
}

void CycleFollower::FollowFromHere(const LearnedCycle* cycle, const RequestView& made) noexcept {
  SetFollowed(cycle);
  placed_.Follow(cycle != nullptr ? &cycle->plan->layout : nullptr, made.count());
  if (cycle == nullptr) return;
  for (uint32_t slot = 0; slot < made.count(); ++slot) {
    made.IsInPlan(slot) ? placed_.Assume(slot) : placed_.AssumeGone(slot);
  }
}

size_t CycleFollower::ReserveForPlan(size_t made) noexcept {
  const size_t planned = plan()->requests.size();
  if (!recorder_.active()) return planned;
  try {
    const size_t reserved = std::min(planned, std::max<size_t>(64, 2 * made));
    recorder_.ReserveFor(reserved + 1);  // and for the first that is not as the plan says
    return reserved;
  } catch (const std::bad_alloc&) {
    return 0;
  }
}

// Who has made the same requests as the plan until now has done so with these too.
void CycleFollower::CatchUpSlowly(uint32_t count) noexcept {
  const CyclePlan& followed = *plan();
  auto slot = static_cast<uint32_t>(recorder_.requests().size());
  if (slot > 0 && followed.signatures[slot - 1] == recorder_.signature()) {
    known_of_alike_ = std::max(known_of_alike_, kSomeAreKnown);
  }
  for (; slot < count; ++slot) Record(slot, static_cast<size_t>(followed.requests[slot].size));
}

void CycleFollower::Record(uint32_t slot, size_t rounded) noexcept {
  recorder_.Add(slot, rounded);
  if (known_of_alike_ == kAlikeIsKnown && !alike_.empty())
    lesson_.plans->Narrow(slot, recorder_.signature(), &alike_);
}

}  // namespace tidepool
