#include "tidepool/backends/cpu/vector_loops.h"

#include "tidepool/backends/cpu/instruction_set.h"

namespace tidepool::cpu {

const VectorLoops& Loops() {
#if defined(__x86_64__)
  if (BestInstructionSet() >= InstructionSet::kAvx2) return kAvx2Loops;
#endif
  return kPortableLoops;
}

}  // namespace tidepool::cpu
