#include "tidepool/ndarray/ops/elementwise.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/strided_loop.h"
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

// Integers have no infinity to give; kernels rely on this.
void CheckDivisor(const NDArray& y) {
  if (y.dtype() != DType::kInt64) return;
  int64_t strides[1][kMaxRank];
  BroadcastStrides(y.rank(), y.shape().dims(), y.strides(), y.rank(), strides[0]);
  const auto* values = reinterpret_cast<const int64_t*>(y.raw_data());
  ForEachRun<1>(y.rank(), y.shape().dims(), strides,
                [&](const int64_t* offset, int64_t count, const int64_t* stride) {
                  for (int64_t i = 0; i < count; ++i) {
                    if (values[offset[0] + i * stride[0]] != 0) continue;
                    ThrowInvalidArgument(absl::StrCat(
                        "Op [divide]: Y of shape ", y.shape().ToString(),
                        " has a zero; integer division by zero is not defined"));
                  }
                });
}

NDArray Binary(OpCode op, const NDArray& x, const NDArray& y) {
  CheckBinary(op, x, y);
  const Shape shape = BroadcastShapes(Info(op).name, x.shape(), y.shape());
  if (op == OpCode::kDivide) CheckDivisor(y);
  NDArray z(shape, x.dtype());
  Dispatch(op, {&x, &y}, {&z});
  return z;
}

void BinaryInto(OpCode op, const NDArray& x, const NDArray& y, NDArray& z) {
  CheckBinary(op, x, y);
  z.CheckAlive(Info(op).name, "Z");
  CheckDType(Info(op).name, "Z", z, x.dtype());
  CheckShape(Info(op).name, "Z", z, BroadcastShapes(Info(op).name, x.shape(), y.shape()));
  if (op == OpCode::kDivide) CheckDivisor(y);
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
  dx.CheckAlive("relu_grad", "dX");
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

NDArray Cast(const NDArray& x, DType dtype) {
  CheckOperands(OpCode::kCopy, {&x});
  if (x.dtype() == dtype) return x;
  NDArray z(x.shape(), dtype);
  Dispatch(OpCode::kCopy, {&x}, {&z});
  return z;
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
  CheckAlive("divide", "X");
  if (dtype_ == DType::kFloat32) return ScaleShiftInto(*this, 1 / value, 0, *this), *this;
  // 1 / value is not exact: 49 * (1.0 / 49) truncates to 0.
  if (value != std::trunc(value) || !(std::abs(value) < 0x1p63)) {
    ThrowInvalidArgument(absl::StrCat("Op [divide]: an i64 array is divided in place by ", value,
                                      ", expected a whole number that i64 holds"));
  }
  return DivideInto(*this, Full({}, value, DType::kInt64, Place::Heap()), *this), *this;
}

}  // namespace tidepool
