#include "tidepool/ndarray/ops/rearranging.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/kernel/attributes_indexing.h"
#include "tidepool/ndarray/kernel/op_code.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/reduction.h"

namespace tidepool {
namespace {

[[noreturn]] void Refuse(const char* op, const std::string& what) {
  ThrowInvalidArgument(absl::StrCat("Op [", op, "]: ", what));
}

// x into z by blocks: along axis i what comes last, shifts[i] of it, goes first.
void CopyRolled(const NDArray& x, const int64_t* shifts, int axis, NDArray& z) {
  while (axis < x.rank() && shifts[axis] == 0) ++axis;
  if (axis == x.rank()) return CopyInto(x, z);
  const int64_t size = x.dim(axis), shift = shifts[axis];
  NDArray front = z.Slice(axis, 0, shift), back = z.Slice(axis, shift, size);
  CopyRolled(x.Slice(axis, size - shift, size), shifts, axis + 1, front);
  CopyRolled(x.Slice(axis, 0, size - shift), shifts, axis + 1, back);
}

// Of an axis of that size, from 0 on.
int64_t Within(int64_t shift, int64_t size) {
  if (size == 0) return 0;
  const int64_t rest = shift % size;
  return rest < 0 ? rest + size : rest;
}

}  // namespace

NDArray Roll(const NDArray& x, int64_t shift) {
  x.CheckAlive("roll", "X");
  NDArray z(x.shape(), x.dtype(), ResultPlace("roll", {&x}));
  const int64_t size = x.NumElements(), shifts[] = {Within(shift, size)};
  if (size == 0) return z;
  const NDArray flat = (x.is_dense() ? x : x.CopyTo(Place::Scratch(x.device()))).Reshape({size});
  NDArray to = z.Reshape({size});
  CopyRolled(flat, shifts, 0, to);
  return z;
}

NDArray Roll(const NDArray& x, absl::Span<const int64_t> shifts, absl::Span<const int> axes) {
  x.CheckAlive("roll", "X");
  if (shifts.size() != axes.size()) {
    Refuse("roll",
           absl::StrCat(shifts.size(), " shifts and ", axes.size(), " axes, expected as many"));
  }
  int64_t total[kMaxRank] = {};
  for (size_t i = 0; i < axes.size(); ++i) {
    const int axis = NormalizeAxis("roll", axes[i], x.rank());
    const int64_t size = x.dim(axis);
    total[axis] = Within(total[axis] + Within(shifts[i], size), size);
  }
  NDArray z(x.shape(), x.dtype(), ResultPlace("roll", {&x}));
  if (z.NumElements() > 0) CopyRolled(x, total, 0, z);
  return z;
}

NDArray Roll(const NDArray& x, int64_t shift, int axis) {
  return Roll(x, absl::MakeConstSpan(&shift, 1), absl::MakeConstSpan(&axis, 1));
}

NDArray Diff(const NDArray& x, int64_t times, int axis) {
  x.CheckAlive("diff", "X");
  axis = NormalizeAxis("diff", axis, x.rank());
  if (times < 0) Refuse("diff", absl::StrCat("times is ", times, ", expected at least 0"));
  const Place place = ResultPlace("diff", {&x});
  NDArray z = x;
  for (int64_t left = std::min(times, x.dim(axis)); left > 0; --left) {
    const int64_t size = z.dim(axis);
    std::vector<int64_t> dims(x.shape().span().begin(), x.shape().span().end());
    dims[axis] = size - 1;
    NDArray next(Shape(dims), x.dtype(), left == 1 ? place : Place::Scratch(x.device()));
    const NDArray after = z.Slice(axis, 1, size), before = z.Slice(axis, 0, size - 1);
    if (next.NumElements() > 0) {
      x.dtype() == DType::kBool ? NotEqualInto(after, before, next)
                                : SubtractInto(after, before, next);
    }
    z = next;
  }
  if (times > 0 && x.dim(axis) > 0) return z;
  NDArray copy(x.shape(), x.dtype(), place);
  if (copy.NumElements() > 0) CopyInto(x, copy);
  return copy;
}

NDArray Trace(const NDArray& x, int64_t offset, int axis1, int axis2) {
  x.CheckAlive("trace", "X");
  return Sum(x.Diagonal(offset, axis1, axis2), -1);
}

NDArray DiagonalMatrix(const NDArray& v, int64_t offset) {
  v.CheckAlive("diagonal_matrix", "v");
  if (v.rank() != 1) {
    Refuse("diagonal_matrix",
           absl::StrCat("v has shape ", v.shape().ToString(), ", expected rank 1"));
  }
  const int64_t away = offset < 0 ? -std::max(offset, -INT64_MAX) : offset;
  if (away > INT64_MAX - v.dim(0))
    Refuse("diagonal_matrix", absl::StrCat("offset is ", offset, ", which is too far"));
  const int64_t size = v.dim(0) + away;
  NDArray z = Zeros({size, size}, v.dtype(), ResultPlace("diagonal_matrix", {&v}));
  NDArray diagonal = z.Diagonal(offset);
  if (v.dim(0) > 0) CopyInto(v, diagonal);
  return z;
}

NDArray RepeatEach(const NDArray& x, absl::Span<const int64_t> counts, int axis) {
  x.CheckAlive("repeat", "X");
  axis = NormalizeAxis("repeat", axis, x.rank());
  if (static_cast<int64_t>(counts.size()) != x.dim(axis)) {
    Refuse("repeat", absl::StrCat(counts.size(), " counts, expected ", x.dim(axis),
                                  ", the size of axis ", axis));
  }
  int64_t total = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] < 0)
      Refuse("repeat", absl::StrCat("count ", i, " is ", counts[i], ", expected at least 0"));
    if (counts[i] > INT64_MAX - total) Refuse("repeat", "counts are too many together");
    total += counts[i];
  }
  NDArray places({total}, DType::kInt64, Place::Scratch(Host()));
  if (total > 0) {
    int64_t* to = places.mutable_data<int64_t>();
    for (size_t i = 0; i < counts.size(); ++i)
      to = std::fill_n(to, counts[i], static_cast<int64_t>(i));
  }
  std::vector<int64_t> dims(x.shape().span().begin(), x.shape().span().end());
  dims[axis] = total;
  NDArray z(Shape(dims), x.dtype(), ResultPlace("repeat", {&x}));
  if (z.NumElements() == 0) return z;
  const NDArray there = x.device() == Host() ? places : places.CopyTo(Place::Scratch(x.device()));
  const AxisAttributes attributes{axis};
  Dispatch(OpCode::kGather, {&x, &there}, {&z}, &attributes);
  return z;
}

std::vector<NDArray> Meshgrid(absl::Span<const NDArray> coordinates, GridOrder order) {
  const auto count = static_cast<int>(coordinates.size());
  for (int i = 0; i < count; ++i)
    coordinates[i].CheckAlive("meshgrid", absl::StrCat("coordinates ", i).c_str());
  if (count > kMaxRank)
    Refuse("meshgrid", absl::StrCat(count, " coordinates, expected at most ", kMaxRank));
  std::vector<int64_t> dims(count);
  const auto axis_of = [&](int i) {
    return order == GridOrder::kColumns && count > 1 && i < 2 ? 1 - i : i;
  };
  for (int i = 0; i < count; ++i) {
    if (coordinates[i].rank() > 1) {
      Refuse("meshgrid", absl::StrCat("coordinates ", i, " has shape ",
                                      coordinates[i].shape().ToString(), ", expected rank 1 or 0"));
    }
    dims[axis_of(i)] = coordinates[i].NumElements();
  }
  std::vector<NDArray> grids;
  for (int i = 0; i < count; ++i) {
    NDArray grid = coordinates[i].rank() == 0 ? coordinates[i].ExpandDims(0) : coordinates[i];
    for (int axis = axis_of(i) + 1; axis < count; ++axis) grid = grid.ExpandDims(-1);
    grids.push_back(grid.BroadcastTo(Shape(dims)));
  }
  return grids;
}

}  // namespace tidepool
