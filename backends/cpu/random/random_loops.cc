#include "tidepool/backends/cpu/random/random_loops.h"

#include "tidepool/backends/cpu/instruction_set.h"

namespace tidepool::cpu {

const RandomLoops& FindRandomLoops() {
#if defined(__x86_64__)
  if (BestInstructionSet() >= InstructionSet::kAvx512) return kAvx512RandomLoops;
  if (BestInstructionSet() >= InstructionSet::kAvx2) return kAvx2RandomLoops;
#endif
  return kPortableRandomLoops;
}

}  // namespace tidepool::cpu
