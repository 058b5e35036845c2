// Compiled with -mavx2 -mfma; called only where the processor has both.
#include "tidepool/backends/cpu/vector_loops.h"

#if defined(__x86_64__)
#define TIDEPOOL_LOOPS kAvx2Loops
#define TIDEPOOL_LOOPS_NAME "avx2"
#include "tidepool/backends/cpu/vector_loops.inc"
#endif
