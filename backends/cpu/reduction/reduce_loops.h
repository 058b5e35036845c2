// The loops of reductions, one table per reduction and element type, compiled for each set of instruction_set.h.
#ifndef TIDEPOOL_BACKENDS_CPU_REDUCTION_REDUCE_LOOPS_H_
#define TIDEPOOL_BACKENDS_CPU_REDUCTION_REDUCE_LOOPS_H_

#include <stdint.h>

namespace tidepool::cpu {

enum class ReduceKind : uint8_t {
  kSum,         // in the element's type within a block of 4096; integers modulo 2^64
  kWideSum,     // in double throughout
  kAbsSum,      // of |x|
  kSquareSum,   // of x^2, in double
  kDeviations,  // of (x - stat)^2, in double; stat: double
  kExpSum,      // of exp(x - stat), floats; stat: as the partial of kMax
  kProduct,
  kMax,
  kMin,
  kAbsMax,
  kAny,
  kAll,
  kArgMax,
  kArgMin,
};
inline constexpr int kReduceKinds = 14;

enum class ElementKind : uint8_t { kF32, kF64, kF16, kBF16, kI8, kU8, kI32, kI64 };  // bool: kU8
inline constexpr int kElementKinds = 8;

// What is known of an output before it is finished. Sums of floats, sums of integers as numbers, and
// products of f64:
struct DoubleSum {
  double high, low;  // high + low, where low is what roundings of high lost
};
// Sums and products of integers: uint64_t; products of other floats: double. Largest and smallest: float
// for 16-bit floats, otherwise the element's type; kAbsMax of integers: double; any, all: uint8_t.
template <typename T>
struct Placed {
  T value;
  int64_t index;
};

// Most columns a call takes: what it keeps of each lies on the stack.
inline constexpr int64_t kMaxColumns = 1024;

struct ReduceLoops {
  int64_t partial_bytes;
  int64_t slab_rows;  // most rows of a call of `columns`; more would lose digits
  // partials[r] = of x[r * row_stride .. + n). `base`: index of the first column, for places.
  // `stats`: one per row, or null. Strides in elements.
  void (*rows)(const void* x, int64_t rows, int64_t row_stride, int64_t n, int64_t base,
               const void* stats, void* partials);
  // partials[c] = of x[0..rows)[c]; `base`: index of the first row; `stats`: one per column.
  void (*columns)(const void* x, int64_t rows, int64_t row_stride, int64_t columns, int64_t base,
                  const void* stats, void* partials);
  // partials[i] joined with others[i], which come after it.
  void (*merge)(const void* others, void* partials, int64_t count);
};

// Null where there is none.
const ReduceLoops* FindReduceLoops(ReduceKind kind, ElementKind element);
const ReduceLoops* PortableReduceLoops(ReduceKind kind, ElementKind element);
const ReduceLoops* Avx2ReduceLoops(ReduceKind kind, ElementKind element);    // x86-64 only
const ReduceLoops* Avx512ReduceLoops(ReduceKind kind, ElementKind element);  // likewise

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_REDUCTION_REDUCE_LOOPS_H_
