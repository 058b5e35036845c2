// What all products of bf16 do with single elements: how C enters the sums, and what becomes of results that are NaN.
#ifndef TIDEPOOL_BACKENDS_CPU_GEMM_BF16_SUMS_H_
#define TIDEPOOL_BACKENDS_CPU_GEMM_BF16_SUMS_H_

#include <stdint.h>

#include "tidepool/backends/cpu/gemm/gemm_bf16.h"

namespace tidepool::cpu {

inline float Bf16Widened(uint16_t x) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(x) << 16);
}
// As BFloat16 of ndarray/float16.h rounds.
inline uint16_t Bf16Rounded(float x) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// A part of C.
struct Bf16Block {
  int64_t row, rows, column, columns;
};

// The block of C as its sums begin: panels of 32 columns, each of `panel_rows` rows, of which those are written that exist.
void ReadBf16Sums(const GemmBf16Problem& p, const Bf16Block& block, int64_t panel_rows,
                  float* sums);

// What C becomes at one place, one product after the other in float: NaN of the instruction may be infinity times a denormal
// number, which is infinity.
float SlowBf16Sum(const GemmBf16Problem& p, int64_t row, int64_t column);

// Writes a block of at most 16 rows and 32 columns whose results [rows][32] have NaN: those elements again that NaN of an operand
// does not explain, the others as they are.
void StoreBf16WithNan(const GemmBf16Problem& p, const Bf16Block& block, const uint16_t* results);

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_GEMM_BF16_SUMS_H_
