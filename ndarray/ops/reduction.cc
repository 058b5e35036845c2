#include "tidepool/ndarray/ops/reduction.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/kernel/attributes_reduction.h"
#include "tidepool/ndarray/kernel/op_code.h"
#include "tidepool/ndarray/ops/checks.h"
#include "tidepool/ndarray/ops/elementwise.h"

namespace tidepool {
namespace {

DType ResultType(OpCode op, DType x) {
  switch (op) {
    case OpCode::kSum:
    case OpCode::kProd:
      return TotalType(x);
    case OpCode::kMean:
    case OpCode::kVariance:
    case OpCode::kNorm1:
    case OpCode::kNorm2:
    case OpCode::kNormInf:
      return IsFloating(x) ? x : DType::kFloat64;
    case OpCode::kAny:
    case OpCode::kAll:
      return DType::kBool;
    case OpCode::kArgMax:
    case OpCode::kArgMin:
      return DType::kInt64;
    default:
      return x;
  }
}

double OfNothing(OpCode op) {
  switch (op) {
    case OpCode::kProd:
    case OpCode::kAll:
      return 1;
    case OpCode::kMean:
    case OpCode::kVariance:
      return std::numeric_limits<double>::quiet_NaN();
    case OpCode::kLogSumExp:
      return -std::numeric_limits<double>::infinity();
    default:
      return 0;
  }
}

bool NeedsElements(OpCode op) {
  return op == OpCode::kMax || op == OpCode::kMin || op == OpCode::kArgMax || op == OpCode::kArgMin;
}

// The shape of the axes that stay; with `keep_dims` the others are there with size 1.
Shape KeptShape(const Shape& shape, uint32_t axes, bool keep_dims) {
  int64_t dims[kMaxRank];
  int rank = 0;
  for (int i = 0; i < shape.rank(); ++i) {
    if ((axes >> i & 1) == 0) {
      dims[rank++] = shape[i];
    } else if (keep_dims) {
      dims[rank++] = 1;
    }
  }
  return Shape(absl::Span<const int64_t>(dims, rank));
}

int64_t ReducedCount(const Shape& shape, uint32_t axes) {
  int64_t count = 1;
  for (int i = 0; i < shape.rank(); ++i) {
    if ((axes >> i & 1) != 0) count *= shape[i];
  }
  return count;
}

// What can be refused before there is an output.
ReduceAttributes Check(OpCode op, const NDArray& x, const Axes& axes, int64_t ddof) {
  CheckOperands(op, {&x});
  const char* name = Info(op).name;
  if (!Contains(Info(op).types, x.dtype())) {
    ThrowInvalidArgument(absl::StrCat("Op [", name, "]: X is ", DTypeName(x.dtype()), ", expected ",
                                      op == OpCode::kLogSumExp ? "a float type" : "a number type"));
  }
  const ReduceAttributes attributes{axes.Mask(name, x.rank()), ddof};
  if (ddof < 0) {
    ThrowInvalidArgument(absl::StrCat("Op [", name, "]: ddof is ", ddof, ", expected at least 0"));
  }
  if (NeedsElements(op) && ReducedCount(x.shape(), attributes.axes) == 0) {
    ThrowInvalidArgument(absl::StrCat("Op [", name, "]: X has shape ", x.shape().ToString(),
                                      ", nothing to choose from"));
  }
  return attributes;
}

// `z` has the axes that stay and no others.
void Run(OpCode op, const NDArray& x, const ReduceAttributes& attributes, NDArray& z) {
  if (z.NumElements() == 0) return;
  if (x.NumElements() == 0) return FillInto(OfNothing(op), z);
  Dispatch(op, {&x}, {&z}, &attributes);
}

NDArray Reduce(OpCode op, const NDArray& x, const Axes& axes, bool keep_dims, int64_t ddof = 0) {
  const ReduceAttributes attributes = Check(op, x, axes, ddof);
  NDArray z(KeptShape(x.shape(), attributes.axes, false), ResultType(op, x.dtype()),
            ResultPlace(op, {&x}));
  Run(op, x, attributes, z);
  return keep_dims ? z.Reshape(KeptShape(x.shape(), attributes.axes, true)) : z;
}

void ReduceInto(OpCode op, const NDArray& x, const Axes& axes, NDArray& z, int64_t ddof = 0) {
  const ReduceAttributes attributes = Check(op, x, axes, ddof);
  const char* name = Info(op).name;
  z.CheckAlive(name, "Z");
  CheckDType(name, "Z", z, ResultType(op, x.dtype()));
  if (!(z.shape() == KeptShape(x.shape(), attributes.axes, true))) {
    CheckShape(name, "Z", z, KeptShape(x.shape(), attributes.axes, false));
    return Run(op, x, attributes, z);
  }
  NDArray kept = z;
  for (int axis = x.rank() - 1; axis >= 0; --axis) {
    if (IsReduced(attributes, axis)) kept = kept.Index(axis, 0);
  }
  Run(op, x, attributes, kept);
}

NDArray Arg(OpCode op, const NDArray& x, int axis, bool keep_dims) {
  CheckOperands(op, {&x});
  // The one element there is.
  if (x.rank() == 0 && (axis == 0 || axis == -1)) return Reduce(op, x.Reshape({1}), 0, false);
  return Reduce(op, x, axis, keep_dims);
}

}  // namespace

NDArray Sum(const NDArray& x, const Axes& axes, bool keep_dims) {
  return Reduce(OpCode::kSum, x, axes, keep_dims);
}
NDArray Prod(const NDArray& x, const Axes& axes, bool keep_dims) {
  return Reduce(OpCode::kProd, x, axes, keep_dims);
}
NDArray Mean(const NDArray& x, const Axes& axes, bool keep_dims) {
  return Reduce(OpCode::kMean, x, axes, keep_dims);
}
NDArray Variance(const NDArray& x, const Axes& axes, int64_t ddof, bool keep_dims) {
  return Reduce(OpCode::kVariance, x, axes, keep_dims, ddof);
}
NDArray Norm1(const NDArray& x, const Axes& axes, bool keep_dims) {
  return Reduce(OpCode::kNorm1, x, axes, keep_dims);
}
NDArray Norm2(const NDArray& x, const Axes& axes, bool keep_dims) {
  return Reduce(OpCode::kNorm2, x, axes, keep_dims);
}
NDArray NormInf(const NDArray& x, const Axes& axes, bool keep_dims) {
  return Reduce(OpCode::kNormInf, x, axes, keep_dims);
}
NDArray LogSumExp(const NDArray& x, const Axes& axes, bool keep_dims) {
  return Reduce(OpCode::kLogSumExp, x, axes, keep_dims);
}
NDArray Max(const NDArray& x, const Axes& axes, bool keep_dims) {
  return Reduce(OpCode::kMax, x, axes, keep_dims);
}
NDArray Min(const NDArray& x, const Axes& axes, bool keep_dims) {
  return Reduce(OpCode::kMin, x, axes, keep_dims);
}
NDArray Any(const NDArray& x, const Axes& axes, bool keep_dims) {
  return Reduce(OpCode::kAny, x, axes, keep_dims);
}
NDArray All(const NDArray& x, const Axes& axes, bool keep_dims) {
  return Reduce(OpCode::kAll, x, axes, keep_dims);
}
NDArray ArgMax(const NDArray& x, int axis, bool keep_dims) {
  return Arg(OpCode::kArgMax, x, axis, keep_dims);
}
NDArray ArgMin(const NDArray& x, int axis, bool keep_dims) {
  return Arg(OpCode::kArgMin, x, axis, keep_dims);
}

void SumInto(const NDArray& x, const Axes& axes, NDArray& z) {
  ReduceInto(OpCode::kSum, x, axes, z);
}
void MeanInto(const NDArray& x, const Axes& axes, NDArray& z) {
  ReduceInto(OpCode::kMean, x, axes, z);
}
void VarianceInto(const NDArray& x, const Axes& axes, int64_t ddof, NDArray& z) {
  ReduceInto(OpCode::kVariance, x, axes, z, ddof);
}
void MaxInto(const NDArray& x, const Axes& axes, NDArray& z) {
  ReduceInto(OpCode::kMax, x, axes, z);
}
void MinInto(const NDArray& x, const Axes& axes, NDArray& z) {
  ReduceInto(OpCode::kMin, x, axes, z);
}
void Norm2Into(const NDArray& x, const Axes& axes, NDArray& z) {
  ReduceInto(OpCode::kNorm2, x, axes, z);
}
void LogSumExpInto(const NDArray& x, const Axes& axes, NDArray& z) {
  ReduceInto(OpCode::kLogSumExp, x, axes, z);
}
void ArgMaxInto(const NDArray& x, int axis, NDArray& z) { ReduceInto(OpCode::kArgMax, x, axis, z); }

void SumToLastAxisInto(const NDArray& x, NDArray& z) {
  CheckOperands(OpCode::kSum, {&x});
  z.CheckAlive("sum", "Z");
  if (x.rank() == 0) ThrowInvalidArgument("Op [sum]: X has rank 0, expected at least 1");
  CheckShape("sum", "Z", z, {x.dim(x.rank() - 1)});
  CheckDType("sum", "Z", z, ResultType(OpCode::kSum, x.dtype()));
  Run(OpCode::kSum, x, {(1u << (x.rank() - 1)) - 1}, z);
}

}  // namespace tidepool
