#include "tidepool/ndarray/ops/reduction.h"

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/ops/checks.h"
#include "tidepool/ndarray/ops/elementwise.h"

namespace tidepool {
namespace {

NDArray Dense(const NDArray& x) { return x.is_dense() ? x : x.Dup(); }

// Summing nothing is zero; kernels are not called for it.
bool SumIsEmpty(const NDArray& x, NDArray& z) {
  if (x.NumElements() > 0) return false;
  if (z.NumElements() > 0) FillInto(0, z);
  return true;
}

Shape WithoutAxis(const Shape& shape, int axis) {
  int64_t dims[kMaxRank];
  int rank = 0;
  for (int i = 0; i < shape.rank(); ++i) {
    if (i != axis) dims[rank++] = shape[i];
  }
  return Shape(absl::Span<const int64_t>(dims, rank));
}

}  // namespace

NDArray Sum(const NDArray& x) {
  CheckOperands(OpCode::kSum, {&x});
  NDArray z({1}, x.dtype());
  if (!SumIsEmpty(x, z)) {
    const NDArray rows = Dense(x).Reshape({1, x.NumElements()});
    const SumAttributes attributes;
    Dispatch(OpCode::kSum, {&rows}, {&z}, &attributes);
  }
  return z.Reshape({});
}

NDArray Sum(const NDArray& x, int axis) {
  CheckOperands(OpCode::kSum, {&x});
  axis = NormalizeAxis("sum", axis, x.rank());
  if (axis != 0 && axis != x.rank() - 1) {
    ThrowUnimplemented(absl::StrCat("Op [sum]: axis ", axis, " of rank ", x.rank(),
                                    "; only the first and the last axis are built"));
  }
  NDArray z(WithoutAxis(x.shape(), axis), x.dtype());
  if (SumIsEmpty(x, z)) return z;
  const SumAttributes attributes{axis == 0 && x.rank() > 1};
  const int64_t n = x.dim(axis);
  const int64_t rest = x.NumElements() / n;
  const NDArray folded = Dense(x).Reshape(attributes.first_axis ? Shape{n, rest} : Shape{rest, n});
  NDArray flat = z.Reshape({rest});
  Dispatch(OpCode::kSum, {&folded}, {&flat}, &attributes);
  return z;
}

void SumToLastAxisInto(const NDArray& x, NDArray& z) {
  CheckOperands(OpCode::kSum, {&x});
  z.CheckAlive("sum", "Z");
  if (x.rank() == 0) ThrowInvalidArgument("Op [sum]: X has rank 0, expected at least 1");
  const int64_t n = x.dim(x.rank() - 1);
  CheckShape("sum", "Z", z, {n});
  CheckDType("sum", "Z", z, x.dtype());
  if (SumIsEmpty(x, z)) return;
  const NDArray folded = Dense(x).Reshape({x.NumElements() / n, n});
  const SumAttributes attributes{true};
  Dispatch(OpCode::kSum, {&folded}, {&z}, &attributes);
}

NDArray Mean(const NDArray& x) {
  x.CheckAlive("mean", "X");
  CheckDType("mean", "X", x, DType::kFloat32);
  NDArray sum = Sum(x);
  sum *= 1.0 / static_cast<double>(x.NumElements());
  return sum;
}

NDArray ArgMax(const NDArray& x) {
  CheckOperands(OpCode::kArgMax, {&x});
  if (x.rank() == 0 || x.dim(x.rank() - 1) == 0) {
    ThrowInvalidArgument(
        absl::StrCat("Op [argmax]: X has shape ", x.shape().ToString(), ", nothing to choose from"));
  }
  NDArray z(WithoutAxis(x.shape(), x.rank() - 1), DType::kInt64);
  const int64_t n = x.dim(x.rank() - 1);
  if (z.NumElements() == 0) return z;
  const NDArray folded = Dense(x).Reshape({x.NumElements() / n, n});
  NDArray flat = z.Reshape({x.NumElements() / n});
  Dispatch(OpCode::kArgMax, {&folded}, {&flat});
  return z;
}

}  // namespace tidepool
