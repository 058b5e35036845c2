#include "tidepool/backends/cpu/pointwise_loops.h"

// In this order: each needs those above it.
// clang-format off
#include "tidepool/backends/cpu/float_functions.inc"
#include "tidepool/backends/cpu/element_words.inc"
#include "tidepool/backends/cpu/arithmetic_loops.inc"
#include "tidepool/backends/cpu/function_loops.inc"
#include "tidepool/backends/cpu/conversion_loops.inc"
// clang-format on

namespace tidepool::cpu {

const PointwiseLoops kPortablePointwise = {"portable", &arithmetic_loops, &function_loops,
                                           &conversion_loops};

}  // namespace tidepool::cpu
