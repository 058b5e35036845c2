// Tiles of bf16 for InstructionSet::kAvx512Bf16; called only where the processor has that. No standard library templates,
// as in tile_kernels_avx512.cc. 24 sums, two vectors of B and A's pair of one row lie in registers.
#include "tidepool/backends/cpu/gemm/tile_bf16.h"

#if defined(__x86_64__) && defined(__ELF__)

#include <immintrin.h>

namespace tidepool::cpu {
namespace {

__mmask32 FirstOf32(int64_t count) {
  return count >= 32 ? ~__mmask32{0} : static_cast<__mmask32>((1u << (count < 0 ? 0 : count)) - 1);
}

// Places of the elements of two vectors that are pairs of the first sixteen.
__m512i FirstPairs() {
  alignas(64) static constexpr uint16_t kPlaces[32] = {0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,
                                                       37, 6,  38, 7,  39, 8,  40, 9,  41, 10, 42,
                                                       11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  return _mm512_load_si512(kPlaces);
}

__m512bh PairsAt(const void* words) { return (__m512bh)_mm512_loadu_si512(words); }

// Rounds one row of sums into z.
inline void StoreRow(const Bf16TileArgs& args, __mmask32 exist, __m512 left, __m512 right,
                     uint16_t* z) {
  if (args.bias != nullptr) {
    left = _mm512_add_ps(left, _mm512_loadu_ps(args.bias));
    right = _mm512_add_ps(right, _mm512_loadu_ps(args.bias + 16));
  }
  if (args.relu) {  // the second operand is the result when either is NaN
    left = _mm512_max_ps(_mm512_setzero_ps(), left);
    right = _mm512_max_ps(_mm512_setzero_ps(), right);
  }
  _mm512_mask_storeu_epi16(z, exist, (__m512i)_mm512_cvtne2ps_pbh(right, left));
}

template <int kRows>
bool Tile(const Bf16TileArgs& args) {
  __m512 sums[kRows][2];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      sums[r][v] =
          args.reads_sums ? _mm512_loadu_ps(args.sums + 32 * r + 16 * v) : _mm512_setzero_ps();
    }
  }
  const char* rows[kRows];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) rows[r] = static_cast<const char*>(args.a_rows[r]);
  const char* b = static_cast<const char*>(args.b);
  const auto multiply = [&](int64_t a_offset, int64_t b_offset) __attribute__((always_inline)) {
    const __m512bh left = PairsAt(b + b_offset), right = PairsAt(b + b_offset + 64);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      int pair;
      __builtin_memcpy(&pair, rows[r] + a_offset, sizeof(pair));
      const __m512bh element = (__m512bh)_mm512_set1_epi32(pair);
      sums[r][0] = _mm512_dpbf16_ps(sums[r][0], element, left);
      sums[r][1] = _mm512_dpbf16_ps(sums[r][1], element, right);
    }
  };
  const int64_t a_step = args.a_step, pairs = args.pairs;
  int64_t offset = 0, i = 0;
  if (a_step == 4) {  // neighbours: four steps from one set of addresses
    for (; i + 4 <= pairs; i += 4, offset += 16, b += 512) {
#pragma GCC unroll 4
      for (int step = 0; step < 4; ++step) multiply(offset + 4 * step, 128 * step);
    }
  }
  for (; i < pairs; ++i, offset += a_step, b += 128) multiply(offset, 0);
  if (args.z == nullptr) {
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      _mm512_storeu_ps(args.sums + 32 * r, sums[r][0]);
      _mm512_storeu_ps(args.sums + 32 * r + 16, sums[r][1]);
    }
    return true;
  }
  if (!args.keeps_nan) {
    unsigned unordered = 0;
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r)
      unordered |= _mm512_cmp_ps_mask(sums[r][0], sums[r][1], _CMP_UNORD_Q);
    if (unordered != 0) return false;
  }
  const __mmask32 exist = FirstOf32(args.columns);
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r)
    StoreRow(args, exist, sums[r][0], sums[r][1], args.z + r * args.z_stride);
  return true;
}

// Whether none of the sums is NaN.
bool AllAreNumbers(const float* sums, int64_t rows, int64_t second) {
  unsigned unordered = 0;
  for (int64_t r = 0; r < rows; ++r) {
    unordered |= _mm512_cmp_ps_mask(_mm512_loadu_ps(sums + 32 * r),
                                    _mm512_loadu_ps(sums + 32 * r + second), _CMP_UNORD_Q);
  }
  return unordered == 0;
}

bool Finish(const float* sums, int64_t rows, bool is_careful, const Bf16TileArgs& args) {
  const int64_t second = args.columns > 16 ? 16 : 0;  // the right half may not be there
  if (is_careful && !args.keeps_nan && !AllAreNumbers(sums, rows, second)) return false;
  const __mmask32 exist = FirstOf32(args.columns);
  uint16_t* z = args.z;
  __mmask16 unordered = 0;
  const bool is_plain = args.bias == nullptr && !args.relu;
  for (int64_t r = 0; r < rows; ++r, sums += 32, z += args.z_stride) {
    const __m512 left = _mm512_loadu_ps(sums), right = _mm512_loadu_ps(sums + second);
    unordered |= _mm512_cmp_ps_mask(left, right, _CMP_UNORD_Q);
    if (is_plain) {
      _mm512_mask_storeu_epi16(z, exist, (__m512i)_mm512_cvtne2ps_pbh(right, left));
    } else {
      StoreRow(args, exist, left, right, z);
    }
  }
  return unordered == 0 || args.keeps_nan;
}

void PackAcross(const uint16_t* source, int64_t row_stride, int64_t depth, int64_t columns,
                int64_t panel_words, uint32_t* words) {
  const __m512i left = FirstPairs(), right = _mm512_add_epi16(left, _mm512_set1_epi16(16));
  for (int64_t k = 0; k < depth; k += 2, source += 2 * row_stride, words += 32) {
    uint32_t* to = words;
    for (int64_t j = 0; j < columns; j += 32, to += panel_words) {
      const __mmask32 exist = FirstOf32(columns - j);
      const __m512i first = _mm512_maskz_loadu_epi16(exist, source + j);
      const __m512i second = k + 1 < depth
                                 ? _mm512_maskz_loadu_epi16(exist, source + row_stride + j)
                                 : _mm512_setzero_si512();
      _mm512_storeu_si512(to, _mm512_permutex2var_epi16(first, left, second));
      _mm512_storeu_si512(to + 16, _mm512_permutex2var_epi16(first, right, second));
    }
  }
}

// Sixteen rows of sixteen words.
void Transpose(__m512i (&v)[16]) {
  __m512i pairs[16], fours[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    pairs[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    fours[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
    fours[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
    fours[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
    fours[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
  }
  // Quarter q of fours[4 * g + c] is of rows 4 * g.. and of column 4 * q + c.
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512i low = _mm512_shuffle_i32x4(fours[c], fours[4 + c], 0x44);
    const __m512i high = _mm512_shuffle_i32x4(fours[c], fours[4 + c], 0xee);
    const __m512i next_low = _mm512_shuffle_i32x4(fours[8 + c], fours[12 + c], 0x44);
    const __m512i next_high = _mm512_shuffle_i32x4(fours[8 + c], fours[12 + c], 0xee);
    v[c] = _mm512_shuffle_i32x4(low, next_low, 0x88);
    v[4 + c] = _mm512_shuffle_i32x4(low, next_low, 0xdd);
    v[8 + c] = _mm512_shuffle_i32x4(high, next_high, 0x88);
    v[12 + c] = _mm512_shuffle_i32x4(high, next_high, 0xdd);
  }
}

void PackAlong(const uint16_t* source, int64_t column_stride, int64_t depth, int64_t columns,
               uint32_t* words) {
  const int64_t pairs = (depth + 1) / 2;
  for (int64_t half = 0; half < 32; half += 16) {
    const uint16_t* from = source + half * column_stride;
    for (int64_t i = 0; i < pairs; i += 16) {
      const __mmask32 exist = FirstOf32(depth - 2 * i);
      __m512i v[16];
#pragma GCC unroll 16
      for (int q = 0; q < 16; ++q) {
        v[q] = half + q < columns
                   ? _mm512_maskz_loadu_epi16(exist, from + q * column_stride + 2 * i)
                   : _mm512_setzero_si512();
      }
      Transpose(v);
      uint32_t* const to = words + i * 32 + half;
      const int64_t count = pairs - i < 16 ? pairs - i : 16;
#pragma GCC unroll 16
      for (int q = 0; q < 16; ++q) {
        if (q < count) _mm512_storeu_si512(to + q * 32, v[q]);
      }
    }
  }
}

void TurnRows(const uint16_t* source, int64_t inner_stride, int64_t depth, int64_t rows,
              uint16_t* to, int64_t to_stride) {
  const __m512i left = FirstPairs(), right = _mm512_add_epi16(left, _mm512_set1_epi16(16));
  const __mmask32 exist = FirstOf32(rows);
  for (int64_t k = 0; k < depth; k += 32, source += 32 * inner_stride, to += 32) {
    __m512i v[16], w[16];
#pragma GCC unroll 16
    for (int q = 0; q < 16; ++q) {
      const uint16_t* const from = source + 2 * q * inner_stride;
      const __m512i zero = _mm512_setzero_si512();
      const __m512i first = k + 2 * q < depth ? _mm512_maskz_loadu_epi16(exist, from) : zero;
      const __m512i second =
          k + 2 * q + 1 < depth ? _mm512_maskz_loadu_epi16(exist, from + inner_stride) : zero;
      v[q] = _mm512_permutex2var_epi16(first, left, second);
      w[q] = _mm512_permutex2var_epi16(first, right, second);
    }
    Transpose(v);
#pragma GCC unroll 16
    for (int q = 0; q < 16; ++q) _mm512_storeu_si512(to + q * to_stride, v[q]);
    Transpose(w);
#pragma GCC unroll 16
    for (int q = 0; q < 16; ++q) _mm512_storeu_si512(to + (16 + q) * to_stride, w[q]);
  }
}

void TurnSums(float* sums) {
  const auto turn = [&](float* from, float* other) __attribute__((always_inline)) {
    __m512i v[16], w[16];
#pragma GCC unroll 16
    for (int q = 0; q < 16; ++q) v[q] = _mm512_loadu_si512(from + 32 * q);
    Transpose(v);
    if (from != other) {
#pragma GCC unroll 16
      for (int q = 0; q < 16; ++q) w[q] = _mm512_loadu_si512(other + 32 * q);
      Transpose(w);
#pragma GCC unroll 16
      for (int q = 0; q < 16; ++q) _mm512_storeu_si512(from + 32 * q, w[q]);
    }
#pragma GCC unroll 16
    for (int q = 0; q < 16; ++q) _mm512_storeu_si512(other + 32 * q, v[q]);
  };
  turn(sums, sums);
  turn(sums + 16, sums + 512);
  turn(sums + 528, sums + 528);
}

template <int kRows>
void DotSomeRows(const uint16_t* rows, int64_t row_stride, const uint16_t* x, int64_t depth,
                 float* sums) {
  __m512 even[kRows], odd[kRows];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) even[r] = odd[r] = _mm512_setzero_ps();
  int64_t k = 0;
  for (; k + 64 <= depth; k += 64) {
    const __m512bh first = PairsAt(x + k), second = PairsAt(x + k + 32);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const uint16_t* const row = rows + r * row_stride + k;
      even[r] = _mm512_dpbf16_ps(even[r], PairsAt(row), first);
      odd[r] = _mm512_dpbf16_ps(odd[r], PairsAt(row + 32), second);
    }
  }
  for (; k < depth; k += 32) {
    const __mmask32 exist = FirstOf32(depth - k);
    const __m512bh first = (__m512bh)_mm512_maskz_loadu_epi16(exist, x + k);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      even[r] = _mm512_dpbf16_ps(
          even[r], (__m512bh)_mm512_maskz_loadu_epi16(exist, rows + r * row_stride + k), first);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) sums[r] = _mm512_reduce_add_ps(_mm512_add_ps(even[r], odd[r]));
}

void DotRows(const uint16_t* rows, int64_t row_stride, int64_t count, const uint16_t* x,
             int64_t depth, float* sums) {
  int64_t i = 0;
  for (; i + 4 <= count; i += 4)
    DotSomeRows<4>(rows + i * row_stride, row_stride, x, depth, sums + i);
  for (; i < count; ++i) DotSomeRows<1>(rows + i * row_stride, row_stride, x, depth, sums + i);
}

}  // namespace

const Bf16Tiles* Avx512Bf16Tiles() {
  static constexpr Bf16Tiles kTiles = {
      {nullptr, &Tile<1>, &Tile<2>, &Tile<3>, &Tile<4>, &Tile<5>, &Tile<6>, &Tile<7>, &Tile<8>,
       &Tile<9>, &Tile<10>, &Tile<11>, &Tile<12>},
      &PackAcross,
      &PackAlong,
      &TurnRows,
      &TurnSums,
      &Finish,
      &DotRows,
  };
  return &kTiles;
}

}  // namespace tidepool::cpu

#else

namespace tidepool::cpu {
const Bf16Tiles* Avx512Bf16Tiles() { return nullptr; }
}  // namespace tidepool::cpu

#endif  // defined(__x86_64__) && defined(__ELF__)
