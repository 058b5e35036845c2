#include "tidepool/ndarray/ops/sorting.h"

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/kernel/attributes_indexing.h"
#include "tidepool/ndarray/kernel/op_code.h"
#include "tidepool/ndarray/ops/checks.h"

namespace tidepool {
namespace {

int CheckAxis(OpCode op, const NDArray& x, int axis) {
  CheckOperands(op, {&x});
  return NormalizeAxis(Info(op).name, axis, x.rank());
}

Shape WithSize(const Shape& shape, int axis, int64_t size) {
  int64_t dims[kMaxRank];
  for (int i = 0; i < shape.rank(); ++i) dims[i] = i == axis ? size : shape[i];
  return Shape(absl::Span<const int64_t>(dims, shape.rank()));
}

int CheckTopK(const NDArray& x, int axis, int64_t k) {
  axis = CheckAxis(OpCode::kTopK, x, axis);
  if (k < 0 || k > x.dim(axis)) {
    ThrowInvalidArgument(absl::StrCat("Op [top_k]: k is ", k, ", expected 0 to ", x.dim(axis),
                                      ", the size of axis ", axis));
  }
  return axis;
}

}  // namespace

NDArray Sort(const NDArray& x, int axis, bool descending) {
  const SortAttributes attributes{CheckAxis(OpCode::kSort, x, axis), descending};
  NDArray z(x.shape(), x.dtype(), ResultPlace(OpCode::kSort, {&x}));
  Dispatch(OpCode::kSort, {&x}, {&z}, &attributes);
  return z;
}

void SortInto(const NDArray& x, int axis, bool descending, NDArray& z) {
  const SortAttributes attributes{CheckAxis(OpCode::kSort, x, axis), descending};
  z.CheckAlive("sort", "Z");
  CheckDType("sort", "Z", z, x.dtype());
  CheckShape("sort", "Z", z, x.shape());
  Dispatch(OpCode::kSort, {&x}, {&z}, &attributes);
}

NDArray ArgSort(const NDArray& x, int axis, bool descending) {
  const SortAttributes attributes{CheckAxis(OpCode::kArgSort, x, axis), descending};
  NDArray z(x.shape(), DType::kInt64, ResultPlace(OpCode::kArgSort, {&x}));
  Dispatch(OpCode::kArgSort, {&x}, {&z}, &attributes);
  return z;
}

TopKResult TopK(const NDArray& x, int64_t k, int axis) {
  const AxisAttributes attributes{CheckTopK(x, axis, k)};
  const Shape shape = WithSize(x.shape(), attributes.axis, k);
  const Place place = ResultPlace(OpCode::kTopK, {&x});
  TopKResult z{NDArray(shape, x.dtype(), place), NDArray(shape, DType::kInt64, place)};
  Dispatch(OpCode::kTopK, {&x}, {&z.values, &z.places}, &attributes);
  return z;
}

void TopKInto(const NDArray& x, int axis, NDArray& values, NDArray& places) {
  const AxisAttributes attributes{CheckAxis(OpCode::kTopK, x, axis)};
  values.CheckAlive("top_k", "values");
  places.CheckAlive("top_k", "places");
  CheckDType("top_k", "values", values, x.dtype());
  CheckDType("top_k", "places", places, DType::kInt64);
  const int64_t k = values.rank() == x.rank() ? values.dim(attributes.axis) : 0;
  CheckTopK(x, axis, k);
  CheckShape("top_k", "values", values, WithSize(x.shape(), attributes.axis, k));
  CheckShape("top_k", "places", places, values.shape());
  Dispatch(OpCode::kTopK, {&x}, {&values, &places}, &attributes);
}

#define TIDEPOOL_CUMULATIVE(Name, name)                                                         \
  NDArray Name(const NDArray& x, int axis, bool reverse, bool exclusive) {                      \
    const CumSumAttributes attributes{CheckAxis(OpCode::k##Name, x, axis), reverse, exclusive}; \
    NDArray z(x.shape(), TotalType(x.dtype()), ResultPlace(OpCode::k##Name, {&x}));             \
    Dispatch(OpCode::k##Name, {&x}, {&z}, &attributes);                                         \
    return z;                                                                                   \
  }                                                                                             \
  void Name##Into(const NDArray& x, int axis, bool reverse, bool exclusive, NDArray& z) {       \
    const CumSumAttributes attributes{CheckAxis(OpCode::k##Name, x, axis), reverse, exclusive}; \
    z.CheckAlive(name, "Z");                                                                    \
    CheckDType(name, "Z", z, TotalType(x.dtype()));                                             \
    CheckShape(name, "Z", z, x.shape());                                                        \
    Dispatch(OpCode::k##Name, {&x}, {&z}, &attributes);                                         \
  }
TIDEPOOL_CUMULATIVE(CumSum, "cumsum")
TIDEPOOL_CUMULATIVE(CumProd, "cumprod")
#undef TIDEPOOL_CUMULATIVE

}  // namespace tidepool
