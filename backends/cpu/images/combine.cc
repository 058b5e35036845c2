#include "tidepool/backends/cpu/images/combine.h"

#include "tidepool/backends/cpu/images/combine.inc"
#include "tidepool/backends/cpu/instruction_set.h"

namespace tidepool::cpu {

const CombineLoops<double> kCombineLoopsF64 = kLoops<double>;
const CombineLoops<float> kPortableCombineLoops = kLoops<float>;

const CombineLoops<float>& CombineLoopsF32() {
#if defined(__x86_64__)
  if (BestInstructionSet() >= InstructionSet::kAvx512) return kAvx512CombineLoops;
  if (BestInstructionSet() >= InstructionSet::kAvx2) return kAvx2CombineLoops;
#endif
  return kPortableCombineLoops;
}

}  // namespace tidepool::cpu
