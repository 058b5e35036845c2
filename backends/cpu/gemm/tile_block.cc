#include "tidepool/backends/cpu/gemm/tile_block.h"

#include <algorithm>

namespace tidepool::cpu {

int64_t NextPanelWidth(const TileKernels& kernels, int64_t remaining) {
  const int64_t vectors = CeilDiv(remaining, kVectorFloats);
  return (vectors <= kernels.max_vectors ? vectors : kernels.usual_vectors) * kVectorFloats;
}

int64_t PanelCount(const TileKernels& kernels, int64_t columns) {
  const int64_t vectors = CeilDiv(columns, kVectorFloats), usual = kernels.usual_vectors;
  if (vectors <= kernels.max_vectors) return columns > 0 ? 1 : 0;
  return CeilDiv(vectors - kernels.max_vectors, usual) + 1;
}

int64_t PanelColumn(const TileKernels& kernels, int64_t columns, int64_t panel) {
  if (panel >= PanelCount(kernels, columns)) return columns;
  return panel * kernels.usual_vectors * kVectorFloats;
}

void SetPanelEdge(TileArgs* args, int64_t columns, int64_t width, const float* bias,
                  float* padded_bias) {
  args->tail = columns - (width - kVectorFloats);
  args->tail_mask = TailMask(args->tail);
  args->bias = bias;
  if (bias != nullptr && columns < width) {
    std::fill(std::copy(bias, bias + columns, padded_bias), padded_bias + width, 0.0f);
    args->bias = padded_bias;
  }
}

void RunTiles(const TileKernels& kernels, int64_t width, int64_t rows, const float* const* a_rows,
              float* const* c_rows, TileArgs* args) {
  const int64_t vectors = width / kVectorFloats;
  const int64_t max_rows = kernels.max_rows[vectors];
  for (int64_t row = 0; row < rows;) {
    const int64_t left = rows - row;
    // The last two tiles share what is left evenly: a tile of one or two rows is slow.
    const int64_t tile_rows = left >= 2 * max_rows ? max_rows
                              : left > max_rows    ? (left + 1) / 2
                                                   : left;
    args->a_rows = a_rows + row;
    args->c_rows = c_rows + row;
    kernels.tile[vectors][tile_rows](args);
    row += tile_rows;
  }
}

}  // namespace tidepool::cpu
