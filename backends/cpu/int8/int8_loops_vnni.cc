// Compiled for InstructionSet::kAvx512Vnni; called only where the processor has that.
#include "tidepool/backends/cpu/int8/int8_loops.h"

#if defined(__x86_64__)

#include <immintrin.h>

namespace tidepool::cpu {
namespace {

#include "tidepool/backends/cpu/int8/int8_loops.inc"

__m256i Half(__m512i v) {
  return _mm256_add_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
}

template <int kRows, int kUnits>
void Tile(const uint8_t* x, int64_t x_stride, const int8_t* w, int64_t w_stride, int64_t steps,
          int32_t* sums) {
  __m512i total[kRows][kUnits];
  for (auto& row : total) {
    for (__m512i& each : row) each = _mm512_setzero_si512();
  }
  for (int64_t i = 0; i < steps * kInt8Step; i += kInt8Step) {
    __m512i unit[kUnits];
    for (int u = 0; u < kUnits; ++u) unit[u] = _mm512_loadu_si512(w + u * w_stride + i);
    for (int r = 0; r < kRows; ++r) {
      const __m512i row = _mm512_loadu_si512(x + r * x_stride + i);
      for (int u = 0; u < kUnits; ++u) total[r][u] = _mm512_dpbusd_epi32(total[r][u], row, unit[u]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    if constexpr (kUnits == 1) {
      sums[r * kInt8Units] = _mm512_reduce_add_epi32(total[r][0]);
    } else {
      const __m256i pairs = _mm256_hadd_epi32(Half(total[r][0]), Half(total[r][1])),
                    others = _mm256_hadd_epi32(Half(total[r][2]), Half(total[r][3])),
                    all = _mm256_hadd_epi32(pairs, others);
      _mm_storeu_si128(
          reinterpret_cast<__m128i*>(sums + r * kInt8Units),
          _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1)));
    }
  }
}

template <int kUnits>
void ProductsOf(const uint8_t* x, int64_t x_stride, int rows, const int8_t* w, int64_t w_stride,
                int64_t steps, int32_t* sums) {
  switch (rows) {
    case 1:
      return Tile<1, kUnits>(x, x_stride, w, w_stride, steps, sums);
    case 2:
      return Tile<2, kUnits>(x, x_stride, w, w_stride, steps, sums);
    case 3:
      return Tile<3, kUnits>(x, x_stride, w, w_stride, steps, sums);
    default:
      return Tile<4, kUnits>(x, x_stride, w, w_stride, steps, sums);
  }
}

void Products(const uint8_t* x, int64_t x_stride, int rows, const int8_t* w, int64_t w_stride,
              int units, int64_t steps, int32_t* sums) {
  if (units == 1) return ProductsOf<1>(x, x_stride, rows, w, w_stride, steps, sums);
  ProductsOf<kInt8Units>(x, x_stride, rows, w, w_stride, steps, sums);
}

}  // namespace

const Int8Loops kVnniInt8Loops = {"avx512_vnni", &Extremes, &Quantise, &Products, &Scale};

}  // namespace tidepool::cpu

#endif  // __x86_64__
