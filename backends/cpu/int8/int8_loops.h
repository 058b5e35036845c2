// Loops of dense layers whose weights are of 8 bits and whose rows get their 8 bits when they come (int8_dense.h). All tables give
// the same bits: sums are of whole numbers, the rest is done element by element without fused operations.
#ifndef TIDEPOOL_BACKENDS_CPU_INT8_INT8_LOOPS_H_
#define TIDEPOOL_BACKENDS_CPU_INT8_INT8_LOOPS_H_

#include <cstdint>

namespace tidepool::cpu {

// Numbers that products take at once; rows in 8 bits are filled up to a multiple of them with zeros.
constexpr int64_t kInt8Step = 64;
constexpr int kMostInt8Rows = 4, kInt8Units = 4;

// How a number of a row becomes one of 8 bits: (number - low) / step, rounded to even, from 0 to 255.
struct RowRange {
  float low = 0;
  float inverse = 0;  // 1 / step
  double step = 0;    // 0: all of the row counts as `low`
};

struct Int8Loops {
  const char* name;
  // The least and the largest of `count` numbers; what is not a number does not count, and where none is, `low` is above `high`.
  void (*extremes)(const float* x, int64_t count, float* low, float* high);
  void (*quantise)(const float* x, int64_t count, const RowRange& range, uint8_t* to);
  // sums[r * kInt8Units + u], u below `units`: of products of x's row r and w's row u. `rows` 1 to kMostInt8Rows, `units` 1 or
  // kInt8Units; x has `steps` * kInt8Step numbers in a row, of w as many can be read.
  void (*products)(const uint8_t* x, int64_t x_stride, int rows, const int8_t* w, int64_t w_stride,
                   int units, int64_t steps, int32_t* sums);
  // z = before + (sums * step + weight_sums * low) * scales, in double, for `count` units of a row.
  void (*scale)(const int32_t* sums, const int32_t* weight_sums, const float* scales,
                const RowRange& range, const float* before, int64_t count, float* z);
};

// One table for each set; the latter two only where __x86_64__ is.
extern const Int8Loops kPortableInt8Loops;
extern const Int8Loops kAvx2Int8Loops;
extern const Int8Loops kVnniInt8Loops;  // InstructionSet::kAvx512Vnni

// What this process uses.
const Int8Loops& SelectedInt8Loops();

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_INT8_INT8_LOOPS_H_
