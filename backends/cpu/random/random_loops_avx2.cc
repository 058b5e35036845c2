// Compiled with -mavx2 -mfma; called only where the processor has both.
#include "tidepool/backends/cpu/random/random_loops.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TIDEPOOL_RANDOM_LOOPS kAvx2RandomLoops
#include "tidepool/backends/cpu/random/random_loops.inc"
#endif
