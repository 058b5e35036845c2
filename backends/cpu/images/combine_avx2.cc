// Called only where the processor has what this is compiled for.
#include "tidepool/backends/cpu/images/combine.h"

#if defined(__x86_64__)
#include "tidepool/backends/cpu/images/combine.inc"

namespace tidepool::cpu {

void CombineAvx2(const float* const* lines, const float* weights, int64_t count, float* z,
                 int64_t n) {
  CombineLines(lines, weights, count, z, n);
}

}  // namespace tidepool::cpu
#endif
