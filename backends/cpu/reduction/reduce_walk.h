// Runs the loops of one reduction over a planned array, on several threads.
#ifndef TIDEPOOL_BACKENDS_CPU_REDUCTION_REDUCE_WALK_H_
#define TIDEPOOL_BACKENDS_CPU_REDUCTION_REDUCE_WALK_H_

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "tidepool/backends/cpu/reduction/reduce_loops.h"
#include "tidepool/backends/cpu/reduction/reduce_plan.h"
#include "tidepool/ndarray/kernel/threads.h"

namespace tidepool::cpu {

// partials[0..count) are of the outputs begin..begin + count of the plan's order (kept axes, then a
// kept inner axis); in z they lie at `z_offset` and every `z_stride` elements.
using FinishReduction = absl::FunctionRef<void(const void* partials, int64_t begin, int64_t count,
                                               int64_t z_offset, int64_t z_stride)>;

// Bytes of scratch that ReduceOver needs.
size_t ReduceScratchBytes(const ReducePlan& plan, const ReduceLoops& loops);

// `stats`: one of `stat_bytes` per output in the plan's order, or null. What is added to what depends
// on the plan alone, not on `threads`.
void ReduceOver(const ReducePlan& plan, const ReduceLoops& loops, const void* x,
                int64_t element_bytes, const void* stats, int64_t stat_bytes, void* scratch,
                Threads threads, FinishReduction finish);

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_REDUCTION_REDUCE_WALK_H_
