// Compiled with -mavx2 -mfma; called only where the processor has both.
#include "tidepool/backends/cpu/gemm/gemm_f64.h"

#if defined(__x86_64__)
#define TIDEPOOL_TILE kAvx2TileF64
#define TIDEPOOL_TILE_LANES 4
#define TIDEPOOL_TILE_VECTORS 3
#define TIDEPOOL_TILE_ROWS 4
#include "tidepool/backends/cpu/gemm/tile_f64.inc"
#endif
