// What is learned from cycles, and what the next ones are to follow: for one workspace, or for all slots
// of a ring.
//
// kFirstLoop and kOverTime learn the total of a cycle: how large pages are. kOptimized learns its requests
// and their lifetimes and makes a plan; kTraining keeps one for each cycle it meets. A cycle that leaves
// its plan is recorded from there on and learned at its end. Under kOptimized two missing cycles running
// make the plan anew; under kTraining one does, beside those that are kept. Cycles that never come again
// are not planned (planning_effort.h); what their requests need of the pages is learned instead. While planning waits
// such cycles need not be recorded at all, until one of them comes again.
//
// A cycle that repeats stops missing within three repetitions, whatever came before, as long as there is
// memory for plans and pages: nothing that was learned before may keep it from being learned. Where the cycles of many plans of
// late stayed away before these were worth making, it is planned after some more, up to 512 (planning_effort.h), and follows no
// plan until then, which is no miss; likewise up to 1,024 where kinds that begin so were given up together (crowds.h). One that
// goes on repeating is looked at anew now and then, so that pages come down to what it needs. Where lifetimes are other
// ones each time, so that a plan would be far larger than what is alive, there is none until they are regular again
// (loose_plans.h).
//
// It decides and holds no pages: who follows takes its Lesson. Making a plan takes long (a millisecond for
// hundreds of requests, seconds for a million), so it is apart: Observe() says that one is wanted,
// MakePlan() needs nothing that others use, Adopt() takes it.
//
// Threads: one at a time (a workspace's gate, a ring's lock), but MakePlan(), which may run beside
// everything. Cost of Observe(): tens of nanoseconds; in a few of the repetitions of a steady cycle,
// ever rarer, a look at each request. Errors: as said at each function; what was learned before stays
// then, and the next cycle is learned from again.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_PLAN_LEARNER_H_
#define TIDEPOOL_MEMORY_WORKSPACE_PLAN_LEARNER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tidepool/memory/mapped_vector.h"
#include "tidepool/memory/sync/std_sync.h"
#include "tidepool/memory/workspace/crowds.h"
#include "tidepool/memory/workspace/cycle_plan.h"
#include "tidepool/memory/workspace/cycle_recorder.h"
#include "tidepool/memory/workspace/ended_cycle.h"
#include "tidepool/memory/workspace/loose_plans.h"
#include "tidepool/memory/workspace/plan_in_making.h"
#include "tidepool/memory/workspace/plan_set.h"
#include "tidepool/memory/workspace/plan_trust.h"
#include "tidepool/memory/workspace/planning_effort.h"
#include "tidepool/memory/workspace/recent_peak.h"
#include "tidepool/memory/workspace/refused_request.h"
#include "tidepool/memory/workspace/request_slot.h"
#include "tidepool/memory/workspace/wanted_plan.h"
#include "tidepool/memory/workspace/workspace_config.h"

namespace tidepool {

// What is learned for a cycle that needs `needed` bytes: with the configuration's extra and bounds.
size_t LearnedSize(const WorkspaceConfig& config, size_t needed);

class PlanLearner {
 public:
  // `alignment` is that of requests, which the device may have raised. `window`: totals are the largest
  // of that many to twice as many cycles, and pages come down to them; 0: of all, and they do not.
  PlanLearner(const WorkspaceConfig& config, size_t alignment, int window = 0);

  // Plans that need far more than all others are as good as these, unless others begin alike: each cycle has what
  // those need that begin as it does. For a pool of workspaces. Before the first cycle.
  void KeepOutliers() noexcept { keeps_outliers_ = true; }
  // Who follows can do without writing down what nobody plans for, so lessons say when (Lesson::records). Before
  // the first cycle.
  void AllowUnrecorded() noexcept { allows_unrecorded_ = true; }
  // The cycles are of one thread of work, one behind the other: next() is the one that came next the last time. Before
  // the first cycle.
  void ExpectOrder() noexcept { expects_order_ = true; }
  // Plans and gaps do not make pages larger for cycles whose arrays fit into them: memory for pages is counted on elsewhere.
  // Between cycles.
  void KeepWithinPages() noexcept { keeps_within_pages_ = true; }
  // What the pages have from the start, the lower bound of what is learned.
  void SetInitialBytes(size_t bytes) noexcept;

  // When it says so, a plan is wanted: Adopt(it, MakePlan(it, cycle)) comes next, with null where
  // MakePlan threw. Until then no other one is wanted. Throws std::bad_alloc, where a cycle that was
  // observed counts as one, and nothing else is changed.
  std::optional<WantedPlan> Observe(const EndedCycle& cycle);
  // The same of a cycle that followed `followed` from its beginning, where that is one more of many alike and
  // nothing is to be decided: true then; else nothing is changed. A few instructions.
  bool ObserveSteady(const LearnedCycle* followed, uint32_t requests, uint64_t misses,
                     size_t bytes) noexcept {
    if (misses != 0) return false;
    if (requests > 0) {
      if (followed != steady_ || requests != last_shape_.requests || version_ != steady_version_ ||
          steady_left_ == 0) {
        return false;
      }
      --steady_left_;
      ++steady_watch_->repetitions;
      LearnedCycle& used = plans_.last_used();
      used.came_at = cycles_ + 1;
      used.used_at = cycles_ + 1;
      Follow(used);
      effort_.Served(requests);
    }
    ++cycles_;
    totals_.Add(bytes);
    return true;
  }
  bool ObserveSteady(const EndedCycle& cycle) noexcept {
    return cycle.current && cycle.followed != nullptr && !cycle.is_recorded() &&
           ObserveSteady(cycle.followed, cycle.made.count(), cycle.misses, cycle.bytes);
  }
  // Of the next cycles that do not know their lifetimes these are to be recorded, though they follow their plan.
  bool wants_lifetimes() const { return lifetimes_wanted_ > 0; }
  // Null: none that is better than what there is. Throws std::bad_alloc and what planning does.
  static MadePlans MakePlan(const WantedPlan& wanted, const EndedCycle& cycle);
  // The plan there is in the set for it; null: none. Throws std::bad_alloc, as if it were null.
  const LearnedCycle* Adopt(const WantedPlan& wanted, const MadePlans& made);
  // A better plan of the same requests was found for `beaten`. False when that is no longer there, or
  // others were made around it.
  bool Improve(const CyclePlan& beaten, PlacedRequests better);

  // The size from the totals seen so far, at once.
  void Initialize() noexcept;
  // Forgets plans that need more than the last one used; pages of what the last cycle, or what is recent,
  // needed, at once.
  void Trim(size_t last_cycle_bytes) noexcept;
  void Forget() noexcept;
  // Pages that have grown ahead of what grows come down to what was needed, where limits leave `room` for little more, and
  // grow ahead again only when as many cycles went by, twice as many each time. True when they did.
  bool GiveAhead(size_t room) noexcept;
  bool is_ahead() const { return ahead_.peak() > 0; }
  // Takes plans of others that need at most `believed` bytes as far as there is room, the last one
  // to be used first; the reason why others were not is in `ignored`. Pages are made for one when a
  // cycle has followed it. Returns how many. Throws std::bad_alloc; some may be there then.
  size_t Load(std::vector<PlacedRequests> cycles, const std::string& path, size_t believed,
              std::string* ignored);

  Lesson lesson() const {
    return {version_, bytes_, plans_.list(), withholds_ ? nullptr : next_, records_};
  }
  // That is expected. Null where cycles begin without a plan for now (plan_trust.h).
  const LearnedCycle* next() const {
    return withholds_ ? nullptr : expected_ != nullptr ? expected_ : next_;
  }
  // That the last cycle followed or learned. Null: none.
  const LearnedCycle* last() const { return next_; }
  uint64_t version() const { return version_; }
  size_t bytes() const { return bytes_; }
  const PlanSet& plans() const { return plans_; }
  // That a better plan would be of use for: nobody was made around another.
  bool any_pinned() const;
  // What would have served the cycles that no plan serves, where these come again; else 0. As pages it
  // becomes smaller by a quarter or not at all.
  size_t unplanned_bytes() const { return unplanned_bytes_; }
  // What pages may become: requests beyond are planned outside of them.
  size_t most_bytes() const;

  uint64_t plans_made() const { return plans_made_; }
  uint64_t plans_improved() const { return plans_improved_; }
  // Because they were far larger than what is alive in their cycles.
  uint64_t plans_given_up() const { return plans_given_up_; }
  // Why cycles have no plan, a line for each reason that holds now (Workspace::PlanReport). Throws std::bad_alloc.
  std::string Report() const;
  const PlanningEffort& effort() const { return effort_; }
  size_t state_bytes() const;

 private:
  // The sizes of all requests in order, as far as a hash tells them apart.
  struct Shape {
    uint64_t signature = 0;
    size_t requests = 0;
    friend bool operator==(const Shape&, const Shape&) = default;
  };

  bool keeps_plans() const { return config_.policy_learning == LearningPolicy::kTraining; }
  bool learns_lifetimes() const {
    return keeps_plans() || config_.policy_learning == LearningPolicy::kOptimized;
  }
  bool may_change() const {
    return bytes_ == 0 || config_.policy_spill == SpillPolicy::kReallocate;
  }
  bool is_off() const;

  static Shape ShapeOf(const EndedCycle& cycle);
  std::optional<WantedPlan> Want(WantedPlan::Kind kind);
  std::optional<WantedPlan> WantCycle(const EndedCycle& cycle, const Shape& shape);
  using Family = std::vector<std::shared_ptr<const CyclePlan>>;
  // Nothing: more than are planned together.
  std::optional<Family> FamilyOf(const EndedCycle& cycle, const LearnedCycle* own,
                                 uint64_t since) const;
  void Follow(LearnedCycle& used) noexcept {
    ++used.followed;
    ++used.running;
    if (used.debt == 0) return;
    --used.debt;
    effort_.WinBack();
  }
  // For how long its own cycle had not come.
  uint64_t AwayFor(const LearnedCycle& cycle) const {
    return cycles_ - std::max(cycle.came_at, cycle.seen_at);
  }
  void ComeBack(LearnedCycle& used, uint64_t away) noexcept;
  static size_t RequestsOf(const Family& family) noexcept;
  // Bytes that planning it together must save.
  static size_t LeastGainOf(const Family& family) noexcept;
  bool Affords(const Family& family, bool mends) noexcept;
  bool IsRemadeTooSoon(const LearnedCycle& same) const;
  static void NoteLives(const EndedCycle& cycle, LearnedCycle& same);
  static constexpr size_t kLeastPriceOfPages = 16, kMostPriceOfPages = 4096;
  static constexpr size_t kMostPriceOfMending = 256;
  size_t PriceOfMending() noexcept;
  void WantLifetimes(const Shape& shape) noexcept;
  void RecordAgain() noexcept;
  void DecideToRecord() noexcept;
  void ForgetGuesses() noexcept;
  void ForgetUnfollowed() noexcept;
  void WriteOff() noexcept;
  // Memory that is refused (plan_learner_refused.cc).
  std::optional<WantedPlan> ObserveRefused(const EndedCycle& cycle);
  void AdoptRefused(bool fits) noexcept;
  void AdoptFitted(const WantedPlan& wanted, const CyclePlan& plan) noexcept;
  bool IsRefused(const CyclePlan* plan) const;
  void ForgetRefused(const CyclePlan& longer) noexcept;
  std::optional<WantedPlan> UseExactPlan(const EndedCycle& cycle, const Shape& shape);
  std::optional<WantedPlan> Repeats(const EndedCycle& cycle, const Shape& shape, bool followed);
  void ExpectSteady(const EndedCycle& cycle) noexcept;
  // To find another plan takes as long as following it gains in so many requests.
  static constexpr uint32_t kRequestsForChange = 24;
  bool MayWithhold() const;
  static bool IsLittle(const EndedCycle& cycle);
  bool ObserveWithheld(const EndedCycle& cycle, const Shape& before, const Shape& shape,
                       bool followed);
  void LearnOrder(const Shape& before, const Shape& shape) noexcept;
  void ExpectBehind(const LearnedCycle& own) noexcept;
  void ExpectLonger(const LearnedCycle& followed) noexcept;
  void ForgetOld() noexcept;
  // Lifetimes that are other ones each time (plan_learner_lives.cc).
  bool MayGiveUp(const EndedCycle& cycle) const;
  bool IsLoose(size_t needed, size_t alive, const LearnedCycle* own) const;
  static void Look(const EndedCycle& cycle, size_t alignment, RepetitionWatch& watch);
  bool TakesLonger(const LearnedCycle& same) const;
  // Those of the cycle, and longer ones that were known before.
  static MappedVector<LifetimeBuffer> LongestLifetimes(const WantedPlan& wanted,
                                                       const EndedCycle& cycle);
  bool GivesUp(const EndedCycle& cycle, const Shape& shape, LearnedCycle& same, bool* to_end);
  void GiveUp(const LearnedCycle& own, size_t needed, size_t most_alive);
  bool GivesUpAlike(const WantedPlan& wanted, const NewPlans& made);
  void GiveUpAlike(size_t first_bytes, size_t needed, size_t most_alive, const CyclePlan* also);
  void GaveUp(size_t most_alive) noexcept;
  bool AlikeWereGivenUp(const EndedCycle& cycle, const Shape& shape);
  PlanList::Range BeginningWith(size_t first_bytes) const;
  // More kinds that begin alike than are planned together (plan_learner_crowds.cc).
  bool PlansInCrowd(const EndedCycle& cycle, const LearnedCycle& same);
  void GiveUpCrowd(size_t first_bytes);
  std::optional<WantedPlan> ObserveCrowd(const EndedCycle& cycle);
  std::optional<WantedPlan> ObserveLoose(const EndedCycle& cycle, LoosePlans::Kind& kind);
  std::optional<WantedPlan> PlanAgain(const EndedCycle& cycle, LoosePlans::Kind& kind);
  // How many cycles of a kind are looked at, one after the other.
  static int LooksOf(const RepetitionWatch& watch);
  void Use(const LearnedCycle* cycle, bool followed) noexcept;
  void SetNext(const LearnedCycle* next) noexcept;
  const LearnedCycle* Install(std::shared_ptr<const CyclePlan> plan, bool loaded = false);
  void Changed() noexcept;
  void ForgotSome() noexcept;

  // Sizes.
  size_t SizeFor(size_t needed) const;
  void SetBytes(size_t bytes) noexcept;
  void LearnTotal();
  void FollowTotals(bool may_shrink) noexcept;
  void AddReach(const EndedCycle& cycle, bool unserved) noexcept;
  size_t unplanned_need() const { return std::max(reach_.peak(), ahead_.peak()); }
  void SetUnplannedBytes() noexcept;
  void ForgetReach() noexcept;
  void FitPages() noexcept;

  const WorkspaceConfig config_;
  const size_t alignment_;
  const int window_;
  bool keeps_outliers_ = false;
  bool keeps_within_pages_ = false;
  size_t initial_bytes_ = 0;

  uint64_t version_ = 1;
  PlanInMaking<StdSync> in_making_;
  size_t bytes_ = 0;
  uint64_t cycles_ = 0;         // observed
  uint64_t cycles_before_ = 0;  // of them, when it last forgot
  PlanSet plans_;
  const LearnedCycle* next_ = nullptr;      // of plans_
  const LearnedCycle* expected_ = nullptr;  // likewise; null: next_
  bool expects_order_ = false;
  PlanTrust trust_;
  bool withholds_ = false;  // the next cycle begins without a plan
  PlanningEffort effort_;
  size_t served_ = 1 << 12;  // requests since a family was planned, about, and a few at first
  // The same for planning that only saves pages, and how many are to be served for each request that is planned: twice
  // as many each time that it has saved none.
  size_t served_for_pages_ = 0;
  size_t price_of_pages_ = kLeastPriceOfPages;
  size_t price_refused_ = 0;  // the last that was too high; 0: none since
  // How often a family was planned to end misses, half of it forgotten after some time, which the price of the next one grows by.
  uint32_t mended_ = 0;
  uint64_t mended_at_ = 0;  // cycles_
  uint64_t plans_made_ = 0;
  uint64_t plans_improved_ = 0;
  Crowds crowds_;
  bool any_refused_ = false;                              // of plans_, perhaps
  uint64_t refusals_to_skip_ = 0, refusals_skipped_ = 0;  // so many more; the last time
  size_t refused_room_ = SIZE_MAX;  // of the workspace, when that was the last time; cycles_
  uint64_t refused_at_ = 0;
  uint64_t room_from_ = 0,
           room_wait_ = 1;  // plans are fitted into it from then on; cycles_, and as above
  LoosePlans loose_;
  uint64_t plans_given_up_ = 0;
  // Cycles of loose plans, with no other without a plan in between and none that is looked at. After a few the next ones
  // are not recorded.
  static constexpr int kLooseBeforeUnrecorded = 4;
  int loose_cycles_ = 0;

  Shape last_shape_;
  bool comes_again_ = false;   // the last cycle was like the one before
  uint64_t came_running_ = 0;  // so many times
  int missing_cycles_ = 0;
  int inexact_cycles_ = 0;  // running, that a plan served which is larger than they need
  // Of cycles without a plan of their own, which another plan serves, as long as they are of one shape.
  Shape watched_;
  RepetitionWatch watch_;
  static constexpr int kCyclesWritten = 64;
  Shape wanted_shape_;
  int lifetimes_wanted_ = 0;  // in so many cycles more, unless one of that shape comes before
  // While planning waits, cycles without a plan are recorded in so many from a time on when one of them came again.
  static constexpr uint64_t kFewestCyclesOfRecording = 64;
  static constexpr uint64_t kMostCyclesOfRecording = 1 << 14;
  bool allows_unrecorded_ = false;
  bool records_ = true;
  uint64_t records_until_ = 0;  // cycles_
  uint64_t records_next_ = kFewestCyclesOfRecording;
  // What the last shape follows, as long as what was learned is of that version; nothing is to be decided in so
  // many cycles more of it.
  const LearnedCycle* steady_ = nullptr;
  uint64_t steady_version_ = 0;
  uint64_t steady_left_ = 0;
  RepetitionWatch* steady_watch_ = nullptr;

  static constexpr int kUnplannedWindow = 128;
  RecentPeak totals_;
  RecentNeed reach_{kUnplannedWindow};        // of cycles that no plan serves
  RecentNeed roomy_reach_{kUnplannedWindow};  // of those that pages of their reach did not serve
  RecentPeak ahead_{kUnplannedWindow};        // what grew, and more; 0: nothing did
  static constexpr uint64_t kFewestCyclesWithoutAhead = 256, kMostCyclesWithoutAhead = 1 << 20;
  uint64_t ahead_from_ = 0;  // cycles_
  uint64_t ahead_wait_ = kFewestCyclesWithoutAhead;
  size_t unplanned_bytes_ = 0;
  // Without pages for them from then on, as limits refused what such cycles lacked beside these; cycles_, and as ahead_wait_.
  uint64_t reach_from_ = 0;
  uint64_t reach_wait_ = kFewestCyclesWithoutAhead;
  int oversized_cycles_ = 0;  // running
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_PLAN_LEARNER_H_
