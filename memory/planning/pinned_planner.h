// Memory placement around buffers that have their place already.
//
// Two cycles that begin alike are told apart only after some requests; whatever is alive then must
// be where both plans have it. The second plan is made around it.
#ifndef TIDEPOOL_MEMORY_PLANNING_PINNED_PLANNER_H_
#define TIDEPOOL_MEMORY_PLANNING_PINNED_PLANNER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "tidepool/memory/planning/placement_problem.h"

namespace tidepool {

struct PinnedBuffer {
  size_t buffer;   // its number in the list
  int64_t offset;  // in bytes
};

// As PlanGreedy, with the offsets of `pinned` given; without any it is PlanGreedy. First fit in a
// few orders; the peak may be far above the lower bound when pins are.
//
// Required of pins: each names a buffer of the list, no buffer is pinned twice, offsets are multiples
// of the alignment from 0 to below 2^62, and two pinned buffers whose lifetimes meet (half open, as
// in the list) share no byte, their sizes rounded up to the alignment. In any order. The pin of a
// buffer of 0 bytes is in nobody's way, and such buffers get offset 0. Whether it holds is the
// caller's to know: pins that were apart in one list need not be in another, where a buffer lives
// longer.
//
// Throws Error(kInvalidArgument), naming the buffers, where that does not hold, what
// CheckPlacementProblem throws, and std::bad_alloc. O(n) memory; time as PlanGreedy.
Placement PlanAround(absl::Span<const LifetimeBuffer> buffers,
                     absl::Span<const PinnedBuffer> pinned, int64_t alignment);

// Those of `pinned` that PlanAround would take together: of two that overlap while both are alive, the
// one that is born later is left out (of two of one moment, the higher number). In the order of
// `pinned`. For pins that were made for other lifetimes than `buffers` have now. O(n log n). Pins of no
// buffer, and second ones of a buffer, stay where they are in nobody's way, for PlanAround to refuse.
std::vector<PinnedBuffer> PinsThatAreApart(absl::Span<const LifetimeBuffer> buffers,
                                           absl::Span<const PinnedBuffer> pinned,
                                           int64_t alignment);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PLANNING_PINNED_PLANNER_H_
