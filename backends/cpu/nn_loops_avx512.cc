// Compiled for InstructionSet::kAvx512; called only where the processor has that.
#include "tidepool/backends/cpu/nn_loops.h"

#if defined(__x86_64__)
#define TIDEPOOL_NN_LOOPS kAvx512NnLoops
#include "tidepool/backends/cpu/nn_loops.inc"
#endif
