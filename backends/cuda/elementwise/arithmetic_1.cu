// Part 1 of 2 of the kernels of operators/arithmetic.inc: nvcc takes half a minute for one.
#define TIDEPOOL_PART 1
#include "tidepool/backends/cuda/elementwise/arithmetic_part.h"
