// Problems for the planners' tests and benchmarks.
#ifndef TIDEPOOL_MEMORY_PLANNING_PLANNING_TESTING_H_
#define TIDEPOOL_MEMORY_PLANNING_PLANNING_TESTING_H_

#include <cstdint>
#include <random>
#include <vector>

#include "absl/types/span.h"
#include "tidepool/memory/planning/placement_problem.h"

namespace tidepool {

// `count` buffers with lifetimes of up to `longest` ticks in [0, horizon) and sizes 0 to
// `largest`.
std::vector<LifetimeBuffer> RandomProblem(std::mt19937_64& random, int count, int64_t horizon,
                                          int64_t longest, int64_t largest);

// About `count` buffers that fill `height` at all times: some end together and others of the same
// total size follow. Whether they fit in `height` is a matter of luck.
std::vector<LifetimeBuffer> TightProblem(std::mt19937_64& random, int count, int64_t height);

// The buffers of one training step of a chain of `layers`: an activation of each layer lives from
// its forward to its backward step, scratch in each step, a gradient of the activation from one
// backward step to the next.
std::vector<LifetimeBuffer> TrainingTrace(std::mt19937_64& random, int layers);

// The smallest peak of any placement, in bytes, by trying every order of placing each buffer at
// its lowest free offset, in ascending order of offsets: a placement of least peak can be slid down
// into such a form. For at most 8 buffers.
int64_t ExhaustiveOptimum(absl::Span<const LifetimeBuffer> buffers, int64_t alignment);

// Whether the problem fits `height` (at most 100), by following all arrangements of the buffers
// alive through time. For any number of buffers and heights of about 10.
bool FitsInHeight(absl::Span<const LifetimeBuffer> buffers, int64_t height);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PLANNING_PLANNING_TESTING_H_
