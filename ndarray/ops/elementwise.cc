#include "tidepool/ndarray/ops/elementwise.h"

#include <cmath>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/strided_loop.h"
#include "tidepool/ndarray/ops/checks.h"
#include "tidepool/ndarray/ops/pointwise.h"

namespace tidepool {
namespace {

// Whether an integer array has an element that `is_bad`.
template <typename T, typename Predicate>
bool AnyElement(const NDArray& y, Predicate is_bad) {
  int64_t strides[1][kMaxRank];
  BroadcastStrides(y.rank(), y.shape().dims(), y.strides(), y.rank(), strides[0]);
  const auto* values = reinterpret_cast<const T*>(y.raw_data());
  bool any = false;
  ForEachRun<1>(y.rank(), y.shape().dims(), strides,
                [&](const int64_t* offset, int64_t count, const int64_t* stride) {
                  for (int64_t i = 0; i < count; ++i) any |= is_bad(values[offset[0] + i * stride[0]]);
                });
  return any;
}

// Integers have no infinity, no fraction to give; kernels rely on this.
void CheckIntegerOperand(OpCode op, const NDArray& y) {
  if (IsFloating(y.dtype())) return;
  if (y.device() != Host()) return CheckIntegerOperand(op, y.To(Host()));
  VisitDType(y.dtype(), [&](auto t) {
    using T = decltype(t);
    if constexpr (!kIsFloat<T> && !std::is_same_v<T, bool>) {
      if (op == OpCode::kPower) {
        if (!AnyElement<T>(y, [](T value) { return value < 0; })) return;
        ThrowInvalidArgument(absl::StrCat("Op [power]: Y of shape ", y.shape().ToString(),
                                          " has a negative element; integers have no negative "
                                          "powers, Cast to a float type"));
      }
      if (!AnyElement<T>(y, [](T value) { return value == 0; })) return;
      ThrowInvalidArgument(absl::StrCat("Op [", Info(op).name, "]: Y of shape ",
                                        y.shape().ToString(),
                                        " has a zero; integer division by zero is not defined"));
    }
  });
}

bool IsChecked(OpCode op) {
  return op == OpCode::kDivide || op == OpCode::kRemainder || op == OpCode::kPower || op == OpCode::kFMod ||
         op == OpCode::kFloorDivide;
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
    if (IsChecked(op)) CheckIntegerOperand(op, of_y);
    NDArray z(shape, dtype, ResultPlace(op, {&x, &y}));
    Dispatch(op, {&of_x, &of_y}, {&z});
    return z;
  }
  if (IsChecked(op)) CheckIntegerOperand(op, y);
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
  if (IsChecked(op)) CheckIntegerOperand(op, y);
  Dispatch(op, {&x, &y}, {&z});
}

#define TIDEPOOL_BINARY(Name)                                                             \
  NDArray Name(const NDArray& x, const NDArray& y) { return Binary(OpCode::k##Name, x, y); } \
  void Name##Into(const NDArray& x, const NDArray& y, NDArray& z) {                       \
    BinaryInto(OpCode::k##Name, x, y, z);                                                 \
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
NDArray& NDArray::operator-=(const Scalar& value) { return SubtractInto(*this, value, *this), *this; }
NDArray& NDArray::operator*=(const Scalar& value) { return MultiplyInto(*this, value, *this), *this; }
NDArray& NDArray::operator/=(const Scalar& value) { return DivideInto(*this, value, *this), *this; }

}  // namespace tidepool
