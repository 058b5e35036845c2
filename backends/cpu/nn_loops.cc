#include "tidepool/backends/cpu/nn_loops.h"

#include "tidepool/backends/cpu/instruction_set.h"

namespace tidepool::cpu {

const NnLoops& NetworkLoops() {
#if defined(__x86_64__)
  if (BestInstructionSet() >= InstructionSet::kAvx512) return kAvx512NnLoops;
  if (BestInstructionSet() >= InstructionSet::kAvx2) return kAvx2NnLoops;
#endif
  return kPortableNnLoops;
}

}  // namespace tidepool::cpu
