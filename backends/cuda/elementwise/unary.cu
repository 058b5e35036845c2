// Functions of one operand that are exact up to one rounding.
#include "tidepool/backends/cuda/elementwise/basic_functions.h"
#include "tidepool/backends/cuda/elementwise/register.h"
#include "tidepool/backends/cuda/framework/math.h"
#include "tidepool/ndarray/kernel/attributes_elementwise.h"

namespace tidepool::cuda {
namespace {

struct SignFunction {
  template <typename T>
  __device__ T operator()(T x) const {
    if constexpr (std::is_unsigned_v<T>) {
      return x > T(0) ? T(1) : x;
    } else {
      return x > T(0) ? T(1) : x < T(0) ? static_cast<T>(-1) : x;
    }
  }
};
template <typename T>
struct ClipFunction {
  explicit ClipFunction(const KernelCall& call)
      : low(ToCompute(ClipBound<T>(call.attrs<ClipAttributes>().low))),
        high(ToCompute(ClipBound<T>(call.attrs<ClipAttributes>().high))) {}
  __device__ Compute<T> operator()(Compute<T> x) const { return Clipped(x, low, high); }

  Compute<T> low, high;
};

bool AddClip() {
  ForEachType(NumberTypes(), [](auto t) {
    using T = decltype(t);
    AddKernel(OpCode::kClip, DTypeOf<T>::value, &RunFunction<ClipFunction<T>, T, T>, true);
  });
  return true;
}

#define TIDEPOOL_FUNCTION(Name, expression)  \
  struct Name {                              \
    template <typename T>                    \
    __device__ T operator()(T x) const {     \
      return expression;                     \
    }                                        \
  };
TIDEPOOL_FUNCTION(SqrtFunction, Sqrt(x))
TIDEPOOL_FUNCTION(RsqrtFunction, T(1) / Sqrt(x))
TIDEPOOL_FUNCTION(ReciprocalFunction, T(1) / x)
TIDEPOOL_FUNCTION(FloorFunction, Floor(x))
TIDEPOOL_FUNCTION(CeilFunction, Ceil(x))
TIDEPOOL_FUNCTION(RoundFunction, Rint(x))
#undef TIDEPOOL_FUNCTION

const bool registered[] = {
    AddUnary<NegateFunction>(OpCode::kNegate, NumberTypes()),
    AddUnary<AbsFunction>(OpCode::kAbs, NumberTypes()),
    AddUnary<SignFunction>(OpCode::kSign, NumberTypes()),
    AddUnary<SquareFunction>(OpCode::kSquare, NumberTypes()),
    AddClip(),
    AddUnary<SqrtFunction>(OpCode::kSqrt, FloatTypes()),
    AddUnary<RsqrtFunction>(OpCode::kRsqrt, FloatTypes()),
    AddUnary<ReciprocalFunction>(OpCode::kReciprocal, FloatTypes()),
    AddUnary<FloorFunction>(OpCode::kFloor, FloatTypes()),
    AddUnary<CeilFunction>(OpCode::kCeil, FloatTypes()),
    AddUnary<RoundFunction>(OpCode::kRound, FloatTypes()),
    AddUnary<ReluFunction>(OpCode::kRelu, FloatTypes()),
};

}  // namespace
}  // namespace tidepool::cuda
