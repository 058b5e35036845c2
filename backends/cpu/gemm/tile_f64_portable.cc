#include "tidepool/backends/cpu/gemm/gemm_f64.h"

#define TIDEPOOL_TILE kPortableTileF64
#define TIDEPOOL_TILE_LANES 2
#define TIDEPOOL_TILE_VECTORS 2
#define TIDEPOOL_TILE_ROWS 4
#include "tidepool/backends/cpu/gemm/tile_f64.inc"
