// How large pages are, and what is kept.
#include "tidepool/memory/workspace/plan_learner.h"

#include <algorithm>
#include <climits>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/io/file_reader.h"

namespace tidepool {
namespace {

// Pages beyond what is needed are given back after so many cycles.
constexpr int kOversizedCycles = 3;
// Of pages that were outgrown, beyond what is needed: little, as what is drawn outgrows them too.
size_t GrowthOf(size_t bytes) {
  constexpr size_t kFew = size_t{256} << 10, kMost = size_t{2} << 20;
  return std::min({bytes / 16, std::max(bytes / 64, kFew), kMost});
}

// Pages grow ahead where limits leave so many times that for others.
constexpr size_t kShareOfRoom = 16;

size_t RoundUp(size_t n, size_t unit) {
  return n <= SIZE_MAX - unit ? (n + unit - 1) & ~(unit - 1) : n;
}

}  // namespace

size_t LearnedSize(const WorkspaceConfig& config, size_t needed) {
  size_t learned = needed;
  if (config.policy_allocation == AllocationPolicy::kOverallocate) {
    learned += config.overallocation_limit.ExtraFor(learned);
  }
  learned = std::max(learned, config.min_size);
  return config.max_size > 0 ? std::min(learned, config.max_size) : learned;
}

PlanLearner::PlanLearner(const WorkspaceConfig& config, size_t alignment, int window)
    : config_(config),
      alignment_(alignment),
      window_(window),
      plans_(keeps_plans() ? SIZE_MAX : 1),
      totals_(window > 0 ? window : INT_MAX) {}

bool PlanLearner::is_off() const {
  return config_.debug_mode != DebugMode::kDisabled ||
         config_.workspace_mode == WorkspaceMode::kNone ||
         config_.policy_allocation == AllocationPolicy::kAlways ||
         config_.policy_learning == LearningPolicy::kNone;
}

size_t PlanLearner::state_bytes() const {
  return plans_.state_bytes() + effort_.state_bytes() + loose_.state_bytes() +
         crowds_.state_bytes() + trust_.state_bytes() +
         watch_.seen.capacity() * sizeof(LifetimeBuffer);
}

// ---- sizes ------------------------------------------------------------------------------------

size_t PlanLearner::most_bytes() const {
  const size_t capacity = RoundUp(bytes_, alignment_);
  if (!may_change()) return capacity;
  return config_.max_size > 0 ? std::max(capacity, config_.max_size) : SIZE_MAX;
}

size_t PlanLearner::SizeFor(size_t needed) const {
  size_t learned = LearnedSize(config_, needed);
  // Pages are no larger than what requests can have of them.
  if (learned == config_.max_size) learned &= ~(alignment_ - 1);
  return std::max(learned, initial_bytes_);
}

void PlanLearner::SetBytes(size_t bytes) noexcept {
  oversized_cycles_ = 0;
  if (bytes == bytes_) return;
  bytes_ = bytes;
  ++version_;
}

void PlanLearner::SetInitialBytes(size_t bytes) noexcept {
  if (bytes == initial_bytes_) return;
  const bool is_initial = bytes_ == initial_bytes_;
  initial_bytes_ = bytes;
  if (is_initial || bytes_ < bytes) SetBytes(bytes);
}

void PlanLearner::LearnTotal() {
  const auto wait = static_cast<uint64_t>(config_.cycles_before_initialization);
  if (config_.policy_learning == LearningPolicy::kOverTime && bytes_ == 0 &&
      (wait == 0 || cycles_ - cycles_before_ < wait)) {
    return;
  }
  FollowTotals(/*may_shrink=*/window_ > 0);
}

void PlanLearner::FollowTotals(bool may_shrink) noexcept {
  if (!may_change() || totals_.peak() == 0) return;
  const size_t wanted = SizeFor(totals_.peak());
  // A quarter less is worth moving pages for.
  const bool smaller = may_shrink && wanted < bytes_ - bytes_ / 4;
  if (smaller || (totals_.peak() > bytes_ && wanted > bytes_)) SetBytes(wanted);
}

// What no plan serves comes out of pages that are large enough. Where these have the usual gaps and it does not fit
// them, again and again, they get larger ones.
void PlanLearner::AddReach(const EndedCycle& cycle, bool unserved) noexcept {
  if (cycles_ < reach_from_) return;
  const bool tight = unserved && cycle.reach <= bytes_ && cycle.roomy_reach > cycle.reach;
  // What has outgrown by a little the pages that were large enough for all such cycles of late goes on growing, perhaps: a
  // cache of keys and values does, in each cycle, and would ask the system each time.
  const size_t growth = GrowthOf(cycle.reach);
  const bool outgrown = unserved && cycle.reach > bytes_ && cycle.reach - bytes_ <= bytes_ / 64 &&
                        reach_.peak() > 0 && bytes_ <= SizeFor(unplanned_need()) &&
                        cycles_ >= ahead_from_ && growth <= cycle.room / kShareOfRoom;
  // Where nothing is ahead nothing is added, so that cycles that are not looked at make no difference.
  if (outgrown || is_ahead()) ahead_.Add(outgrown ? cycle.reach + growth : 0);
  roomy_reach_.Add(tight ? cycle.roomy_reach : 0);
  reach_.Add(unserved ? std::max(cycle.reach, std::min(roomy_reach_.peak(), cycle.roomy_reach))
                      : 0);
  SetUnplannedBytes();
}

// What varies a little would otherwise have less again as soon as it has had enough for some time, and lie beside that
// now and then, in memory that goes back in between.
void PlanLearner::SetUnplannedBytes() noexcept {
  const size_t needed = unplanned_need();
  if (needed <= unplanned_bytes_ && needed >= unplanned_bytes_ - unplanned_bytes_ / 4) return;
  unplanned_bytes_ = needed;
}

// What the largest plan needs, and what comes without one. Only pages that could grow again get smaller.
void PlanLearner::FitPages() noexcept {
  const size_t needed = std::max(plans_.peak_bytes(), unplanned_need());
  if (needed == 0) return;
  const size_t wanted = SizeFor(needed);
  if (needed > bytes_ && may_change()) return SetBytes(std::max(wanted, bytes_));
  // What comes without a plan varies: a quarter less is worth moving pages for.
  const size_t worth = unplanned_need() > 0 ? bytes_ - bytes_ / 4 : bytes_;
  if (wanted >= worth || config_.policy_spill != SpillPolicy::kReallocate) {
    oversized_cycles_ = 0;
  } else if (++oversized_cycles_ >= kOversizedCycles) {
    SetBytes(wanted);
  }
}

bool PlanLearner::GiveAhead(size_t room) noexcept {
  if (!is_ahead() || GrowthOf(bytes_) <= room / kShareOfRoom) return false;
  ahead_.Clear();
  ahead_from_ = cycles_ + ahead_wait_;
  ahead_wait_ = std::min(2 * ahead_wait_, kMostCyclesWithoutAhead);
  const size_t needed = std::max(plans_.peak_bytes(), reach_.peak());
  if (needed > 0 && config_.policy_spill == SpillPolicy::kReallocate && SizeFor(needed) < bytes_) {
    SetBytes(SizeFor(needed));
  }
  return true;
}

void PlanLearner::Initialize() noexcept {
  if (!is_off() && plans_.empty()) FollowTotals(/*may_shrink=*/false);
}

void PlanLearner::Trim(size_t last_cycle_bytes) noexcept {
  if (is_off()) return;
  ForgetReach();
  size_t needed = 0;
  if (!plans_.empty()) {
    plans_.ForgetLarger(plans_.cycles().front()->plan->layout.peak_bytes());
    next_ = plans_.cycles().front().get();
    Changed();
    needed = std::max(plans_.peak_bytes(), plans_.loaded_peak_bytes());
  } else {
    needed = window_ > 0 ? totals_.peak() : last_cycle_bytes;
    totals_.Clear();
    totals_.Add(needed);
  }
  if (needed == 0) return;
  const size_t wanted = SizeFor(needed);
  if (wanted < bytes_) SetBytes(wanted);
}

// ---- what is kept -----------------------------------------------------------------------------

void PlanLearner::Forget() noexcept {
  in_making_.Forget();
  next_ = nullptr;
  trust_.Forget();
  withholds_ = false;
  plans_.Clear();
  effort_.Forget(cycles_);
  loose_.Clear();
  loose_cycles_ = 0;
  crowds_.Clear();
  missing_cycles_ = inexact_cycles_ = 0;
  watched_ = {};
  watch_ = {};
  lifetimes_wanted_ = 0;
  records_until_ = 0;
  DecideToRecord();
  totals_.Clear();
  ForgetReach();
  cycles_before_ = cycles_;
  bytes_ = initial_bytes_;
  Changed();
}

// What has not come for long is not what pages are made for. The last thing that is done with plans that were found.
void PlanLearner::ForgetOld() noexcept {
  if (trust_.doubts() && cycles_ % PlanningEffort::kLeastGoneAfter == 0) ForgetUnfollowed();
  const bool forgets = keeps_outliers_
                           ? cycles_ % PlanSet::kMostUnused == 0 && plans_.ForgetInTheWay(cycles_)
                           : plans_.ForgetOutliers(cycles_);
  if (!forgets) return;
  ForgotSome();
  oversized_cycles_ = INT32_MAX / 2;  // at once
}

void PlanLearner::ForgetReach() noexcept {
  reach_.Clear();
  roomy_reach_.Clear();
  ahead_.Clear();
  SetUnplannedBytes();
}

void PlanLearner::Changed() noexcept {
  oversized_cycles_ = 0;
  expected_ = nullptr;
  ++version_;
}

// Of the plans that are left the last used one is next, where that which was is not among them. It may be gone: who follows
// has it in its list, unless that is an older one, as pages for a newer one were refused.
void PlanLearner::ForgotSome() noexcept {
  const PlanSet::Cycles& left = plans_.cycles();
  const bool is_left = std::any_of(left.begin(), left.end(),
                                   [this](const auto& each) { return each.get() == next_; });
  if (!is_left) next_ = left.empty() ? nullptr : left.front().get();
  Changed();
}

void PlanLearner::SetNext(const LearnedCycle* next) noexcept {
  next_ = next;
  expected_ = nullptr;
}

void PlanLearner::Use(const LearnedCycle* cycle, bool followed) noexcept {
  const uint64_t away = followed && cycle != nullptr ? AwayFor(*cycle) : 0;
  plans_.Use(cycle, cycles_, followed);
  // The only plan there is pays when cycles that follow it follow one another.
  LearnedCycle& used = plans_.last_used();
  if (followed) used.refused = false;
  if (away >= PlanningEffort::kLeastGoneAfter) ComeBack(used, away);
  if (followed) Follow(used);
  if (!followed || used.paid || (!keeps_plans() && !comes_again_)) return;
  used.paid = true;
  effort_.Paid();
}

const LearnedCycle* PlanLearner::Install(std::shared_ptr<const CyclePlan> plan, bool loaded) {
  const LearnedCycle* const added =
      plans_.Add(std::move(plan), cycles_, loaded);                        // the last to throw
  if (loaded) plans_.last_used().followed = PlanningEffort::kPaidForGood;  // it took no planning
  inexact_cycles_ = missing_cycles_ = 0;
  next_ = added;
  withholds_ = withholds_ && !comes_again_;
  ++plans_made_;
  Changed();
  FitPages();
  return added;
}

bool PlanLearner::any_pinned() const {
  return std::any_of(plans_.cycles().begin(), plans_.cycles().end(),
                     [](const auto& cycle) { return !cycle->plan->pins.empty(); });
}

bool PlanLearner::Improve(const CyclePlan& beaten, PlacedRequests better) {
  if (any_pinned()) return false;
  const auto at = std::find_if(plans_.cycles().begin(), plans_.cycles().end(),
                               [&](const auto& cycle) { return cycle->plan.get() == &beaten; });
  if (at == plans_.cycles().end()) return false;
  std::shared_ptr<const CyclePlan> plan = MakeCyclePlan(std::move(better), most_bytes());
  if (plan->layout.peak_bytes() > RoundUp(bytes_, alignment_)) return false;  // trimmed meanwhile
  const bool is_next = at->get() == next_;
  const PlanSet::Replacement replacement{(*at)->plan, plan};
  plans_.Replace({&replacement, 1});
  if (is_next) next_ = plans_.Find(plan->signature(), plan->requests.size());
  ++plans_improved_;
  Changed();
  return true;
}

size_t PlanLearner::Load(std::vector<PlacedRequests> cycles, const std::string& path,
                         size_t believed, std::string* ignored) {
  const size_t most = std::min(most_bytes(), believed);
  std::vector<std::shared_ptr<const CyclePlan>> plans;
  plans.reserve(cycles.size());
  size_t largest = std::max(plans_.peak_bytes(), plans_.loaded_peak_bytes());
  for (const PlacedRequests& cycle : cycles) {
    if (cycle.peak_bytes <= most) largest = std::max(largest, cycle.peak_bytes);
  }
  size_t room = plans_.most_bytes(largest);
  // Each is looked for among the others: many tiny ones of a file would take minutes.
  constexpr size_t kMostLoaded = 4096;
  for (PlacedRequests& cycle : cycles) {
    if (cycle.peak_bytes > most) {
      *ignored = absl::StrCat(OneLine(path), ": a plan of ", cycle.peak_bytes,
                              " bytes, expected at most ", most);
      continue;
    }
    std::shared_ptr<const CyclePlan> plan = MakeCyclePlan(std::move(cycle), most_bytes());
    const size_t bytes = sizeof(LearnedCycle) + plan->state_bytes();
    if (!plans.empty() && (!keeps_plans() || bytes > room || plans.size() == kMostLoaded)) {
      *ignored = absl::StrCat(OneLine(path), ": more plans than are kept");
      break;
    }
    room -= std::min(room, bytes);
    plans.push_back(std::move(plan));
  }
  // The last used one last, so that it is the next cycle's.
  std::set<std::pair<uint64_t, size_t>>
      loaded;  // of plans of the same requests the first one in the file stays
  for (auto plan = plans.rbegin(); plan != plans.rend(); ++plan) {
    const CyclePlan& its = **plan;
    loaded.emplace(its.signature(), its.requests.size());
    const LearnedCycle* const same = plans_.Find(its.signature(), its.requests.size());
    if (same != nullptr && SamePlaces(its, *same->plan)) {
      plans_.Use(same, cycles_, false);
      SetNext(same);
    } else {
      Install(std::move(*plan), /*loaded=*/true);
    }
  }
  return loaded.size();
}

}  // namespace tidepool
