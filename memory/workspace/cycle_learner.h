// What a workspace learns from its cycles, and which plan the next one follows.
//
// kFirstLoop and kOverTime learn the total of a cycle: how large the pages are. kOptimized learns its
// requests and their lifetimes and makes a plan; kTraining keeps one for each cycle it meets. A cycle
// that leaves its plan is recorded from there on and learned at its end. Under kOptimized two missing
// cycles running make the plan anew; under kTraining one does, beside those that are kept.
//
// A cycle that repeats stops missing within three repetitions, whatever came before, as long as
// there is memory for plans and pages: nothing that was learned before may keep it from being learned.
//
// Threads: whoever is inside the workspace's gate. Errors: OutOfMemoryError and std::bad_alloc, as said
// at each function; what was learned before stays then, and the next cycle is learned from again.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_CYCLE_LEARNER_H_
#define TIDEPOOL_MEMORY_WORKSPACE_CYCLE_LEARNER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tidepool/memory/planning/background_planner.h"
#include "tidepool/memory/workspace/cycle_plan.h"
#include "tidepool/memory/workspace/cycle_recorder.h"
#include "tidepool/memory/workspace/plan_follower.h"
#include "tidepool/memory/workspace/plan_set.h"
#include "tidepool/memory/workspace/workspace_spills.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_config.h"
#include "tidepool/memory/workspace/workspace_counters.h"
#include "tidepool/memory/workspace/workspace_pages.h"

namespace tidepool {

class CycleLearner {
 public:
  // All of these must live as long. `pages` and `spills` are grown and trimmed as learning has it.
  CycleLearner(const WorkspaceConfig& config, size_t alignment, WorkspacePages& pages,
               WorkspaceSpills& spills, WorkspaceCounters& counters);

  // ---- in a cycle ---------------------------------------------------------------------------
  // The plan that is followed; null without one.
  const CyclePlan* plan() const { return learned_ != nullptr ? learned_->plan.get() : nullptr; }
  PlanFollower& follower() { return follower_; }
  const PlanFollower& follower() const { return follower_; }
  CycleRecorder& recorder() { return recorder_; }
  const CycleRecorder& recorder() const { return recorder_; }

  // A cycle begins: expected to be like the last one that had a plan, else recorded.
  void BeginCycle() noexcept;
  // The next request is not what the plan says. kTraining: maybe it is what another plan says, or it
  // is smaller than planned; a cycle that begins like none follows none, and its requests go one
  // behind the other. True when it was placed. Throws std::bad_alloc, nothing changed.
  bool PlaceOffPlan(const RequestView& made, size_t rounded, size_t* offset);

  // ---- between cycles -----------------------------------------------------------------------
  struct CycleSummary {
    uint32_t requests;
    uint64_t misses;  // requests a plan existed for but could not be followed
    size_t bytes;     // sum of the requests
    size_t cursor;    // highest address handed out
  };
  // A cycle has ended well, and nothing of it is alive.
  void Learn(const CycleSummary& cycle);
  // The size from the totals seen so far, at once.
  void Initialize();
  // Forgets plans that need more than the last one used, and gives back the pages they needed.
  void Trim();
  void Forget() noexcept;

  const PlanSet& plans() const { return plans_; }
  // Takes plans as far as they fit, the last one to be used first; the reason why others were not is
  // appended to `ignored`. Returns how many. Throws before anything is changed.
  size_t Load(std::vector<PlacedRequests> cycles, const std::string& path, std::string* ignored);
  // Follows what another learner has learned: pages of `bytes`, and the plan; null: none.
  void Adopt(std::shared_ptr<const CyclePlan> plan, size_t bytes);

  // A search for a better plan, on another thread; null when there is none.
  std::shared_ptr<PlanTicket> search() const { return search_; }
  // Takes what it found.
  void AdoptBetterPlan() noexcept;

  // Highest address that any plan reaches.
  size_t planned_bytes() const { return plans_.peak_bytes(); }
  size_t state_bytes() const;
  // Raised when plans come, go or change.
  uint64_t version() const { return version_; }

 private:
  bool keeps_learning() const { return config_.policy_learning == LearningPolicy::kTraining; }
  bool learns_lifetimes() const {
    return keeps_learning() || config_.policy_learning == LearningPolicy::kOptimized;
  }
  bool serves_from_pages() const {
    return config_.debug_mode == DebugMode::kDisabled &&
           config_.policy_allocation != AllocationPolicy::kAlways;
  }

  void FollowFromHere(LearnedCycle* cycle, const RequestView& made) noexcept;
  void FollowNext(LearnedCycle* cycle) noexcept;
  bool SwitchPlan(const RequestView& made, size_t rounded);
  void LearnTotal(size_t bytes);
  void LearnPlan(const CycleSummary& cycle);
  void UseExactPlan(const CycleSummary& cycle);
  void RepeatedExactly();
  void MakePlan();
  void MakePlanOfBeginning(uint32_t requests);
  void Install(PlacedRequests placed);
  void Grow(size_t needed);
  void PlansChanged() noexcept;
  void ShrinkToPlans();
  void SearchBetterPlan() noexcept;
  bool any_pinned() const;

  const WorkspaceConfig& config_;
  const size_t alignment_;
  WorkspacePages& pages_;
  WorkspaceSpills& spills_;
  WorkspaceCounters& counters_;

  PlanSet plans_;
  LearnedCycle* learned_ = nullptr;  // of plans_: what this or the next cycle is expected to be
  PlanFollower follower_;            // of its plan
  CycleRecorder recorder_;
  int missing_cycles_ = 0;
  int inexact_cycles_ = 0;   // running, that a plan served which is larger than they need
  int repetitions_ = 0;      // running, of learned_ exactly
  size_t needed_size_ = 0;   // what the plans need; pages beyond it are given back
  int oversized_cycles_ = 0;
  uint64_t cycles_learned_from_ = 0;
  uint64_t version_ = 0;
  std::shared_ptr<PlanTicket> search_;              // for a better plan, on another thread; or null
  std::shared_ptr<const CyclePlan> searched_plan_;  // that it is to beat
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_CYCLE_LEARNER_H_
