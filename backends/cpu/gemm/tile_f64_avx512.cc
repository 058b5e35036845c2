// Compiled with -mavx512f; called only where the processor has it.
#include "tidepool/backends/cpu/gemm/gemm_f64.h"

#if defined(__x86_64__)
#define TIDEPOOL_TILE kAvx512TileF64
#define TIDEPOOL_TILE_LANES 8
#define TIDEPOOL_TILE_VECTORS 3
#define TIDEPOOL_TILE_ROWS 8
#include "tidepool/backends/cpu/gemm/tile_f64.inc"
#endif
