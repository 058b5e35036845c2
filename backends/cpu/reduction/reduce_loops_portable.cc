#include "tidepool/backends/cpu/reduction/reduce_loops.h"

#define TIDEPOOL_REDUCE_LOOPS PortableReduceLoops
#include "tidepool/backends/cpu/reduction/reduce_loops.inc"
