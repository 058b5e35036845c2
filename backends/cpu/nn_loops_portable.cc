#include "tidepool/backends/cpu/nn_loops.h"

#define TIDEPOOL_NN_LOOPS kPortableNnLoops
#define TIDEPOOL_LAYER_LOOPS_F64 kLayerLoopsF64
#include "tidepool/backends/cpu/nn_loops.inc"
