// Compiled for InstructionSet::kAvx512; called only where the processor has that.
#include "tidepool/backends/cpu/pointwise_loops.h"

#if defined(__x86_64__)
// In this order: each needs those above it.
// clang-format off
#include "tidepool/backends/cpu/float_functions.inc"
#include "tidepool/backends/cpu/element_words.inc"
#include "tidepool/backends/cpu/arithmetic_loops.inc"
#include "tidepool/backends/cpu/function_loops.inc"
#include "tidepool/backends/cpu/conversion_loops.inc"
// clang-format on

namespace tidepool::cpu {

const PointwiseLoops kAvx512Pointwise = {"avx512", &arithmetic_loops, &function_loops,
                                         &conversion_loops};

}  // namespace tidepool::cpu
#endif
