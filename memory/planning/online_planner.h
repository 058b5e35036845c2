// Placement of any number of buffers in the order of time: what an allocator that sees one request after
// the other would do, with the tightest gap for each, then the same from the end of time to its
// beginning, and the better one of both.
//
// Not the best plan, but one in O(n log n): the first that planners of very many buffers start from, and
// the one that is left when others would take too long.
#ifndef TIDEPOOL_MEMORY_PLANNING_ONLINE_PLANNER_H_
#define TIDEPOOL_MEMORY_PLANNING_ONLINE_PLANNER_H_

#include <cstdint>

#include "absl/types/span.h"
#include "tidepool/memory/mapped_vector.h"
#include "tidepool/memory/planning/sections.h"

namespace tidepool {

struct ItemOffsets {
  MappedVector<int64_t> offsets;  // of problem.items, in units
  int64_t peak = 0;
};

// `given`: offsets of items that have their place, kNoOffset for the others; or empty. What is given
// keeps its place from the beginning of time until it dies: nothing else is put there before.
inline constexpr int64_t kNoOffset = -1;
ItemOffsets PlanOnline(const SectionedProblem& problem, absl::Span<const int64_t> given = {});

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PLANNING_ONLINE_PLANNER_H_
