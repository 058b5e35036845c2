// Compiled for InstructionSet::kAvx512; called only where the processor has that.
#include "tidepool/backends/cpu/reduction/reduce_loops.h"

#if defined(__x86_64__)
#define TIDEPOOL_REDUCE_LOOPS Avx512ReduceLoops
#include "tidepool/backends/cpu/reduction/reduce_loops.inc"
#endif
