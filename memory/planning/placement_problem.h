// Static memory placement: a cycle of a workload is a list of buffers, each with a size and a
// lifetime. A placement gives each buffer an offset in one arena so that buffers alive at the same
// time do not share bytes; the aim is the smallest peak. (The problem is NP-hard: it is "dynamic
// storage allocation", Garey and Johnson SR2.)
//
// Here: the problem, its checks, its lower bound and the form of an answer. Planners:
// greedy_planner.h (microseconds), search_planner.h (anytime). Check of an answer:
// plan_validator.h.
//
// Threads: values and pure functions.
#ifndef TIDEPOOL_MEMORY_PLANNING_PLACEMENT_PROBLEM_H_
#define TIDEPOOL_MEMORY_PLANNING_PLACEMENT_PROBLEM_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace tidepool {

// Alive in the half-open interval [lower, upper) of any clock that only counts; `size` in bytes.
struct LifetimeBuffer {
  int64_t lower = 0;
  int64_t upper = 0;
  int64_t size = 0;
};

// offsets[i] belongs to buffer i and is a multiple of the alignment. `peak` is the largest
// offset + size (size rounded up to the alignment), `lower_bound` what no placement can go below.
// All in bytes.
struct Placement {
  std::vector<int64_t> offsets;
  int64_t peak = 0;
  int64_t lower_bound = 0;
};

// Throws Error(kInvalidArgument) naming the first buffer that is not alive for at least one tick
// or has a negative size, an alignment below 1, or sizes whose rounded sum exceeds 2^62.
void CheckPlacementProblem(absl::Span<const LifetimeBuffer> buffers, int64_t alignment);

// `size` rounded up to the next multiple of `alignment`.
int64_t AlignedSize(int64_t size, int64_t alignment);

// The largest sum of sizes, each rounded up to `alignment`, that are alive at one time; 0 for no
// buffers. Throws like CheckPlacementProblem. O(n log n); where buffer i begins at i, as in cycles, without
// an allocation, O(n + n * n / 4096).
int64_t LiveLowerBound(absl::Span<const LifetimeBuffer> buffers, int64_t alignment);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PLANNING_PLACEMENT_PROBLEM_H_
