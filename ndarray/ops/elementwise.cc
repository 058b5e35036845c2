#include "tidepool/ndarray/ops/elementwise.h"

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/ops/checks.h"

namespace tidepool {
namespace {

void CheckBinary(OpCode op, const NDArray& x, const NDArray& y) {
  CheckOperands(op, {&x, &y});
  if (x.dtype() != y.dtype()) {
    ThrowInvalidArgument(absl::StrCat("Op [", Info(op).name, "]: X is ", DTypeName(x.dtype()),
                                      ", Y is ", DTypeName(y.dtype()), ", expected one type"));
  }
}

NDArray Binary(OpCode op, const NDArray& x, const NDArray& y) {
  CheckBinary(op, x, y);
  NDArray z(BroadcastShapes(Info(op).name, x.shape(), y.shape()), x.dtype());
  Dispatch(op, {&x, &y}, {&z});
  return z;
}

void BinaryInto(OpCode op, const NDArray& x, const NDArray& y, NDArray& z) {
  CheckBinary(op, x, y);
  z.CheckAlive(Info(op).name, "Z");
  CheckDType(Info(op).name, "Z", z, x.dtype());
  CheckShape(Info(op).name, "Z", z, BroadcastShapes(Info(op).name, x.shape(), y.shape()));
  Dispatch(op, {&x, &y}, {&z});
}

void CheckLike(OpCode op, const NDArray& x, const NDArray& z) {
  CheckOperands(op, {&x});
  z.CheckAlive(Info(op).name, "Z");
  CheckDType(Info(op).name, "Z", z, x.dtype());
  CheckShape(Info(op).name, "Z", z, x.shape());
}

}  // namespace

NDArray Add(const NDArray& x, const NDArray& y) { return Binary(OpCode::kAdd, x, y); }
NDArray Subtract(const NDArray& x, const NDArray& y) { return Binary(OpCode::kSubtract, x, y); }
NDArray Multiply(const NDArray& x, const NDArray& y) { return Binary(OpCode::kMultiply, x, y); }
NDArray Divide(const NDArray& x, const NDArray& y) { return Binary(OpCode::kDivide, x, y); }
void AddInto(const NDArray& x, const NDArray& y, NDArray& z) { BinaryInto(OpCode::kAdd, x, y, z); }
void SubtractInto(const NDArray& x, const NDArray& y, NDArray& z) {
  BinaryInto(OpCode::kSubtract, x, y, z);
}
void MultiplyInto(const NDArray& x, const NDArray& y, NDArray& z) {
  BinaryInto(OpCode::kMultiply, x, y, z);
}
void DivideInto(const NDArray& x, const NDArray& y, NDArray& z) {
  BinaryInto(OpCode::kDivide, x, y, z);
}

NDArray ScaleShift(const NDArray& x, double scale, double shift) {
  CheckOperands(OpCode::kScaleShift, {&x});
  NDArray z(x.shape(), x.dtype());
  const ScaleShiftAttributes attributes{scale, shift};
  Dispatch(OpCode::kScaleShift, {&x}, {&z}, &attributes);
  return z;
}

void ScaleShiftInto(const NDArray& x, double scale, double shift, NDArray& z) {
  CheckLike(OpCode::kScaleShift, x, z);
  const ScaleShiftAttributes attributes{scale, shift};
  Dispatch(OpCode::kScaleShift, {&x}, {&z}, &attributes);
}

NDArray Relu(const NDArray& x) {
  CheckOperands(OpCode::kRelu, {&x});
  NDArray z(x.shape(), x.dtype());
  Dispatch(OpCode::kRelu, {&x}, {&z});
  return z;
}

void ReluInto(const NDArray& x, NDArray& z) {
  CheckLike(OpCode::kRelu, x, z);
  Dispatch(OpCode::kRelu, {&x}, {&z});
}

void ReluGradInto(const NDArray& z, const NDArray& dz, NDArray& dx) {
  CheckOperands(OpCode::kReluGrad, {&z, &dz});
  CheckShape("relu_grad", "dZ", dz, z.shape());
  CheckDType("relu_grad", "dZ", dz, z.dtype());
  CheckShape("relu_grad", "dX", dx, z.shape());
  CheckDType("relu_grad", "dX", dx, z.dtype());
  Dispatch(OpCode::kReluGrad, {&z, &dz}, {&dx});
}

void CopyInto(const NDArray& x, NDArray& z) {
  CheckOperands(OpCode::kCopy, {&x});
  z.CheckAlive("copy", "Z");
  CheckShape("copy", "Z", z, x.shape());
  Dispatch(OpCode::kCopy, {&x}, {&z});
}

void FillInto(double value, NDArray& z) {
  z.CheckAlive("fill", "Z");
  const FillAttributes attributes{value};
  Dispatch(OpCode::kFill, {}, {&z}, &attributes);
}

NDArray& NDArray::operator+=(const NDArray& other) { return AddInto(*this, other, *this), *this; }
NDArray& NDArray::operator-=(const NDArray& other) {
  return SubtractInto(*this, other, *this), *this;
}
NDArray& NDArray::operator*=(const NDArray& other) {
  return MultiplyInto(*this, other, *this), *this;
}
NDArray& NDArray::operator/=(const NDArray& other) { return DivideInto(*this, other, *this), *this; }
NDArray& NDArray::operator+=(double value) { return ScaleShiftInto(*this, 1, value, *this), *this; }
NDArray& NDArray::operator-=(double value) { return ScaleShiftInto(*this, 1, -value, *this), *this; }
NDArray& NDArray::operator*=(double value) { return ScaleShiftInto(*this, value, 0, *this), *this; }
NDArray& NDArray::operator/=(double value) {
  return ScaleShiftInto(*this, 1 / value, 0, *this), *this;
}

}  // namespace tidepool
