#include "tidepool/backends/cpu/images/combine.h"

#include "tidepool/backends/cpu/images/combine.inc"
#include "tidepool/backends/cpu/instruction_set.h"

namespace tidepool::cpu {

void CombinePortable(const float* const* lines, const float* weights, int64_t count, float* z,
                     int64_t n) {
  CombineLines(lines, weights, count, z, n);
}

void CombineF64(const double* const* lines, const double* weights, int64_t count, double* z,
                int64_t n) {
  CombineLines(lines, weights, count, z, n);
}

Combine<float> CombineF32() {
#if defined(__x86_64__)
  if (BestInstructionSet() >= InstructionSet::kAvx512) return &CombineAvx512;
  if (BestInstructionSet() >= InstructionSet::kAvx2) return &CombineAvx2;
#endif
  return &CombinePortable;
}

}  // namespace tidepool::cpu
