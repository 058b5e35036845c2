// Packing for AVX2, and the table of the tiles of tile_avx2.S. The only file compiled with -mavx2
// and -mfma: it must not emit an inline function that other files emit too (the linker might keep
// this copy for all processors), so it uses no standard library templates.
#include "tidepool/backends/cpu/gemm/tile_kernels.h"

#if defined(__x86_64__) && defined(__ELF__)

#include <immintrin.h>
#include <stddef.h>

// What tile_avx2.S assumes.
static_assert(offsetof(tidepool::cpu::TileArgs, a_step) == 8);
static_assert(offsetof(tidepool::cpu::TileArgs, segments_begin) == 16);
static_assert(offsetof(tidepool::cpu::TileArgs, segment_length) == 32);
static_assert(offsetof(tidepool::cpu::TileArgs, b) == 40);
static_assert(offsetof(tidepool::cpu::TileArgs, c_rows) == 56);
static_assert(offsetof(tidepool::cpu::TileArgs, bias) == 72);
static_assert(offsetof(tidepool::cpu::TileArgs, tail) == 80);
static_assert(offsetof(tidepool::cpu::TileArgs, tail_mask) == 88);
static_assert(offsetof(tidepool::cpu::TileArgs, flags) == 96);

#define TIDEPOOL_DECLARE_TILE(rows, vectors) \
  extern "C" void tidepool_tile_avx2_##rows##x##vectors(const tidepool::cpu::TileArgs*);
TIDEPOOL_DECLARE_TILE(1, 1)
TIDEPOOL_DECLARE_TILE(2, 1)
TIDEPOOL_DECLARE_TILE(3, 1)
TIDEPOOL_DECLARE_TILE(4, 1)
TIDEPOOL_DECLARE_TILE(5, 1)
TIDEPOOL_DECLARE_TILE(6, 1)
TIDEPOOL_DECLARE_TILE(7, 1)
TIDEPOOL_DECLARE_TILE(8, 1)
TIDEPOOL_DECLARE_TILE(1, 2)
TIDEPOOL_DECLARE_TILE(2, 2)
TIDEPOOL_DECLARE_TILE(3, 2)
TIDEPOOL_DECLARE_TILE(4, 2)
TIDEPOOL_DECLARE_TILE(5, 2)
TIDEPOOL_DECLARE_TILE(6, 2)
TIDEPOOL_DECLARE_TILE(1, 3)
TIDEPOOL_DECLARE_TILE(2, 3)
TIDEPOOL_DECLARE_TILE(3, 3)
TIDEPOOL_DECLARE_TILE(4, 3)

namespace tidepool::cpu {
namespace {

__m256i Mask(int64_t count) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(TailMask(count)));
}

void Transpose(__m256 (&v)[8]) {
  const __m256 a0 = _mm256_unpacklo_ps(v[0], v[1]), a1 = _mm256_unpackhi_ps(v[0], v[1]);
  const __m256 a2 = _mm256_unpacklo_ps(v[2], v[3]), a3 = _mm256_unpackhi_ps(v[2], v[3]);
  const __m256 a4 = _mm256_unpacklo_ps(v[4], v[5]), a5 = _mm256_unpackhi_ps(v[4], v[5]);
  const __m256 a6 = _mm256_unpacklo_ps(v[6], v[7]), a7 = _mm256_unpackhi_ps(v[6], v[7]);
  const __m256 b0 = _mm256_shuffle_ps(a0, a2, 0x44), b1 = _mm256_shuffle_ps(a0, a2, 0xee);
  const __m256 b2 = _mm256_shuffle_ps(a1, a3, 0x44), b3 = _mm256_shuffle_ps(a1, a3, 0xee);
  const __m256 b4 = _mm256_shuffle_ps(a4, a6, 0x44), b5 = _mm256_shuffle_ps(a4, a6, 0xee);
  const __m256 b6 = _mm256_shuffle_ps(a5, a7, 0x44), b7 = _mm256_shuffle_ps(a5, a7, 0xee);
  v[0] = _mm256_permute2f128_ps(b0, b4, 0x20);
  v[1] = _mm256_permute2f128_ps(b1, b5, 0x20);
  v[2] = _mm256_permute2f128_ps(b2, b6, 0x20);
  v[3] = _mm256_permute2f128_ps(b3, b7, 0x20);
  v[4] = _mm256_permute2f128_ps(b0, b4, 0x31);
  v[5] = _mm256_permute2f128_ps(b1, b5, 0x31);
  v[6] = _mm256_permute2f128_ps(b2, b6, 0x31);
  v[7] = _mm256_permute2f128_ps(b3, b7, 0x31);
}

// Rows of the source are contiguous.
void PackRows(const float* source, int64_t row_stride, int64_t depth, int64_t columns,
              int64_t width, float* destination) {
  if (columns == width && width == 16) {
    for (int64_t i = 0; i < depth; ++i, source += row_stride, destination += 16) {
      const __m256 v0 = _mm256_loadu_ps(source), v1 = _mm256_loadu_ps(source + 8);
      _mm256_store_ps(destination, v0);
      _mm256_store_ps(destination + 8, v1);
    }
    return;
  }
  const int64_t vectors = width / 8;
  __m256i masks[kMaxTileVectors];
  for (int64_t v = 0; v < vectors; ++v) {
    const int64_t left = columns - v * 8;
    masks[v] = Mask(left < 0 ? 0 : left > 8 ? 8 : left);
  }
  for (int64_t i = 0; i < depth; ++i, source += row_stride, destination += width) {
    _mm256_store_ps(destination, _mm256_maskload_ps(source, masks[0]));
    if (vectors > 1) _mm256_store_ps(destination + 8, _mm256_maskload_ps(source + 8, masks[1]));
    if (vectors > 2) _mm256_store_ps(destination + 16, _mm256_maskload_ps(source + 16, masks[2]));
    if (vectors > 3) _mm256_store_ps(destination + 24, _mm256_maskload_ps(source + 24, masks[3]));
  }
}

// Columns of the source are contiguous: 8 x 8 blocks are transposed.
void PackColumns(const float* source, int64_t column_stride, int64_t depth, int64_t columns,
                 int64_t width, float* destination) {
  for (int64_t j = 0; j < width; j += 8) {
    const int64_t valid = columns - j < 0 ? 0 : columns - j > 8 ? 8 : columns - j;
    const float* from = source + j * column_stride;
    float* to = destination + j;
    for (int64_t i = 0; i < depth; i += 8, from += 8) {
      const int64_t count = depth - i < 8 ? depth - i : 8;
      __m256 v[8];
      if (valid == 8 && count == 8) {
        for (int64_t q = 0; q < 8; ++q) v[q] = _mm256_loadu_ps(from + q * column_stride);
      } else {
        const __m256i mask = Mask(count);
        for (int64_t q = 0; q < 8; ++q) {
          v[q] =
              q < valid ? _mm256_maskload_ps(from + q * column_stride, mask) : _mm256_setzero_ps();
        }
      }
      Transpose(v);
      if (count == 8) {
        for (int64_t q = 0; q < 8; ++q, to += width) _mm256_store_ps(to, v[q]);
      } else {
        for (int64_t q = 0; q < count; ++q, to += width) _mm256_store_ps(to, v[q]);
      }
    }
  }
}

void PackPanel(const float* source, int64_t row_stride, int64_t column_stride, int64_t depth,
               int64_t columns, int64_t width, float* destination) {
  if (column_stride == 1) {
    PackRows(source, row_stride, depth, columns, width, destination);
  } else if (row_stride == 1) {
    PackColumns(source, column_stride, depth, columns, width, destination);
  } else {
    for (int64_t i = 0; i < depth; ++i, source += row_stride, destination += width) {
      for (int64_t j = 0; j < columns; ++j) destination[j] = source[j * column_stride];
      for (int64_t j = columns; j < width; ++j) destination[j] = 0.0f;
    }
  }
}

void StoreTransposed(const float* source, int64_t source_stride, int64_t rows, int64_t columns,
                     const float* bias, int64_t flags, float* c, int64_t ldc) {
  for (int64_t j = 0; j < columns; j += 8) {
    const int64_t width = columns - j < 8 ? columns - j : 8;
    for (int64_t i = 0; i < rows; i += 8) {
      const int64_t height = rows - i < 8 ? rows - i : 8;
      const __m256i mask = Mask(height);
      __m256 v[8];
      for (int64_t q = 0; q < 8; ++q) {
        v[q] = q < height ? _mm256_loadu_ps(source + (i + q) * source_stride + j)
                          : _mm256_setzero_ps();
      }
      Transpose(v);
      if (height == 8 && width == 8 && flags == 0 && bias == nullptr) {
        float* to = c + j * ldc + i;
        for (int64_t q = 0; q < 8; ++q) _mm256_storeu_ps(to + q * ldc, v[q]);
        continue;
      }
      alignas(32) __m256 out[8];
      for (int64_t q = 0; q < 8; ++q) out[q] = v[q];
      for (int64_t q = 0; q < width; ++q) {
        float* to = c + (j + q) * ldc + i;
        __m256 sum = out[q];
        if (flags & kTileAccumulate) sum = _mm256_add_ps(sum, _mm256_maskload_ps(to, mask));
        if (bias != nullptr) sum = _mm256_add_ps(sum, _mm256_maskload_ps(bias + i, mask));
        // The second operand is the result when either is NaN.
        if (flags & kTileRelu) sum = _mm256_max_ps(_mm256_setzero_ps(), sum);
        if (height == 8) {
          _mm256_storeu_ps(to, sum);
        } else {
          _mm256_maskstore_ps(to, mask, sum);
        }
      }
    }
  }
}

// Four rows share the loads of x. Each row's sum is formed in the same order whether it is one of
// four or alone.
template <int kRows>
void DotSomeRows(const float* rows, int64_t row_stride, const float* x, int64_t depth,
                 float* sums) {
  __m256 even[kRows], odd[kRows];
  for (int r = 0; r < kRows; ++r) even[r] = odd[r] = _mm256_setzero_ps();
  int64_t k = 0;
  for (; k + 16 <= depth; k += 16) {
    const __m256 x0 = _mm256_loadu_ps(x + k), x1 = _mm256_loadu_ps(x + k + 8);
    for (int r = 0; r < kRows; ++r) {
      const float* row = rows + r * row_stride + k;
      even[r] = _mm256_fmadd_ps(_mm256_loadu_ps(row), x0, even[r]);
      odd[r] = _mm256_fmadd_ps(_mm256_loadu_ps(row + 8), x1, odd[r]);
    }
  }
  for (; k < depth; k += 8) {
    const __m256i mask = Mask(depth - k < 8 ? depth - k : 8);
    const __m256 x0 = _mm256_maskload_ps(x + k, mask);
    for (int r = 0; r < kRows; ++r) {
      even[r] = _mm256_fmadd_ps(_mm256_maskload_ps(rows + r * row_stride + k, mask), x0, even[r]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    const __m256 sum = _mm256_add_ps(even[r], odd[r]);
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    sums[r] = _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
  }
}

void DotRows(const float* rows, int64_t row_stride, int64_t count, const float* x, int64_t depth,
             float* sums) {
  int64_t i = 0;
  for (; i + 4 <= count; i += 4)
    DotSomeRows<4>(rows + i * row_stride, row_stride, x, depth, sums + i);
  for (; i < count; ++i) DotSomeRows<1>(rows + i * row_stride, row_stride, x, depth, sums + i);
}

template <int kRows>
void CombineSomeRows(const float* rows, int64_t row_stride, int64_t columns, const float* x,
                     int64_t x_stride, float* sums) {
  __m256 factors[kRows];
  for (int r = 0; r < kRows; ++r) factors[r] = _mm256_broadcast_ss(x + r * x_stride);
  int64_t j = 0;
  for (; j + 8 <= columns; j += 8) {
    __m256 sum = _mm256_loadu_ps(sums + j);
    for (int r = 0; r < kRows; ++r) {
      sum = _mm256_fmadd_ps(_mm256_loadu_ps(rows + r * row_stride + j), factors[r], sum);
    }
    _mm256_storeu_ps(sums + j, sum);
  }
  if (j == columns) return;
  const __m256i mask = Mask(columns - j);
  __m256 sum = _mm256_maskload_ps(sums + j, mask);
  for (int r = 0; r < kRows; ++r) {
    sum = _mm256_fmadd_ps(_mm256_maskload_ps(rows + r * row_stride + j, mask), factors[r], sum);
  }
  _mm256_maskstore_ps(sums + j, mask, sum);
}

void CombineRows(const float* rows, int64_t row_stride, int64_t columns, const float* x,
                 int64_t x_stride, int64_t depth, float* sums) {
  int64_t k = 0;
  for (; k + 8 <= depth; k += 8) {
    CombineSomeRows<8>(rows + k * row_stride, row_stride, columns, x + k * x_stride, x_stride,
                       sums);
  }
  for (; k < depth; ++k) {
    CombineSomeRows<1>(rows + k * row_stride, row_stride, columns, x + k * x_stride, x_stride,
                       sums);
  }
}

}  // namespace

const TileKernels* Avx2TileKernels() {
  static constexpr TileKernels kKernels = {
      "avx2",
      /*max_vectors=*/3,
      /*usual_vectors=*/2,
      /*max_rows=*/{0, 8, 6, 4, 0},
      {{},
       {nullptr, tidepool_tile_avx2_1x1, tidepool_tile_avx2_2x1, tidepool_tile_avx2_3x1,
        tidepool_tile_avx2_4x1, tidepool_tile_avx2_5x1, tidepool_tile_avx2_6x1,
        tidepool_tile_avx2_7x1, tidepool_tile_avx2_8x1},
       {nullptr, tidepool_tile_avx2_1x2, tidepool_tile_avx2_2x2, tidepool_tile_avx2_3x2,
        tidepool_tile_avx2_4x2, tidepool_tile_avx2_5x2, tidepool_tile_avx2_6x2},
       {nullptr, tidepool_tile_avx2_1x3, tidepool_tile_avx2_2x3, tidepool_tile_avx2_3x3,
        tidepool_tile_avx2_4x3}},
      PackPanel,
      StoreTransposed,
      DotRows,
      CombineRows,
  };
  return &kKernels;
}

}  // namespace tidepool::cpu

#else

namespace tidepool::cpu {
const TileKernels* Avx2TileKernels() { return nullptr; }
}  // namespace tidepool::cpu

#endif  // defined(__x86_64__) && defined(__ELF__)
