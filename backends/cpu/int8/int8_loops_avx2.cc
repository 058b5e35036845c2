// Compiled for InstructionSet::kAvx2; called only where the processor has that. Numbers are widened to 16 bits: products of 8 by 8
// bits that AVX2 adds in pairs would be cut at 32767.
#include "tidepool/backends/cpu/int8/int8_loops.h"

#if defined(__x86_64__)

#include <immintrin.h>

namespace tidepool::cpu {
namespace {

#include "tidepool/backends/cpu/int8/int8_loops.inc"

int32_t SumOf(__m256i v) {
  __m128i half = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(half, _mm_shuffle_epi32(half, 0xB1)));
}

template <int kRows, int kUnits>
void Tile(const uint8_t* x, int64_t x_stride, const int8_t* w, int64_t w_stride, int64_t steps,
          int32_t* sums) {
  __m256i total[kRows][kUnits];
  for (auto& row : total) {
    for (__m256i& each : row) each = _mm256_setzero_si256();
  }
  for (int64_t i = 0; i < steps * kInt8Step; i += 16) {
    __m256i row[kRows];
    for (int r = 0; r < kRows; ++r) {
      row[r] = _mm256_cvtepu8_epi16(
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(x + r * x_stride + i)));
    }
    for (int u = 0; u < kUnits; ++u) {
      const __m256i unit = _mm256_cvtepi8_epi16(
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(w + u * w_stride + i)));
      for (int r = 0; r < kRows; ++r)
        total[r][u] = _mm256_add_epi32(total[r][u], _mm256_madd_epi16(row[r], unit));
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int u = 0; u < kUnits; ++u) sums[r * kInt8Units + u] = SumOf(total[r][u]);
  }
}

// Eight sums, two rows and a unit lie in registers.
void Products(const uint8_t* x, int64_t x_stride, int rows, const int8_t* w, int64_t w_stride,
              int units, int64_t steps, int32_t* sums) {
  int r = 0;
  for (; r + 2 <= rows; r += 2) {
    (units == 1 ? &Tile<2, 1> : &Tile<2, kInt8Units>)(x + r * x_stride, x_stride, w, w_stride,
                                                      steps, sums + r * kInt8Units);
  }
  if (r == rows) return;
  (units == 1 ? &Tile<1, 1> : &Tile<1, kInt8Units>)(x + r * x_stride, x_stride, w, w_stride, steps,
                                                    sums + r * kInt8Units);
}

}  // namespace

const Int8Loops kAvx2Int8Loops = {"avx2", &Extremes, &Quantise, &Products, &Scale};

}  // namespace tidepool::cpu

#endif  // __x86_64__
