// Memory placement in microseconds.
//
// A portfolio: the buffers are put one after the other into the lowest gap that holds them (or the
// tightest), in several orders: by size, by size times lifetime, by start, by end from the back,
// by lifetime, by how crowded their time is. The best plan wins. What remains of the work allowance
// goes into repeating the best order with the buffers that reach the peak moved to the front. The
// planner stops as soon as a plan reaches the lower bound. More than 2,000 buffers are planned in the
// order of time first (online_planner.h), which takes O(n log n); the orders after it are given up when
// they take too long, so that cycles of a million requests can be planned as well.
//
//   Placement plan = PlanGreedy(buffers, /*alignment=*/64);
//   char* address = arena + plan.offsets[i];
//
// Sources: Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference" (2020)
// for greedy by size; Lee et al., "On-Device Neural Net Inference with Mobile GPUs" (2019);
// Moffitt, "MiniMalloc" (ASPLOS 2023) for orders by crowdedness; Joslin and Clements, "Squeaky
// Wheel Optimization" (1999) for the repetition.
#ifndef TIDEPOOL_MEMORY_PLANNING_GREEDY_PLANNER_H_
#define TIDEPOOL_MEMORY_PLANNING_GREEDY_PLANNER_H_

#include <cstdint>

#include "absl/types/span.h"
#include "tidepool/memory/planning/placement_problem.h"

namespace tidepool {

// A valid placement; buffers of size 0 get offset 0. Deterministic: work is limited by a count,
// not by a clock. Throws what CheckPlacementProblem throws. At most 1 ms for 500 buffers, O(n)
// memory. Any thread.
Placement PlanGreedy(absl::Span<const LifetimeBuffer> buffers, int64_t alignment);

// The same, which goes on repeating for up to 100 times as long, at most 100 ms for 500 buffers, while its peak is more
// than `capacity` bytes and could be less.
Placement PlanGreedyWithin(absl::Span<const LifetimeBuffer> buffers, int64_t alignment,
                           int64_t capacity);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PLANNING_GREEDY_PLANNER_H_
