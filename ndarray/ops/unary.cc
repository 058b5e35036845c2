#include "tidepool/ndarray/ops/unary.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/kernel/attributes_elementwise.h"
#include "tidepool/ndarray/ops/pointwise.h"

namespace tidepool {
namespace {

// The type of an operator that keeps it.
DType NumberType(OpCode op, const NDArray& x) {
  CheckOperands(op, {&x});
  CheckNumber(op, x.dtype());
  return x.dtype();
}

DType RealTypeOf(OpCode op, const NDArray& x) {
  CheckOperands(op, {&x});
  return RealType(x.dtype());
}

void CheckBounds(DType dtype, double low, double high) {
  if (!(low <= high)) {
    ThrowInvalidArgument(
        absl::StrCat("Op [clip]: low is ", low, ", high is ", high, ", expected low <= high"));
  }
  if (IsFloating(dtype) || (low == std::trunc(low) && high == std::trunc(high))) return;
  ThrowInvalidArgument(absl::StrCat("Op [clip]: low is ", low, ", high is ", high, ", X is ",
                                    DTypeName(dtype), ", expected whole numbers"));
}

}  // namespace

#define TIDEPOOL_UNARY(Name, Type)                                                            \
  NDArray Name(const NDArray& x) {                                                            \
    return Pointwise(OpCode::k##Name, x, Type(OpCode::k##Name, x));                           \
  }                                                                                           \
  void Name##Into(const NDArray& x, NDArray& z) {                                             \
    PointwiseInto(OpCode::k##Name, x, Type(OpCode::k##Name, x), z);                           \
  }
TIDEPOOL_UNARY(Negate, NumberType)
TIDEPOOL_UNARY(Abs, NumberType)
TIDEPOOL_UNARY(Sign, NumberType)
TIDEPOOL_UNARY(Square, NumberType)
TIDEPOOL_UNARY(Sqrt, RealTypeOf)
TIDEPOOL_UNARY(Rsqrt, RealTypeOf)
TIDEPOOL_UNARY(Reciprocal, RealTypeOf)
TIDEPOOL_UNARY(Exp, RealTypeOf)
TIDEPOOL_UNARY(Expm1, RealTypeOf)
TIDEPOOL_UNARY(Log, RealTypeOf)
TIDEPOOL_UNARY(Log1p, RealTypeOf)
TIDEPOOL_UNARY(Sin, RealTypeOf)
TIDEPOOL_UNARY(Cos, RealTypeOf)
TIDEPOOL_UNARY(Tanh, RealTypeOf)
TIDEPOOL_UNARY(Sigmoid, RealTypeOf)
TIDEPOOL_UNARY(Erf, RealTypeOf)
TIDEPOOL_UNARY(Floor, RealTypeOf)
TIDEPOOL_UNARY(Ceil, RealTypeOf)
TIDEPOOL_UNARY(Round, RealTypeOf)
TIDEPOOL_UNARY(Tan, RealTypeOf)
TIDEPOOL_UNARY(Asin, RealTypeOf)
TIDEPOOL_UNARY(Acos, RealTypeOf)
TIDEPOOL_UNARY(Atan, RealTypeOf)
TIDEPOOL_UNARY(Sinh, RealTypeOf)
TIDEPOOL_UNARY(Cosh, RealTypeOf)
TIDEPOOL_UNARY(Asinh, RealTypeOf)
TIDEPOOL_UNARY(Acosh, RealTypeOf)
TIDEPOOL_UNARY(Atanh, RealTypeOf)
TIDEPOOL_UNARY(Log2, RealTypeOf)
TIDEPOOL_UNARY(Log10, RealTypeOf)
TIDEPOOL_UNARY(Exp2, RealTypeOf)
TIDEPOOL_UNARY(Cbrt, RealTypeOf)
TIDEPOOL_UNARY(Trunc, RealTypeOf)
TIDEPOOL_UNARY(Softplus, RealTypeOf)
#undef TIDEPOOL_UNARY

NDArray Clip(const NDArray& x, double low, double high) {
  const DType dtype = NumberType(OpCode::kClip, x);
  CheckBounds(dtype, low, high);
  const ClipAttributes attributes{low, high};
  return Pointwise(OpCode::kClip, x, dtype, &attributes);
}

void ClipInto(const NDArray& x, double low, double high, NDArray& z) {
  const DType dtype = NumberType(OpCode::kClip, x);
  CheckBounds(dtype, low, high);
  const ClipAttributes attributes{low, high};
  PointwiseInto(OpCode::kClip, x, dtype, z, &attributes);
}

}  // namespace tidepool
