// Compiled with -mavx512f and its like; called only where the processor has them.
#include "tidepool/backends/cpu/attention/attention_loops.h"

#if defined(__x86_64__)
#define TIDEPOOL_ATTENTION_LOOPS kAvx512AttentionLoops
#include "tidepool/backends/cpu/attention/attention_loops.inc"
#endif
