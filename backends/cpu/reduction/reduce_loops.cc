#include "tidepool/backends/cpu/reduction/reduce_loops.h"

#include "tidepool/backends/cpu/instruction_set.h"

namespace tidepool::cpu {

const ReduceLoops* FindReduceLoops(ReduceKind kind, ElementKind element) {
#if defined(__x86_64__)
  if (BestInstructionSet() >= InstructionSet::kAvx512) return Avx512ReduceLoops(kind, element);
  if (BestInstructionSet() >= InstructionSet::kAvx2) return Avx2ReduceLoops(kind, element);
#endif
  return PortableReduceLoops(kind, element);
}

}  // namespace tidepool::cpu
