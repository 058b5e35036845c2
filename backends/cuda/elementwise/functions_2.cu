// Part 2 of 3 of the kernels of operators/functions.inc: nvcc takes half a minute for one.
#define TIDEPOOL_PART 2
#include "tidepool/backends/cuda/elementwise/functions_part.h"
