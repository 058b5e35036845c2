#include "tidepool/backends/cpu/nn_loops.h"

#define TIDEPOOL_NN_LOOPS kPortableNnLoops
#include "tidepool/backends/cpu/nn_loops.inc"
