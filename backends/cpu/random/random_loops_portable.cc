#include "tidepool/backends/cpu/random/random_loops.h"

#define TIDEPOOL_RANDOM_LOOPS kPortableRandomLoops
#include "tidepool/backends/cpu/random/random_loops.inc"
