#include "tidepool/ndarray/ops/elementwise.h"

#include <cmath>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/ops/checks.h"
#include "tidepool/ndarray/ops/pointwise.h"
#include "tidepool/ndarray/value_checks.h"

namespace tidepool {
namespace {

// Integers have no infinity, no fraction to give; kernels rely on this, or look themselves.
void CheckDivisor(OpCode op, const NDArray& x, const NDArray& y) {
  if (x.NumElements() == 0) return;  // nothing is divided
  if (ChecksIntegerOperand(op) && !IsCheckedByKernels(y)) CheckIntegerOperand(op, y);
}

// Of operators/real_arithmetic.inc.
bool IsOfReals(OpCode op) { return Info(op).types == operator_list::kFloats; }

DType CheckedType(OpCode op, const NDArray& x, const NDArray& y) {
  CheckOperands(op, {&x, &y});
  const DType dtype = x.dtype() == y.dtype() ? x.dtype() : PromoteTypes(x.dtype(), y.dtype());
  if (IsOfReals(op)) return RealType(dtype);
  if (dtype == DType::kBool) CheckNumber(op, dtype);
  return dtype;
}

}  // namespace

NDArray Binary(OpCode op, const NDArray& x, const NDArray& y) {
  const DType dtype = CheckedType(op, x, y);
  const Shape shape = BroadcastShapes(Info(op).name, x.shape(), y.shape());
  if (x.dtype() != dtype || y.dtype() != dtype) {
    const NDArray of_x = CastScratch(x, dtype), of_y = CastScratch(y, dtype);
    CheckDivisor(op, of_x, of_y);
    NDArray z(shape, dtype, ResultPlace(op, {&x, &y}));
    Dispatch(op, {&of_x, &of_y}, {&z});
    return z;
  }
  CheckDivisor(op, x, y);
  NDArray z(shape, dtype, ResultPlace(op, {&x, &y}));
  Dispatch(op, {&x, &y}, {&z});
  return z;
}

void BinaryInto(OpCode op, const NDArray& x, const NDArray& y, NDArray& z) {
  const DType natural = CheckedType(op, x, y);
  z.CheckAlive(Info(op).name, "Z");
  const DType dtype = TypeForResult(op, {&x, &y}, natural, z);
  CheckShape(Info(op).name, "Z", z, BroadcastShapes(Info(op).name, x.shape(), y.shape()));
  if (x.dtype() != dtype || y.dtype() != dtype) {
    return BinaryInto(op, CastScratch(x, dtype), CastScratch(y, dtype), z);
  }
  CheckDivisor(op, x, y);
  Dispatch(op, {&x, &y}, {&z});
}

#define TIDEPOOL_BINARY(Name)                                                                \
  NDArray Name(const NDArray& x, const NDArray& y) { return Binary(OpCode::k##Name, x, y); } \
  void Name##Into(const NDArray& x, const NDArray& y, NDArray& z) {                          \
    BinaryInto(OpCode::k##Name, x, y, z);                                                    \
  }
#define TIDEPOOL_OPERATOR(Name, ...) TIDEPOOL_BINARY(Name)
#include "tidepool/ndarray/kernel/operators/arithmetic.inc"
#include "tidepool/ndarray/kernel/operators/real_arithmetic.inc"
#undef TIDEPOOL_OPERATOR
#undef TIDEPOOL_BINARY

NDArray ScaleShift(const NDArray& x, double scale, double shift) {
  CheckOperands(OpCode::kScaleShift, {&x});
  CheckNumber(OpCode::kScaleShift, x.dtype());
  const ScaleShiftAttributes attributes{scale, shift};
  return Pointwise(OpCode::kScaleShift, x, x.dtype(), &attributes);
}

void ScaleShiftInto(const NDArray& x, double scale, double shift, NDArray& z) {
  CheckOperands(OpCode::kScaleShift, {&x});
  CheckNumber(OpCode::kScaleShift, x.dtype());
  const ScaleShiftAttributes attributes{scale, shift};
  PointwiseInto(OpCode::kScaleShift, x, x.dtype(), z, &attributes);
}

void CopyInto(const NDArray& x, NDArray& z) {
  CheckOperands(OpCode::kCopy, {&x});
  z.CheckAlive("copy", "Z");
  CheckShape("copy", "Z", z, x.shape());
  Dispatch(OpCode::kCopy, {&x}, {&z});
}

NDArray Cast(const NDArray& x, DType dtype) {
  CheckOperands(OpCode::kCopy, {&x});
  if (x.dtype() == dtype) return x;
  NDArray z(x.shape(), dtype, ResultPlace("cast", {&x}));
  Dispatch(OpCode::kCopy, {&x}, {&z});
  return z;
}

NDArray& NDArray::operator+=(const NDArray& other) {
  return AddInto(*this, Apart(other, *this), *this), *this;
}
NDArray& NDArray::operator-=(const NDArray& other) {
  return SubtractInto(*this, Apart(other, *this), *this), *this;
}
NDArray& NDArray::operator*=(const NDArray& other) {
  return MultiplyInto(*this, Apart(other, *this), *this), *this;
}
NDArray& NDArray::operator/=(const NDArray& other) {
  return DivideInto(*this, Apart(other, *this), *this), *this;
}
NDArray& NDArray::operator+=(const Scalar& value) { return AddInto(*this, value, *this), *this; }
NDArray& NDArray::operator-=(const Scalar& value) {
  return SubtractInto(*this, value, *this), *this;
}
NDArray& NDArray::operator*=(const Scalar& value) {
  return MultiplyInto(*this, value, *this), *this;
}
NDArray& NDArray::operator/=(const Scalar& value) { return DivideInto(*this, value, *this), *this; }

}  // namespace tidepool
