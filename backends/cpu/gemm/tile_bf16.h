// The innermost loops of GemmBf16: register tiles, and packing of pairs. A pair is the elements of two inner positions in a
// word of 32 bits, the first in the lower half; behind the last of an odd number stands a zero.
#ifndef TIDEPOOL_BACKENDS_CPU_GEMM_TILE_BF16_H_
#define TIDEPOOL_BACKENDS_CPU_GEMM_TILE_BF16_H_

#include <stdint.h>

namespace tidepool::cpu {

constexpr int kBf16PanelColumns = 32;
constexpr int kMaxBf16TileRows = 12;

// A tile is `rows` rows of 32 columns: sums[r][j] = (0 or sums[r][j]) + sum over pairs of A[r] * B[., j].
struct Bf16TileArgs {
  const void* const* a_rows;  // each row's first pair, at any address
  int64_t a_step;             // bytes between pairs of a row
  const void* b;              // packed: of each pair 32 words
  int64_t pairs;
  float* sums;  // rows of 32 floats one behind the other; null where they begin at 0 and go to z
  bool reads_sums;    // else they begin at 0
  uint16_t* z;        // rounded results; null where sums are written instead
  int64_t z_stride;   // between rows of z, in elements
  int columns;        // of z that exist, 1 to 32
  const float* bias;  // 32 floats added before rounding, or null
  bool relu;
  bool keeps_nan;  // else nothing is written where an element of z would be NaN
};

struct Bf16Tiles {
  // By rows; [0] is null. False where nothing was written.
  bool (*tile[kMaxBf16TileRows + 1])(const Bf16TileArgs& args);
  // Packs `depth` inner positions, `row_stride` elements apart, of neighbouring columns: for every 32 of them words
  // [pair][32], zeros behind what exists, `panel_words` apart.
  void (*pack_across)(const uint16_t* source, int64_t row_stride, int64_t depth, int64_t columns,
                      int64_t panel_words, uint32_t* words);
  // The same of `columns` <= 32 vectors, `column_stride` elements apart, whose inner positions are neighbours.
  void (*pack_along)(const uint16_t* source, int64_t column_stride, int64_t depth, int64_t columns,
                     uint32_t* words);
  // Rows of neighbouring inner positions from elements whose neighbours are rows: to[r * to_stride + k] =
  // source[k * inner_stride + r] for r < rows <= 32 and k < depth, zeros up to 32 rows and whole steps of 32.
  void (*turn_rows)(const uint16_t* source, int64_t inner_stride, int64_t depth, int64_t rows,
                    uint16_t* to, int64_t to_stride);
  // Sums [32][32] become [columns][rows].
  void (*turn_sums)(float* sums);
  // Rounds sums [rows][32] into z by args' z, z_stride, columns, bias, relu and keeps_nan. Of sums of at most 16 columns only those
  // are read. False where a sum is NaN that is not kept; then nothing was written if `is_careful`.
  bool (*finish)(const float* sums, int64_t rows, bool is_careful, const Bf16TileArgs& args);
  // sums[i] = sum over k < depth of rows[i * row_stride + k] * x[k], for i < count.
  void (*dot_rows)(const uint16_t* rows, int64_t row_stride, int64_t count, const uint16_t* x,
                   int64_t depth, float* sums);
};

// Null where the processor has no such instruction.
const Bf16Tiles* SelectedBf16Tiles();
// Null when not built for this architecture; else for processors that have it only.
const Bf16Tiles* Avx512Bf16Tiles();

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_GEMM_TILE_BF16_H_
