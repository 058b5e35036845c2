// The cycles a workspace has learned: one under kOptimized, several under kTraining.
//
// Each is known by the sizes of its requests in order. A cycle that turns out to be another one
// than was expected is recognised by what it has requested so far.
//
// What is kept: at most kMostPlans plans. Those that need a quarter more than all others (outliers:
// one huge batch) are kept only while they are used: kPatience cycles without them and they are
// forgotten. Each use doubles the patience of a plan up to kMostPatience, and what comes back after
// it was forgotten has four times the patience, so that what is rare but regular stays. Plans that are
// larger than all that were used in the last kMostUnused cycles are forgotten whatever the others need.
//
// Threads: one at a time.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_PLAN_SET_H_
#define TIDEPOOL_MEMORY_WORKSPACE_PLAN_SET_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "tidepool/memory/workspace/cycle_plan.h"

namespace tidepool {

// A plan and how it was used. Counted in cycles that had ended.
struct LearnedCycle {
  std::shared_ptr<const CyclePlan> plan;
  uint64_t learned_at = 0;
  uint64_t used_at = 0;
  uint64_t patience = 0;
  uint32_t remade = 0;  // how many plans of the same requests it replaced
};

class PlanSet {
 public:
  static constexpr size_t kMostPlans = 128;
  static constexpr uint64_t kPatience = 3;  // cycles
  static constexpr uint64_t kMostPatience = 192;
  static constexpr uint64_t kMostUnused = 256;

  explicit PlanSet(size_t most_plans = kMostPlans) : most_plans_(most_plans) {}

  bool empty() const { return cycles_.empty(); }
  size_t size() const { return cycles_.size(); }
  // Most recently used first, as of their last Use().
  absl::Span<const std::unique_ptr<LearnedCycle>> cycles() const { return cycles_; }
  size_t peak_bytes() const;   // of the largest plan: what the pages must hold
  size_t most_requests() const;
  size_t state_bytes() const;  // heap memory

  bool Holds(const LearnedCycle* cycle) const;
  // The cycle with exactly these requests; null if there is none.
  LearnedCycle* Find(uint64_t signature, size_t num_requests) const;
  // Takes the place of one with the same requests; evicts the least recently used one when full.
  // Throws std::bad_alloc, nothing changed.
  LearnedCycle* Add(std::shared_ptr<const CyclePlan> plan, uint64_t now);
  // `cycle` was the last one, and was followed to its end when `followed`.
  void Use(LearnedCycle* cycle, uint64_t now, bool followed);
  // Forgets outliers whose patience is over. True if there were any.
  bool ForgetOutliers(uint64_t now);
  // Forgets those that need more than `bytes` of pages.
  void ForgetLarger(size_t bytes);
  void Clear();

 private:
  // What was forgotten, and how patient to be if it comes back.
  struct Forgotten {
    uint64_t signature;
    uint64_t patience;
  };
  void Remember(const LearnedCycle& cycle);

  size_t most_plans_;
  std::vector<std::unique_ptr<LearnedCycle>> cycles_;
  std::vector<Forgotten> forgotten_;  // the latest last
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_PLAN_SET_H_
