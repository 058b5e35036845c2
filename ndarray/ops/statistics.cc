#include "tidepool/ndarray/ops/statistics.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/call_recorder.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/pointwise.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/scalar_operand.h"
#include "tidepool/ndarray/ops/sorting.h"
#include "tidepool/ndarray/ops/unary.h"

namespace tidepool {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

NDArray ScratchLike(const NDArray& x, const Shape& shape, DType dtype) {
  return NDArray(shape, dtype, Place::Scratch(x.device()));
}

NDArray NumberLike(const NDArray& x, double value) { return ScalarOperand(value, x.dtype(), x); }

// Sizes of the axes that stay; with `keep_dims` the others are there with size 1.
Shape KeptShape(const Shape& shape, uint32_t reduced, bool keep_dims) {
  std::vector<int64_t> dims;
  for (int i = 0; i < shape.rank(); ++i) {
    if ((reduced >> i & 1) == 0) dims.push_back(shape[i]);
    if ((reduced >> i & 1) != 0 && keep_dims) dims.push_back(1);
  }
  return Shape(dims);
}

NDArray IsNanScratch(const NDArray& x) {
  NDArray mask = ScratchLike(x, x.shape(), DType::kBool);
  IsNanInto(x, mask);
  return mask;
}

// x in `dtype` with `value` for NaN, for the length of a call.
NDArray WithoutNan(const NDArray& x, double value, DType dtype) {
  const NDArray of_x = CastScratch(x, dtype);
  NDArray z = ScratchLike(x, x.shape(), dtype);
  WhereInto(IsNanScratch(x), NumberLike(of_x, value), of_x, z);
  return z;
}

// Sums of 16-bit floats and their counts would overflow.
DType SumType(DType dtype) { return DTypeBytes(dtype) == 2 ? DType::kFloat32 : dtype; }

NDArray NanExtremum(const char* op, const NDArray& x, const Axes& axes, bool keep_dims,
                    bool largest) {
  x.CheckAlive(op, "X");
  if (!IsFloating(x.dtype())) return largest ? Max(x, axes, keep_dims) : Min(x, axes, keep_dims);
  const uint32_t reduced = axes.Mask(op, x.rank());
  if (KeptShape(x.shape(), ~reduced, false).NumElements() == 0) {
    ThrowInvalidArgument(absl::StrCat("Op [", op, "]: X has shape ", x.shape().ToString(),
                                      ", nothing to choose from"));
  }
  const double none = std::numeric_limits<double>::infinity() * (largest ? -1 : 1);
  const Shape shape = KeptShape(x.shape(), reduced, false);
  // Apart from the result, as the gradient of the largest is by it.
  NDArray z(shape, x.dtype(), ResultPlace(op, {&x})), found = ScratchLike(x, shape, x.dtype()),
                                                      only = ScratchLike(x, shape, DType::kInt64);
  const NDArray numbers = WithoutNan(x, none, x.dtype());
  largest ? MaxInto(numbers, axes, found) : MinInto(numbers, axes, found);
  // A result of `none` may be an element, or there was no number at all.
  const NDArray nans = IsNanScratch(x);
  SumInto(nans, axes, only);
  NDArray all = ScratchLike(x, shape, DType::kBool);
  const int64_t count = KeptShape(x.shape(), ~reduced, false).NumElements();
  EqualInto(only, ScalarOperand(count, DType::kInt64, x), all);
  WhereInto(all, NumberLike(z, kNan), found, z);
  return keep_dims ? z.Reshape(KeptShape(x.shape(), reduced, true)) : z;
}

}  // namespace

NDArray Std(const NDArray& x, const Axes& axes, int64_t ddof, bool keep_dims) {
  x.CheckAlive("std", "X");
  if (IsFloating(x.dtype()) && DTypeBytes(x.dtype()) == 2) {
    // Variances of 16-bit floats are often none.
    return Cast(Std(CastScratch(x, DType::kFloat32), axes, ddof, keep_dims), x.dtype());
  }
  NDArray z = Variance(x, axes, ddof, keep_dims);
  CallRecorder* const recorder = CallRecorder::Current();
  if (recorder == nullptr || !recorder->Follows({&z, 1})) {
    SqrtInto(z, z);
    return z;
  }
  // The root of 0 has no finite gradient; that of elements which are all equal is 0.
  const NDArray is_zero = z == 0;
  return Where(is_zero, NumberLike(z, 0), Sqrt(Where(is_zero, NumberLike(z, 1), z)));
}

NDArray Quantile(const NDArray& x, absl::Span<const double> q, const Axes& axes, bool keep_dims,
                 QuantileMethod method) {
  x.CheckAlive("quantile", "X");
  const uint32_t reduced = axes.Mask("quantile", x.rank());
  const Shape kept = KeptShape(x.shape(), reduced, false);
  const int64_t count = KeptShape(x.shape(), ~reduced, false).NumElements();
  if (count == 0) {
    ThrowInvalidArgument(absl::StrCat("Op [quantile]: X has shape ", x.shape().ToString(),
                                      ", nothing to choose from"));
  }
  for (const double one : q) {
    if (one >= 0 && one <= 1) continue;
    ThrowInvalidArgument(absl::StrCat("Op [quantile]: q is ", one, ", expected 0 to 1"));
  }
  std::vector<int> order;
  for (const uint32_t wanted : {0u, 1u}) {
    for (int i = 0; i < x.rank(); ++i) {
      if ((reduced >> i & 1) == wanted) order.push_back(i);
    }
  }
  const NDArray moved = x.Transpose(order);
  const int64_t lanes = kept.NumElements();
  NDArray sorted = ScratchLike(x, {lanes, count}, x.dtype());
  NDArray whole = sorted.Reshape(moved.shape());
  CopyInto(moved, whole);
  // In place but where a tape records: the gradient is by what was sorted.
  CallRecorder* const recorder = CallRecorder::Current();
  if (recorder != nullptr && recorder->Follows({&sorted, 1})) {
    sorted = Sort(sorted, 1);
  } else {
    SortInto(sorted, 1, false, sorted);
  }

  const DType dtype = IsFloating(x.dtype()) ? x.dtype() : DType::kFloat64;
  NDArray z({static_cast<int64_t>(q.size()), lanes}, dtype, ResultPlace("quantile", {&x}));
  const auto at = [&](double place) {
    return CastScratch(sorted.Index(1, static_cast<int64_t>(place)), DType::kFloat64);
  };
  for (size_t i = 0; i < q.size() && z.NumElements() > 0; ++i) {
    NDArray row = z.Index(0, static_cast<int64_t>(i));
    const double place = q[i] * static_cast<double>(count - 1);
    double begin = std::floor(place), part = place - begin;
    if (method == QuantileMethod::kNearest) begin = std::nearbyint(place), part = 0;
    if (method == QuantileMethod::kLower) part = 0;
    if (method == QuantileMethod::kHigher) begin = std::ceil(place), part = 0;
    if (method == QuantileMethod::kMidpoint && part != 0) part = 0.5;
    const NDArray low = at(begin);
    if (part == 0) {
      CopyInto(low, row);
    } else {
      // From the nearer one, as NumPy does; parts of both where their difference is no number, as of huge and infinite ones.
      // Equal neighbours are what they are.
      const NDArray high = at(begin + 1);
      NDArray value = ScratchLike(x, {lanes}, DType::kFloat64),
              other = ScratchLike(x, {lanes}, DType::kFloat64),
              more = ScratchLike(x, {lanes}, DType::kFloat64),
              is_finite = ScratchLike(x, {lanes}, DType::kBool),
              same = ScratchLike(x, {lanes}, DType::kBool);
      SubtractInto(high, low, value);
      IsFiniteInto(value, is_finite);
      MultiplyInto(value, part < 0.5 ? part : part - 1, value);
      AddInto(value, part < 0.5 ? low : high, value);
      MultiplyInto(low, 1 - part, other);
      MultiplyInto(high, part, more);
      AddInto(other, more, other);
      WhereInto(is_finite, value, other, value);
      EqualInto(low, high, same);
      WhereInto(same, low, value, value);
      CopyInto(value, row);
    }
    if (!IsFloating(x.dtype())) continue;
    const NDArray last = sorted.Index(1, count - 1);  // NaN comes last
    WhereInto(IsNanScratch(last), last, row, row);
  }
  std::vector<int64_t> dims = {static_cast<int64_t>(q.size())};
  const Shape shape = KeptShape(x.shape(), reduced, keep_dims);
  dims.insert(dims.end(), shape.span().begin(), shape.span().end());
  return z.Reshape(Shape(dims));
}

NDArray Quantile(const NDArray& x, double q, const Axes& axes, bool keep_dims,
                 QuantileMethod method) {
  return Quantile(x, absl::MakeConstSpan(&q, 1), axes, keep_dims, method).Index(0, 0);
}

NDArray Median(const NDArray& x, const Axes& axes, bool keep_dims) {
  x.CheckAlive("median", "X");
  return Quantile(x, 0.5, axes, keep_dims);
}

NDArray NanSum(const NDArray& x, const Axes& axes, bool keep_dims) {
  x.CheckAlive("nan_sum", "X");
  if (!IsFloating(x.dtype())) return Sum(x, axes, keep_dims);
  const uint32_t reduced = axes.Mask("nan_sum", x.rank());
  NDArray z(KeptShape(x.shape(), reduced, false), x.dtype(), ResultPlace("nan_sum", {&x}));
  SumInto(WithoutNan(x, 0, x.dtype()), axes, z);
  return keep_dims ? z.Reshape(KeptShape(x.shape(), reduced, true)) : z;
}

NDArray NanMean(const NDArray& x, const Axes& axes, bool keep_dims) {
  x.CheckAlive("nan_mean", "X");
  if (!IsFloating(x.dtype())) return Mean(x, axes, keep_dims);
  const uint32_t reduced = axes.Mask("nan_mean", x.rank());
  const Shape shape = KeptShape(x.shape(), reduced, false);
  const DType type = SumType(x.dtype());
  NDArray sum = ScratchLike(x, shape, type), nans = ScratchLike(x, shape, DType::kInt64);
  SumInto(WithoutNan(x, 0, type), axes, sum);
  SumInto(IsNanScratch(x), axes, nans);
  NDArray counts = ScratchLike(x, shape, DType::kInt64);
  SubtractInto(ScalarOperand(KeptShape(x.shape(), ~reduced, false).NumElements(), DType::kInt64, x),
               nans, counts);
  DivideInto(sum, CastScratch(counts, type), sum);
  NDArray z(shape, x.dtype(), ResultPlace("nan_mean", {&x}));
  CopyInto(sum, z);
  return keep_dims ? z.Reshape(KeptShape(x.shape(), reduced, true)) : z;
}

NDArray NanMax(const NDArray& x, const Axes& axes, bool keep_dims) {
  return NanExtremum("nan_max", x, axes, keep_dims, true);
}
NDArray NanMin(const NDArray& x, const Axes& axes, bool keep_dims) {
  return NanExtremum("nan_min", x, axes, keep_dims, false);
}

}  // namespace tidepool
