// Loops over contiguous elements for every elementwise operator, compiled for each set of
// instruction_set.h. ThisMachine() gives the tables for this one.
//
// Rows of a table are operators in the order of the lists below; columns are types (LoopType).
#ifndef TIDEPOOL_BACKENDS_CPU_POINTWISE_LOOPS_H_
#define TIDEPOOL_BACKENDS_CPU_POINTWISE_LOOPS_H_

#include <stddef.h>
#include <stdint.h>

namespace tidepool::cpu {

// Of numbers of any type. i64 and double because neither holds the other's numbers.
struct LoopParameters {
  double reals[2] = {0, 0};
  int64_t wholes[2] = {0, 0};
  bool use_wholes = false;  // ScaleShift of integers
  bool tanh_form = false;   // Gelu
};

// z[i] = op(x0[i], x1[i], ...) for i < n. z may be one of the inputs, but not overlap otherwise.
using PointwiseLoop = void (*)(const void* const* inputs, void* z, int64_t n,
                               const LoopParameters& parameters);

// 16-bit floats are converted to f32 and back in blocks, i16 and u16 to i32, u32 to i64; bool is u8.
enum LoopType { kLoopF32, kLoopF64, kLoopI8, kLoopU8, kLoopI32, kLoopI64, kLoopU64 };
inline constexpr int kLoopTypes = 7;
inline constexpr int kFloatLoopTypes = 2;

// A table has the operators of the families of operator_list.inc, by their codes.
struct ArithmeticLoops {
#define TIDEPOOL_OPERATOR(Name, ...) PointwiseLoop Name[kLoopTypes];
// Members of the table, in its order.
// clang-format off
#include "tidepool/ndarray/kernel/operators/arithmetic.inc"
#include "tidepool/ndarray/kernel/operators/number_functions.inc"
#include "tidepool/ndarray/kernel/operators/bits.inc"
#include "tidepool/ndarray/kernel/operators/comparisons.inc"
// clang-format on
#undef TIDEPOOL_OPERATOR
#define TIDEPOOL_OPERATOR(Name, ...) PointwiseLoop Name;
#include "tidepool/ndarray/kernel/operators/logic.inc"
#undef TIDEPOOL_OPERATOR
  PointwiseLoop LogicalNot;
  PointwiseLoop ScaleShift[kLoopTypes], Clip[kLoopTypes];
  PointwiseLoop Where[4];  // of 1, 2, 4, 8 bytes
};

struct FunctionLoops {
#define TIDEPOOL_OPERATOR(Name, ...) PointwiseLoop Name[kFloatLoopTypes];
// Members of the table, in its order.
// clang-format off
#include "tidepool/ndarray/kernel/operators/classifiers.inc"
#include "tidepool/ndarray/kernel/operators/functions.inc"
#include "tidepool/ndarray/kernel/operators/function_gradients.inc"
#include "tidepool/ndarray/kernel/operators/real_arithmetic.inc"
// clang-format on
#undef TIDEPOOL_OPERATOR
  PointwiseLoop LeakyRelu[kFloatLoopTypes], Elu[kFloatLoopTypes], Gelu[kFloatLoopTypes];
  PointwiseLoop LeakyReluGrad[kFloatLoopTypes], EluGrad[kFloatLoopTypes], GeluGrad[kFloatLoopTypes];
};

inline constexpr int kConvertTypes =
    9;  // in the order of DType; the types behind them go through these
struct ConversionLoops {
  PointwiseLoop convert[kConvertTypes][kConvertTypes];  // [from][to]
  PointwiseLoop i16_to_i32, u16_to_i32, i32_to_16_bits, u32_to_i64;
  PointwiseLoop u64_to_f32, u64_to_f64, u64_to_f16, u64_to_bf16, f32_to_u64, f64_to_u64;
  // memcpy past the caches; `to` is aligned to 32 bytes, `bytes` a multiple of 32.
  void (*stream)(const void* from, void* to, int64_t bytes);
};

struct PointwiseLoops {
  const char* name;
  const ArithmeticLoops* arithmetic;
  const FunctionLoops* functions;
  const ConversionLoops* conversions;
};

extern const PointwiseLoops kPortablePointwise;
extern const PointwiseLoops kAvx2Pointwise, kAvx512Pointwise;  // x86-64 only
const PointwiseLoops& ThisMachine();

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_POINTWISE_LOOPS_H_
