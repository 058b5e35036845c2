#include "tidepool/backends/cpu/int8/int8_loops.h"

#include "tidepool/backends/cpu/instruction_set.h"

namespace tidepool::cpu {

const Int8Loops& SelectedInt8Loops() {
#if defined(__x86_64__)
  if (BestInstructionSet() >= InstructionSet::kAvx512Vnni) return kVnniInt8Loops;
  if (BestInstructionSet() >= InstructionSet::kAvx2) return kAvx2Int8Loops;
#endif
  return kPortableInt8Loops;
}

}  // namespace tidepool::cpu
