// The innermost loops of Gemm and Conv2d, behind a table of function pointers.
//
// A tile is a small block of the output, `rows` x (8 * vectors) floats, held in registers while the
// inner dimension runs:
//
//   C[r, :] (+)= sum over segments s, sum over i < segment_length:
//                A[r][segments[s] + i * a_step] * B[position, :]
//
// A is read one float at a time through one pointer per row (so any matrix layout, and the pixels
// of an image, need no copy), B a row of 8 * vectors floats at a time, usually from a packed panel.
// Each output element is one chain of multiply-adds in the order of the inner dimension whatever
// the tile's shape; so results do not depend on how an output is cut into tiles.
//
// Three implementations: AVX-512 (the widest tiles in assembly, because gcc 12 moves sums about in the loop), AVX2 + FMA (the tiles
// in assembly, because gcc 12 keeps one of the twelve accumulators on the stack), and portable C++. The choice is made once, from cpuid.
// Threads: the functions are pure; ForceTileKernelsForTesting is for tests that run alone.
#ifndef TIDEPOOL_BACKENDS_CPU_GEMM_TILE_KERNELS_H_
#define TIDEPOOL_BACKENDS_CPU_GEMM_TILE_KERNELS_H_

#include <stdint.h>

namespace tidepool::cpu {

constexpr int kVectorFloats = 8;
constexpr int kMaxTileRows = 12;
constexpr int kMaxTileVectors = 8;

enum TileFlags : int64_t { kTileAccumulate = 1, kTileRelu = 2 };

// Steps and offsets in bytes. The assembly reads this structure: tile_avx2.S and tile_avx512.S have the offsets.
struct TileArgs {
  const float* const* a_rows;     // one pointer per row
  int64_t a_step;                 // between successive inner positions of one segment
  const int64_t* segments_begin;  // offset of each segment, added to every row pointer
  const int64_t* segments_end;
  int64_t segment_length;    // inner positions per segment
  const float* b;            // rows of 8 * vectors readable floats
  int64_t b_step;            // between successive inner positions, across segments
  float* const* c_rows;      // one pointer per row
  int64_t c_offset;          // added to every row of C
  const float* bias;         // 8 * vectors readable floats added to each row, or null
  int64_t tail;              // valid floats in the last vector of a row of C, 1 to 8
  const int32_t* tail_mask;  // 8 words: -1 for the first `tail`, then 0
  int64_t flags;             // TileFlags; the result is max(0, C + A * B + bias) with all of them
};

using TileFunction = void (*)(const TileArgs* args);

struct TileKernels {
  const char* name;
  int max_vectors;                    // panels are at most this wide
  int usual_vectors;                  // of all panels but the last
  int max_rows[kMaxTileVectors + 1];  // by vectors; [0] unused
  // tile[vectors][rows]; null above max_rows.
  TileFunction tile[kMaxTileVectors + 1][kMaxTileRows + 1];

  // destination[i * width + j] = source[i * row_stride + j * column_stride] for i < depth,
  // j < columns; zero for columns <= j < width. Strides in floats; width a multiple of 8, up to those of max_vectors. Also packs
  // rows of A, transposed.
  void (*pack_panel)(const float* source, int64_t row_stride, int64_t column_stride, int64_t depth,
                     int64_t columns, int64_t width, float* destination);
  // c[j * ldc + i] (+)= source[i * source_stride + j] + bias[i], then max(0, .), for i < rows,
  // j < columns; bias may be null. Rows of source are readable up to a multiple of 8 floats.
  void (*store_transposed)(const float* source, int64_t source_stride, int64_t rows,
                           int64_t columns, const float* bias, int64_t flags, float* c,
                           int64_t ldc);
  // sums[i] = sum over k < depth of rows[i * row_stride + k] * x[k], for i < count.
  void (*dot_rows)(const float* rows, int64_t row_stride, int64_t count, const float* x,
                   int64_t depth, float* sums);
  // sums[j] += sum over k < depth of x[k * x_stride] * rows[k * row_stride + j], for j < columns.
  void (*combine_rows)(const float* rows, int64_t row_stride, int64_t columns, const float* x,
                       int64_t x_stride, int64_t depth, float* sums);
};

const TileKernels& PortableTileKernels();
// Null when not built for this architecture. The caller checks that the processor has AVX2 and FMA.
const TileKernels* Avx2TileKernels();
// The same, of AVX-512F as well.
const TileKernels* Avx512TileKernels();

// The best table for this processor.
const TileKernels& SelectedTileKernels();

// Makes SelectedTileKernels() answer `kernels` until called with null. Not thread-safe.
void ForceTileKernelsForTesting(const TileKernels* kernels);

// All that run on this processor.
struct TileKernelsOfProcessor {
  const TileKernels* kernels[3];
  int count;
  const TileKernels* const* begin() const { return kernels; }
  const TileKernels* const* end() const { return kernels + count; }
};
TileKernelsOfProcessor AllTileKernels();

// -1 for the first `tail` of 8 words, then 0.
const int32_t* TailMask(int64_t tail);

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_GEMM_TILE_KERNELS_H_
