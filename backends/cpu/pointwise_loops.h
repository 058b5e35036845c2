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

// 16-bit floats are converted to f32 and back in blocks; bool is u8.
enum LoopType { kLoopF32, kLoopF64, kLoopI8, kLoopU8, kLoopI32, kLoopI64 };
inline constexpr int kLoopTypes = 6;
inline constexpr int kFloatLoopTypes = 2;

// The operators a table has, of the names in operator_list.inc.
#define TIDEPOOL_CPU_NUMBER_OPERATORS(X)                                                   \
  X(Add) X(Subtract) X(Multiply) X(Divide) X(Maximum) X(Minimum) X(Power) X(Remainder)    \
  X(ScaleShift) X(Negate) X(Abs) X(Sign) X(Square) X(Clip)
#define TIDEPOOL_CPU_COMPARISONS(X) \
  X(Equal) X(NotEqual) X(Less) X(LessEqual) X(Greater) X(GreaterEqual)
#define TIDEPOOL_CPU_LOGIC(X) X(LogicalAnd) X(LogicalOr) X(LogicalXor) X(LogicalNot)
#define TIDEPOOL_CPU_CLASSIFIERS(X) X(IsNan) X(IsFinite)
#define TIDEPOOL_CPU_FUNCTIONS(X)                                                          \
  X(Sqrt) X(Rsqrt) X(Reciprocal) X(Exp) X(Expm1) X(Log) X(Log1p) X(Sin) X(Cos) X(Tanh)    \
  X(Sigmoid) X(Erf) X(Floor) X(Ceil) X(Round) X(Softplus) X(Relu) X(LeakyRelu) X(Elu)     \
  X(Gelu) X(Swish) X(ReluGrad) X(SigmoidGrad) X(TanhGrad) X(LeakyReluGrad) X(EluGrad)     \
  X(GeluGrad) X(SwishGrad) X(SoftplusGrad)

struct ArithmeticLoops {
#define TIDEPOOL_ROW(Name) PointwiseLoop Name[kLoopTypes];
  TIDEPOOL_CPU_NUMBER_OPERATORS(TIDEPOOL_ROW)
  TIDEPOOL_CPU_COMPARISONS(TIDEPOOL_ROW)
#undef TIDEPOOL_ROW
#define TIDEPOOL_ROW(Name) PointwiseLoop Name;
  TIDEPOOL_CPU_LOGIC(TIDEPOOL_ROW)
#undef TIDEPOOL_ROW
  PointwiseLoop Where[4];  // of 1, 2, 4, 8 bytes
};

struct FunctionLoops {
#define TIDEPOOL_ROW(Name) PointwiseLoop Name[kFloatLoopTypes];
  TIDEPOOL_CPU_CLASSIFIERS(TIDEPOOL_ROW)
  TIDEPOOL_CPU_FUNCTIONS(TIDEPOOL_ROW)
#undef TIDEPOOL_ROW
};

inline constexpr int kConvertTypes = 9;  // in the order of DType
struct ConversionLoops {
  PointwiseLoop convert[kConvertTypes][kConvertTypes];  // [from][to]
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
