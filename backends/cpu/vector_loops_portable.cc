#include "tidepool/backends/cpu/vector_loops.h"

#define TIDEPOOL_LOOPS kPortableLoops
#define TIDEPOOL_UPDATE_LOOPS_F64 kUpdateLoopsF64
#define TIDEPOOL_LOOPS_NAME "portable"
#include "tidepool/backends/cpu/vector_loops.inc"
