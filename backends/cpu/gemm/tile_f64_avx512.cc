// Compiled for InstructionSet::kAvx512; called only where the processor has it. No standard library templates, as in
// tile_kernels_avx512.cc. 24 sums, three vectors of B and one element of A lie in registers.
#include "tidepool/backends/cpu/gemm/gemm_f64.h"

#if defined(__x86_64__)

#include <immintrin.h>

namespace tidepool::cpu {
namespace {

constexpr int kRows = 8, kColumns = 24;
// A panel of 24 columns fills the first-level cache, so that most of it comes from the second, which costs less than to add to C more
// often.
constexpr int64_t kDepth = 256;

template <int kVectors>
void MultiplyVectors(const double* a, const double* b, int64_t depth, double* c, int64_t ldc,
                     bool add) {
  __m512d sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) sums[r][v] = _mm512_setzero_pd();
  }
  const auto step = [&](int64_t k) __attribute__((always_inline)) {
    __m512d columns[kVectors];
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) columns[v] = _mm512_loadu_pd(b + 8 * (kVectors * k + v));
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m512d element = _mm512_set1_pd(a[kRows * k + r]);
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v)
        sums[r][v] = _mm512_fmadd_pd(element, columns[v], sums[r][v]);
    }
  };
  int64_t k = 0;
  for (; k + 4 <= depth; k += 4, a += 4 * kRows, b += 32 * kVectors) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) step(i);
  }
  for (; k < depth; ++k, a += kRows, b += 8 * kVectors) step(0);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r, c += ldc) {
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) {
      if (add) sums[r][v] = _mm512_add_pd(_mm512_loadu_pd(c + 8 * v), sums[r][v]);
      _mm512_storeu_pd(c + 8 * v, sums[r][v]);
    }
  }
}

void Multiply(const double* a, const double* b, int64_t depth, int64_t width, double* c,
              int64_t ldc, bool add) {
  const auto multiply = width == 24   ? &MultiplyVectors<3>
                        : width == 16 ? &MultiplyVectors<2>
                                      : &MultiplyVectors<1>;
  multiply(a, b, depth, c, ldc, add);
}

__mmask8 FirstOf8(int64_t count) {
  return static_cast<__mmask8>(count >= 8 ? 255 : count <= 0 ? 0 : (1 << count) - 1);
}

// Eight rows of eight.
void Transpose(__m512d (&v)[8]) {
  __m512d pairs[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = _mm512_unpacklo_pd(v[i], v[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_pd(v[i], v[i + 1]);
  }
  // Quarter q of pairs[2 * g + h] is of rows 2 * g.. and of column 2 * q + h.
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
    const __m512d low = _mm512_shuffle_f64x2(pairs[h], pairs[2 + h], 0x44);
    const __m512d high = _mm512_shuffle_f64x2(pairs[h], pairs[2 + h], 0xee);
    const __m512d next_low = _mm512_shuffle_f64x2(pairs[4 + h], pairs[6 + h], 0x44);
    const __m512d next_high = _mm512_shuffle_f64x2(pairs[4 + h], pairs[6 + h], 0xee);
    v[h] = _mm512_shuffle_f64x2(low, next_low, 0x88);
    v[2 + h] = _mm512_shuffle_f64x2(low, next_low, 0xdd);
    v[4 + h] = _mm512_shuffle_f64x2(high, next_high, 0x88);
    v[6 + h] = _mm512_shuffle_f64x2(high, next_high, 0xdd);
  }
}

// Vectors whose inner positions are neighbours, eight of each at a time.
void PackAlong(const double* from, int64_t vector_stride, int64_t count, int64_t depth,
               int64_t width, double* to) {
  for (int64_t first = 0; first < count; first += width, to += depth * width) {
    for (int64_t i = 0; i < width; i += 8) {
      const double* const vectors = from + (first + i) * vector_stride;
      const int64_t valid = count - first - i;
      double* target = to + i;
      for (int64_t k = 0; k < depth; k += 8, target += 8 * width) {
        const __mmask8 exist = FirstOf8(depth - k);
        __m512d v[8];
#pragma GCC unroll 8
        for (int q = 0; q < 8; ++q) {
          v[q] = q < valid ? _mm512_maskz_loadu_pd(exist, vectors + q * vector_stride + k)
                           : _mm512_setzero_pd();
        }
        Transpose(v);
        const int64_t left = depth - k;
#pragma GCC unroll 8
        for (int q = 0; q < 8; ++q) {
          if (q < left) _mm512_storeu_pd(target + q * width, v[q]);
        }
      }
    }
  }
}

// Vectors that are neighbours, a few panels at once: what is read of a row should be more than a few lines of the cache.
void PackAcross(const double* from, int64_t depth_stride, int64_t count, int64_t depth,
                int64_t width, double* to) {
  const int64_t at_once = 4 * width;
  for (int64_t first = 0; first < count; first += at_once, to += depth * at_once) {
    const int64_t columns = count - first < at_once ? count - first : at_once;
    for (int64_t k = 0; k < depth; ++k) {
      const double* const row = from + first + k * depth_stride;
      for (int64_t j = 0; j < columns; j += width) {
        double* const target = to + j * depth + k * width;
        for (int64_t i = 0; i < width; i += 8) {
          _mm512_storeu_pd(target + i,
                           _mm512_maskz_loadu_pd(FirstOf8(columns - j - i), row + j + i));
        }
      }
    }
  }
}

void Pack(const double* from, int64_t vector_stride, int64_t depth_stride, int64_t count,
          int64_t depth, int64_t width, double* to) {
  if (vector_stride == 1) {
    PackAcross(from, depth_stride, count, depth, width, to);
  } else {
    PackAlong(from, vector_stride, count, depth, width, to);
  }
}

}  // namespace

extern const TileF64 kAvx512TileF64;
const TileF64 kAvx512TileF64 = {kRows, kColumns, 8, kDepth, &Multiply, &Pack};

}  // namespace tidepool::cpu

#endif  // defined(__x86_64__)
