// Compiled with -mavx2 -mfma; called only where the processor has both.
#include "tidepool/backends/cpu/nn_loops.h"

#if defined(__x86_64__)
#define TIDEPOOL_NN_LOOPS kAvx2NnLoops
#include "tidepool/backends/cpu/nn_loops.inc"
#endif
