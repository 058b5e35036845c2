// Called only where the processor has what this is compiled for.
#include "tidepool/backends/cpu/images/combine.h"

#if defined(__x86_64__)
#include "tidepool/backends/cpu/images/combine.inc"

namespace tidepool::cpu {

const CombineLoops<float> kAvx2CombineLoops = kLoops<float>;

}  // namespace tidepool::cpu
#endif
