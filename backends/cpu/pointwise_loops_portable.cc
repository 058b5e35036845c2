#include "tidepool/backends/cpu/pointwise_loops.h"

#include "tidepool/backends/cpu/arithmetic_loops.inc"
#include "tidepool/backends/cpu/conversion_loops.inc"
#include "tidepool/backends/cpu/element_words.inc"
#include "tidepool/backends/cpu/float_functions.inc"
#include "tidepool/backends/cpu/function_loops.inc"

namespace tidepool::cpu {

const PointwiseLoops kPortablePointwise = {"portable", &arithmetic_loops, &function_loops,
                                           &conversion_loops};

}  // namespace tidepool::cpu
