// Compiled with -mavx2 -mfma; called only where the processor has both.
#include "tidepool/backends/cpu/reduction/reduce_loops.h"

#if defined(__x86_64__)
#define TIDEPOOL_REDUCE_LOOPS Avx2ReduceLoops
#include "tidepool/backends/cpu/reduction/reduce_loops.inc"
#endif
