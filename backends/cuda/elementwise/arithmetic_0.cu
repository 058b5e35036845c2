// Part 0 of 2 of the kernels of operators/arithmetic.inc: nvcc takes half a minute for one.
#define TIDEPOOL_PART 0
#include "tidepool/backends/cuda/elementwise/arithmetic_part.h"
