// A cycle while it is open: which plan it follows, and what is written down where it follows none.
//
// A cycle is expected to be like the one that the lesson names. When it leaves that plan it may turn out
// to be another one that was learned: under kTraining it goes on with the plan that has made the same
// requests so far. Who leaves all plans is recorded, or only hashed, where the lesson says that planning waits.
//
// Threads: whoever is inside the workspace's gate.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_CYCLE_FOLLOWER_H_
#define TIDEPOOL_MEMORY_WORKSPACE_CYCLE_FOLLOWER_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tidepool/memory/workspace/cycle_plan.h"
#include "tidepool/memory/workspace/cycle_recorder.h"
#include "tidepool/memory/workspace/plan_follower.h"
#include "tidepool/memory/workspace/plan_learner.h"
#include "tidepool/memory/workspace/request_slot.h"
#include "tidepool/memory/workspace/workspace_config.h"
#include "tidepool/memory/workspace/workspace_counters.h"

namespace tidepool {

class CycleFollower {
 public:
  // Both must live as long.
  CycleFollower(const WorkspaceConfig& config, WorkspaceCounters& counters);

  // ---- between cycles -----------------------------------------------------------------------
  // From the next cycle on. Throws std::bad_alloc, nothing changed.
  void Take(const Lesson& lesson);
  // Another cycle of those it knows is expected; `last` is the one that counters tell of until it comes.
  void Expect(const LearnedCycle* next, const LearnedCycle* last) noexcept;
  void Expect(const LearnedCycle* next) noexcept { Expect(next, next); }
  void Forget() noexcept;
  // A cycle that is to be expected when the first request is of `rounded` bytes: the one that was followed
  // last, else the one that was used last of those it may be. `peak_bytes`: of the largest of these. Null: it
  // is none of them.
  const LearnedCycle* BeginningWith(size_t rounded, size_t* peak_bytes) noexcept;
  // A cycle begins, in pages of `capacity` bytes. True when it begins as the one before did, which
  // followed its plan to the end, and nothing was prepared anew.
  bool BeginCycle(size_t capacity) noexcept {
    if (undisturbed_ && capacity == capacity_) return true;
    BeginAnew(capacity);
    return false;
  }

  // ---- in a cycle ---------------------------------------------------------------------------
  // The plan that is followed; null without one.
  const CyclePlan* plan() const { return followed_ != nullptr ? followed_->plan.get() : nullptr; }
  const LearnedCycle* followed() const { return followed_; }
  // Where its requests lie.
  PlanFollower& placed() { return placed_; }
  const PlanFollower& placed() const { return placed_; }
  const CycleRecorder& recorder() const { return recorder_; }
  // The plan that it began with is the one it follows, and nothing was recorded.
  bool undisturbed() const { return undisturbed_; }
  // From one plan to another, in this cycle.
  uint32_t changes() const { return undisturbed_ ? 0 : made_changes_; }
  // Below this, plans have their requests.
  size_t planned_end() const {
    return followed_ != nullptr ? followed_->plan->layout.peak_bytes() : left_end_;
  }

  // What lies where a plan had it is not the plan's any more.
  void LeftNothing() noexcept { left_end_ = 0; }

  // The next request is not what the plan says. kTraining: maybe it is what another plan says, or it
  // is smaller than planned; a cycle that begins like none follows none, and neither does one that has
  // missed for long. True when it was placed. Throws std::bad_alloc, nothing changed.
  bool PlaceOffPlan(const RequestView& made, size_t rounded, size_t* offset);

  // What lessons say: whether cycles without a plan are written down.
  bool records() const { return lesson_.records; }

  // There is memory to write one more request down, where that is done.
  bool has_reserved() const { return recorder_.has_reserved() || !recorder_.active(); }
  // Memory to write one more request down. Throws std::bad_alloc.
  void Reserve() {
    if (recorder_.active()) recorder_.Reserve();
  }
  // So that the requests of the plan before the one that is returned, each of which is as that says, need not be told of
  // behind the first `made`: they are written down when that is asked for, for which there is memory.
  size_t ReserveForPlan(size_t made) noexcept;
  // Request number `slot` was made.
  void Made(uint32_t slot, size_t rounded) noexcept {
    if (recorder_.active()) {
      CatchUp(slot);
      Record(slot, rounded);
    } else if (unrecorded_) {
      Hash(rounded);
    }
  }
  // The same of a cycle that follows no plan, and so will not change to any, before the first of which there is no memory.
  size_t reserved() const { return recorder_.active() ? recorder_.reserved() : SIZE_MAX; }
  void MadeWithoutPlan(uint32_t slot, size_t rounded) noexcept {
    if (recorder_.active()) recorder_.Add(slot, rounded);
  }
  // The same where the cycle is unrecorded.
  void Hash(size_t rounded) noexcept { recorder_.Hash(rounded); }
  // Nobody learns from the rest of the cycle, which follows no plan: when its requests are released need not be known.
  bool unrecorded() const { return unrecorded_; }
  // A cycle that has left its plan for good is unrecorded from here on, where the lesson says so.
  void StopRecording() noexcept {
    if (lesson_.records) return;
    unrecorded_ = true;
    recorder_.Stop();
  }
  // The rest of the cycle follows no plan. The last request was off the one it followed until now.
  void LeaveForGood(const RequestView& made) noexcept;
  // The same of one that was on it until now. Throws std::bad_alloc, nothing changed.
  void LeaveFromHere(const RequestView& made) {
    CatchUp(made.count());
    recorder_.Leave(*plan(), made);
    undisturbed_ = false;
    LeaveForGood(made);
  }

  // Memory for WriteDown(), whichever plan is followed. Throws std::bad_alloc.
  void ReserveToWriteDown();
  // Its lifetimes are to be known at its end, though it follows its plan.
  void WriteDown(const RequestView& made) noexcept {
    if (undisturbed_) recorder_.WriteDown(*plan(), made.count());
    undisturbed_ = false;
  }
  // All requests are made.
  void Finish(const RequestView& made) noexcept {
    CatchUp(made.count());
    recorder_.Finish(made);
    if (help_ == Help::kTaken) Judge(made.count());
  }
  // After Finish() of a workspace's cycle: what cycles were written into is given back when some running have followed
  // their plan to the end. True when it was.
  bool TrimUnused() noexcept {
    quiet_cycles_ = undisturbed_ ? quiet_cycles_ + 1 : 0;
    if (quiet_cycles_ != kQuietCycles) return false;
    recorder_.Trim();
    return true;
  }

  // Between cycles: memory that cycles of plans of so many requests do not need.
  void Trim(size_t requests) noexcept {
    undisturbed_ = false;
    recorder_.Trim();
    placed_.Trim(requests);
  }
  size_t state_bytes() const {
    return recorder_.state_bytes() + placed_.state_bytes() + change_count_ * sizeof(Change);
  }

 private:
  // Whether places of larger requests are tried for what no plan has: a longer sequence serves a shorter one so. Where
  // nothing is like anything that is planned they serve little, and the search costs more than it gains.
  enum class Help : uint8_t { kUnknown, kTaken, kNone };
  bool TriesLarger() noexcept;
  void Judge(uint32_t requests) noexcept;
  bool keeps_plans() const { return config_.policy_learning == LearningPolicy::kTraining; }
  void BeginAnew(size_t capacity) noexcept;
  void SetFollowed(const LearnedCycle* cycle) noexcept;
  void Count(const LearnedCycle* cycle) noexcept;
  void FollowFromHere(const LearnedCycle* cycle, const RequestView& made) noexcept;
  void Record(uint32_t slot, size_t rounded) noexcept;
  // What was requested by the plan since is written down.
  void CatchUp(uint32_t count) noexcept {
    if (recorder_.active() && recorder_.requests().size() < count) CatchUpSlowly(count);
  }
  void CatchUpSlowly(uint32_t count) noexcept;
  bool SwitchPlan(const RequestView& made, size_t rounded);
  bool SwitchTo(const LearnedCycle& cycle, const RequestView& made) noexcept;
  void ForgetChanges() noexcept;
  void MakeChanges() noexcept;

  const WorkspaceConfig& config_;
  WorkspaceCounters& counters_;

  Lesson lesson_;
  // What BeginningWith() has found last.
  struct Beginning {
    size_t rounded = 0;  // 0: nothing yet
    const LearnedCycle* latest = nullptr;
    size_t peak_bytes = 0;
  };
  Beginning beginning_;
  const LearnedCycle* followed_ =
      nullptr;           // of lesson_: what this or the next cycle is expected to be
  PlanFollower placed_;  // by its plan
  CycleRecorder recorder_;
  size_t capacity_ = 0;
  size_t left_end_ = 0;  // planned_end() of the plan that was followed before none
  // Of what has left a plan: who has made the same requests so far. Where only some requests ago is known who had, or
  // nothing is, it is who has made those of the plan that is followed.
  enum Alike : uint8_t { kAlikeIsKnown, kSomeAreKnown, kNothingIsKnown };
  PlanList::Range alike_;
  Alike known_of_alike_ = kAlikeIsKnown;
  // Plans that cycles have changed to, by the signature of what they had requested then and the next request: what begins
  // like hundreds of others need not be looked for among them each time. Of the lesson's plans; none where these are few,
  // else some for each, as kinds part from others more than once.
  struct Change {
    uint64_t signature = 0;
    const LearnedCycle* to = nullptr;
  };
  static constexpr size_t kFewestChanges = 1024, kMostChanges = size_t{1} << 14;
  std::unique_ptr<Change[]> changes_;
  size_t change_count_ = 0;
  bool undisturbed_ = false;  // since a cycle began with a plan
  bool unrecorded_ = false;
  static constexpr uint32_t kQuietCycles = 4;
  uint32_t quiet_cycles_ = 0;
  Help help_ = Help::kUnknown;  // in this cycle
  static constexpr int kMostTrust = 64;
  static constexpr int kTrustForOneServed = 4;
  static constexpr uint32_t kUntriedCycles = 64;
  int trust_ = kMostTrust;       // in larger ones; less each time that they served little
  uint32_t untried_ = 0;         // cycles since they were tried in spite of that
  uint32_t missed_ = 0;          // requests of this cycle
  uint32_t made_changes_ = 0;    // from one plan to another, likewise
  uint32_t most_looked_at_ = 0;  // of plans that it may change to
  uint32_t first_miss_ = 0;
  uint32_t last_miss_ = 0;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_CYCLE_FOLLOWER_H_
