// What spillables (spillables.h) made of cycles that repeat, of one object or of all of the process.
//
// Threads: any. Cost: an addition or two for each event.
#ifndef TIDEPOOL_MEMORY_SPILL_PLAN_COUNTERS_H_
#define TIDEPOOL_MEMORY_SPILL_PLAN_COUNTERS_H_

#include <cstdint>
#include <string>

namespace tidepool {

// Ever.
struct SpillPlanCounters {
  int64_t cycles = 0;           // that ended
  int64_t followed_cycles = 0;  // of these: went by the plan from their beginning to their end
  // That had more uses than are recorded, and are not learned; counted as soon as that is seen.
  int64_t unrecorded_cycles = 0;
  int64_t followed_uses = 0;  // that came as the plan said, while it was followed
  // Cycles that left the plan: what was used was something else than expected. Least recent use decides for the rest of them.
  int64_t mispredictions = 0;
  // Read from the file before their use, as the plan said; of these: there when they were used; waited for; not used after all.
  int64_t ahead = 0, ahead_bytes = 0, in_time = 0, late = 0, in_vain = 0;
  // Written to the file before they had to go; of these: pinned before the write was done, which was given up.
  int64_t early_writes = 0, early_bytes = 0, early_in_vain = 0;

  // A line for people; empty where no cycle has ended.
  std::string ToString() const;
};

// Of all of the process since it began, those that are gone included.
SpillPlanCounters TotalSpillPlanCounters() noexcept;

namespace internal {

// Adds `change` to `*counters`, and to those of all.
void CountSpillPlan(SpillPlanCounters* counters, const SpillPlanCounters& change) noexcept;

}  // namespace internal
}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_SPILL_PLAN_COUNTERS_H_
