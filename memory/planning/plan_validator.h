// Checks a placement against its problem. Shares no code with the planners, so that a planner's
// error cannot hide in a common helper.
#ifndef TIDEPOOL_MEMORY_PLANNING_PLAN_VALIDATOR_H_
#define TIDEPOOL_MEMORY_PLANNING_PLAN_VALIDATOR_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/types/span.h"
#include "tidepool/memory/planning/placement_problem.h"

namespace tidepool {

// Nothing if `placement` is right, else one line about the first violation found: an `alignment`
// below 1, a wrong number of offsets, an offset that is negative or not a multiple of `alignment`, two buffers that are
// alive at the same time and share bytes, or a peak that is not the largest offset + size (sizes
// rounded up to `alignment`). Buffers of size 0 share bytes with none. Sweep over time,
// O(n log n). Does not throw. Any thread.
std::optional<std::string> FindPlacementViolation(absl::Span<const LifetimeBuffer> buffers,
                                                  int64_t alignment, const Placement& placement);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PLANNING_PLAN_VALIDATOR_H_
