#include "tidepool/ndarray/ops/unary.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/kernel/attributes_elementwise.h"
#include "tidepool/ndarray/ops/activation.h"
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

#define TIDEPOOL_UNARY(Name, Type)                                  \
  NDArray Name(const NDArray& x) {                                  \
    return Pointwise(OpCode::k##Name, x, Type(OpCode::k##Name, x)); \
  }                                                                 \
  void Name##Into(const NDArray& x, NDArray& z) {                   \
    PointwiseInto(OpCode::k##Name, x, Type(OpCode::k##Name, x), z); \
  }
#define TIDEPOOL_OPERATOR(Name, ...) TIDEPOOL_UNARY(Name, NumberType)
#include "tidepool/ndarray/kernel/operators/number_functions.inc"
#undef TIDEPOOL_OPERATOR
#define TIDEPOOL_OPERATOR(Name, ...) TIDEPOOL_UNARY(Name, RealTypeOf)
#include "tidepool/ndarray/kernel/operators/functions.inc"
#undef TIDEPOOL_OPERATOR
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
