// How a block of the output is cut into panels (columns) and tiles (rows), and the loop over the
// tiles of one panel. Shared by Gemm and the convolutions.
#ifndef TIDEPOOL_BACKENDS_CPU_GEMM_TILE_BLOCK_H_
#define TIDEPOOL_BACKENDS_CPU_GEMM_TILE_BLOCK_H_

#include <stddef.h>
#include <stdint.h>

#include "tidepool/backends/cpu/gemm/tile_kernels.h"

namespace tidepool::cpu {

// Rows of A and C whose pointers are kept together; a multiple of every tile height.
constexpr int64_t kMaxBlockRows = 240;
constexpr int64_t kMaxPanelWidth = kMaxTileVectors * kVectorFloats;
// Inner positions worked on at once: a panel of 16 floats x 384 and six rows of A share the
// first-level cache with room for what streams by.
constexpr int64_t kMaxBlockDepth = 384;
constexpr int64_t kScratchAlignment = 64;

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t RoundUp(int64_t a, int64_t b) { return CeilDiv(a, b) * b; }
// Floats of scratch, rounded so that what follows is aligned.
constexpr int64_t AlignFloats(int64_t floats) { return RoundUp(floats, 16); }

// Pieces of about equal size, none above `limit`, all but the last a multiple of `multiple`.
constexpr int64_t EvenPiece(int64_t total, int64_t limit, int64_t multiple) {
  const int64_t pieces = CeilDiv(total, limit);
  return pieces <= 1 ? total : RoundUp(CeilDiv(total, pieces), multiple);
}

// Floats across the next panel when `remaining` columns are left: those rounded up to 8 where one panel has them all, else
// the usual 8, 16 or 64.
int64_t NextPanelWidth(const TileKernels& kernels, int64_t remaining);

// How many panels cover `columns`, and the first column of one (of the one after the last: columns).
int64_t PanelCount(const TileKernels& kernels, int64_t columns);
int64_t PanelColumn(const TileKernels& kernels, int64_t columns, int64_t panel);

// Sets the fields of `args` that depend on how many of the panel's columns exist and on its bias.
// `bias` points at the panel's first column or is null; `padded_bias` is room for a copy.
void SetPanelEdge(TileArgs* args, int64_t columns, int64_t width, const float* bias,
                  float* padded_bias);

// Runs the tiles of `rows` rows of one panel. `args` gives everything but the row pointers.
void RunTiles(const TileKernels& kernels, int64_t width, int64_t rows, const float* const* a_rows,
              float* const* c_rows, TileArgs* args);

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_GEMM_TILE_BLOCK_H_
