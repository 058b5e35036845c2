#include "tidepool/backends/cpu/attention/attention_loops.h"

#define TIDEPOOL_ATTENTION_LOOPS kPortableAttentionLoops
#include "tidepool/backends/cpu/attention/attention_loops.inc"
