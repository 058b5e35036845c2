// For tests of the learner: who makes cycles as a workspace or a ring's slot would, without memory.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_PLAN_PLAYER_H_
#define TIDEPOOL_MEMORY_WORKSPACE_PLAN_PLAYER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "tidepool/memory/workspace/plan_learner.h"

namespace tidepool {

// One request: its size, and before which it is released; 0: it lives to the end.
struct Request {
  size_t bytes;
  uint32_t until = 0;
};

// Plays the part of a workspace or a slot: cycles follow what was learned.
class Player {
 public:
  explicit Player(const WorkspaceConfig& config, int window = 0, size_t initial = 0)
      : learner_(config, 64, window) {
    learner_.SetInitialBytes(initial);
  }

  // Also what follows its plan is written down, which is never taken for one more of many alike.
  void RecordAll() { records_all_ = true; }

  // From one plan to another, of cycles that are not what was expected.
  void MakeChanges(uint32_t changes) { changes_ = changes; }

  // Cycles without a plan are only hashed where the lesson says so.
  void AllowUnrecorded() { learner_.AllowUnrecorded(); }

  PlanLearner& learner() { return learner_; }
  const PlanLearner* operator->() const { return &learner_; }
  uint64_t misses() const { return misses_; }
  // How often something was planned, in vain or not.
  uint64_t tried() const { return tried_; }
  // Of how many requests, those of the kinds that are planned together included.
  uint64_t planned() const { return planned_; }

  // A cycle that was handed over, or has ended; it is learned from by Learn().
  void Make(const std::vector<Request>& requests) {
    const auto count = static_cast<uint32_t>(requests.size());
    slots_.clear();
    for (const Request& request : requests) {
      slots_.push_back(RequestSlot::Released(request.until == 0 ? count : request.until));
    }
    lesson_ = learner_.lesson();
    cycle_ = {};
    cycle_.made = {{slots_.data(), slots_.size()}, nullptr};
    cycle_.recorder = &recorder_;
    cycle_.followed = lesson_.next;
    // The plan that has the same requests, as a workspace would find it; not where cycles begin without one.
    for (uint32_t i = 0; cycle_.followed != nullptr && i < lesson_.plans->size(); ++i) {
      if (Follows((*lesson_.plans)[i], requests)) cycle_.followed = &(*lesson_.plans)[i];
    }
    cycle_.changes = cycle_.followed != lesson_.next ? changes_ : 0;
    const bool follows = cycle_.followed != nullptr && Follows(*cycle_.followed, requests);
    if (cycle_.followed != nullptr && !follows) {
      cycle_.misses = 1;
      ++misses_;
    }
    if (cycle_.followed == nullptr && !lesson_.records) return MakeUnrecorded(requests);
    const bool records = !follows || records_all_;
    recorder_.Begin(records);
    for (uint32_t slot = 0; slot < count; ++slot) {
      cycle_.bytes += requests[slot].bytes;
      if (!records) continue;
      recorder_.Reserve();
      recorder_.Add(slot, requests[slot].bytes);
    }
    recorder_.Finish(cycle_.made);
    cycle_.reach = cycle_.cursor = cycle_.bytes;
  }
  EndedCycle& cycle() { return cycle_; }
  // The plan did serve what it does not list: nothing was recorded.
  void Forgive() { recorder_.Begin(false); }

  void Learn() {
    if (const std::optional<WantedPlan> wanted = learner_.Observe(cycle_)) {
      ++tried_;
      planned_ += cycle_.made.count();
      for (const auto& member : wanted->family) planned_ += member->requests.size();
      learner_.Adopt(*wanted, PlanLearner::MakePlan(*wanted, cycle_));
    }
  }
  void Run(const std::vector<Request>& requests) {
    Make(requests);
    Learn();
  }
  void Total(size_t bytes) {
    slots_.clear();
    cycle_ = {};
    recorder_.Begin(false);
    recorder_.Finish({});
    cycle_.recorder = &recorder_;
    cycle_.bytes = bytes;
    Learn();
  }

 private:
  void MakeUnrecorded(const std::vector<Request>& requests) {
    slots_.clear();
    cycle_.made = {{}, nullptr, static_cast<uint32_t>(requests.size())};
    recorder_.Begin(false);
    for (const Request& request : requests) {
      cycle_.bytes += request.bytes;
      recorder_.Hash(request.bytes);
    }
    recorder_.Finish(cycle_.made);
    cycle_.reach = cycle_.cursor = cycle_.bytes;
  }
  static bool Follows(const LearnedCycle& learned, const std::vector<Request>& requests) {
    const CyclePlan& plan = *learned.plan;
    if (plan.requests.size() != requests.size()) return false;
    for (size_t i = 0; i < requests.size(); ++i) {
      const auto until =
          static_cast<int64_t>(requests[i].until == 0 ? requests.size() : requests[i].until);
      if (plan.requests[i].size != static_cast<int64_t>(requests[i].bytes) ||
          plan.requests[i].upper < until) {
        return false;
      }
    }
    return true;
  }

  PlanLearner learner_;
  Lesson lesson_;
  std::vector<RequestSlot> slots_;
  CycleRecorder recorder_;
  EndedCycle cycle_;
  uint64_t misses_ = 0;
  uint64_t tried_ = 0;
  uint64_t planned_ = 0;
  uint32_t changes_ = 1;
  bool records_all_ = false;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_PLAN_PLAYER_H_
