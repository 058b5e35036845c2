// Compiled for InstructionSet::kAvx512; called only where the processor has that.
#include "tidepool/backends/cpu/random/random_loops.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TIDEPOOL_RANDOM_LOOPS kAvx512RandomLoops
#include "tidepool/backends/cpu/random/random_loops.inc"
#endif
