#include "tidepool/ndarray/ops/searching.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/kernel/attributes_indexing.h"
#include "tidepool/ndarray/ops/checks.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/pointwise.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/scalar_operand.h"
#include "tidepool/ndarray/ops/sorting.h"

namespace tidepool {
namespace {

[[noreturn]] void Refuse(const char* op, const std::string& what) {
  ThrowInvalidArgument(absl::StrCat("Op [", op, "]: ", what));
}

NDArray ScratchLike(const NDArray& x, const Shape& shape, DType dtype) {
  return NDArray(shape, dtype, Place::Scratch(x.device()));
}

// A dense array for the length of a call, on the host: the array itself where it is one.
NDArray DenseOnHost(const NDArray& x) {
  return x.device() == Host() && x.is_dense() ? x : x.CopyTo(Place::Scratch(Host()));
}

const bool* TruthsOf(const NDArray& dense) {
  return dense.NumElements() > 0 ? dense.data<bool>() : nullptr;
}

// [elements], a view where there is one.
NDArray Flat(const NDArray& x) {
  return (x.is_dense() ? x : x.CopyTo(Place::Scratch(x.device()))).Reshape({x.NumElements()});
}

// A dense mask on the host of the elements that are not zero.
NDArray NotZero(const char* op, const NDArray& x) {
  x.CheckAlive(op, "X");
  if (x.rank() == 0) Refuse(op, "X has shape [], expected at least rank 1");
  if (x.dtype() == DType::kBool) return DenseOnHost(x);
  NDArray mask = ScratchLike(x, x.shape(), DType::kBool);
  NotEqualInto(x, ScalarOperand(0, x.dtype(), x), mask);
  return DenseOnHost(mask);
}

// Calls visit(number, indices of the axes) for each element of the mask that is true.
template <typename Visit>
void ForEachTrue(const NDArray& mask, Visit visit) {
  constexpr int64_t kBlock = 64;
  const int rank = mask.rank();
  const bool* const truths = TruthsOf(mask);
  const int64_t size = mask.NumElements(), row = mask.dim(rank - 1);
  int64_t index[kMaxRank] = {}, number = 0;
  for (int64_t begin = 0; begin < size; begin += row) {
    // First which of a few are true, without a branch that would be guessed wrong.
    for (int64_t block = 0; block < row; block += kBlock) {
      int64_t found[kBlock];
      int count = 0;
      for (int64_t i = block; i < std::min(block + kBlock, row); ++i) {
        found[count] = i;
        count += static_cast<int>(truths[begin + i]);
      }
      for (int i = 0; i < count; ++i) {
        index[rank - 1] = found[i];
        visit(number++, index);
      }
    }
    for (int axis = rank - 2; axis >= 0 && ++index[axis] == mask.dim(axis); --axis) index[axis] = 0;
  }
}

int64_t CountTrue(const NDArray& mask) {
  const bool* const truths = TruthsOf(mask);
  return mask.NumElements() == 0 ? 0 : std::count(truths, truths + mask.NumElements(), true);
}

// An array of a result's place is made of what `write` puts into memory of the host.
template <typename Write>
NDArray MadeOnHost(const Shape& shape, DType dtype, const NDArray& like, const Place& place,
                   Write write) {
  NDArray z(shape, dtype, place);
  if (z.NumElements() == 0) return z;
  if (like.device() == Host()) return write(z), z;
  NDArray made(shape, dtype, Place::Scratch(Host()));
  write(made);
  CopyInto(made, z);
  return z;
}

// Places in sorted elements, dense and of rank 1, where another one begins. On the host.
NDArray Beginnings(const NDArray& sorted) {
  const int64_t size = sorted.NumElements();
  NDArray places({size > 0 ? size : 0}, DType::kInt64, Place::Scratch(Host()));
  if (size == 0) return places;
  NDArray differs = ScratchLike(sorted, {size - 1}, DType::kBool);
  const NDArray before = sorted.Slice(0, 0, size - 1);
  NotEqualInto(sorted.Slice(0, 1, size), before, differs);
  if (IsFloating(sorted.dtype())) {  // one NaN behind another is no other
    NDArray number = ScratchLike(sorted, {size - 1}, DType::kBool);
    IsNanInto(before, number);
    LogicalNotInto(number, number);
    LogicalAndInto(differs, number, differs);
  }
  const NDArray mask = DenseOnHost(differs);
  const bool* const truths = TruthsOf(mask);
  int64_t* const to = places.mutable_data<int64_t>();
  int64_t count = 1;
  to[0] = 0;
  for (int64_t i = 0; i + 1 < size; ++i) {
    to[count] = i + 1;
    count += static_cast<int64_t>(truths[i]);
  }
  return places.Slice(0, 0, count);
}

// As GatherInto along the first axis, of places that need no check.
void Take(const NDArray& x, const NDArray& places, NDArray& z) {
  const AxisAttributes attributes{0};
  Dispatch(OpCode::kGather, {&x, &places}, {&z}, &attributes);
}

NDArray OnDeviceOf(const NDArray& x, const NDArray& host) {
  return x.device() == Host() ? host : host.CopyTo(Place::Scratch(x.device()));
}

// Sums of `updates` (rank 0 for one each) by x in a new array of that type.
NDArray CountInto(const char* op, const NDArray& x, const NDArray& updates, int64_t min_length,
                  const Place& place) {
  CheckRank(op, "X", x, 1);
  if (!IsInteger(x.dtype()))
    Refuse(op, absl::StrCat("X is ", DTypeName(x.dtype()), ", expected an integer type"));
  if (min_length < 0)
    Refuse(op, absl::StrCat("min_length is ", min_length, ", expected at least 0"));
  int64_t size = min_length;
  const NDArray places = CastScratch(x, DType::kInt64);
  if (x.NumElements() > 0) {
    NDArray bound({}, DType::kInt64, Place::Scratch(x.device()));
    MinInto(places, {}, bound);
    if (const int64_t least = bound.To(Host()).Item<int64_t>(); least < 0) {
      Refuse(op, absl::StrCat("X has the element ", least, ", expected at least 0"));
    }
    MaxInto(places, {}, bound);
    const int64_t largest = bound.To(Host()).Item<int64_t>();
    if (largest == INT64_MAX)
      Refuse(op, absl::StrCat("X has the element ", largest, ", which has no place"));
    size = std::max(size, largest + 1);
  }
  NDArray z = Zeros({size}, updates.dtype(), place);
  if (x.NumElements() == 0) return z;
  const NDArray each = updates.BroadcastTo(x.shape());
  const AxisAttributes attributes{0};
  Dispatch(OpCode::kScatterAdd, {&each, &places}, {&z}, &attributes);
  return z;
}

}  // namespace

std::vector<NDArray> NonZero(const NDArray& x) {
  const NDArray mask = NotZero("nonzero", x);
  const int64_t count = CountTrue(mask);
  const Place place = ResultPlace("nonzero", {&x});
  std::vector<NDArray> host, results;
  for (int axis = 0; axis < x.rank(); ++axis) {
    host.push_back(
        NDArray({count}, DType::kInt64, x.device() == Host() ? place : Place::Scratch(Host())));
  }
  if (count > 0) {
    int64_t* to[kMaxRank];
    for (int axis = 0; axis < x.rank(); ++axis) to[axis] = host[axis].mutable_data<int64_t>();
    ForEachTrue(mask, [&](int64_t number, const int64_t* index) {
      for (int axis = 0; axis < x.rank(); ++axis) to[axis][number] = index[axis];
    });
  }
  if (x.device() == Host()) return host;
  for (const NDArray& one : host) {
    results.push_back(NDArray(one.shape(), DType::kInt64, place));
    if (count > 0) CopyInto(one, results.back());
  }
  return results;
}

NDArray ArgWhere(const NDArray& x) {
  const NDArray mask = NotZero("argwhere", x);
  const int rank = x.rank();
  return MadeOnHost(
      {CountTrue(mask), rank}, DType::kInt64, x, ResultPlace("argwhere", {&x}), [&](NDArray& z) {
        int64_t* to = z.mutable_data<int64_t>();
        ForEachTrue(mask,
                    [&](int64_t, const int64_t* index) { to = std::copy_n(index, rank, to); });
      });
}

NDArray Unique(const NDArray& x) {
  x.CheckAlive("unique", "X");
  NDArray sorted = ScratchLike(x, {x.NumElements()}, x.dtype());
  SortInto(Flat(x), 0, false, sorted);
  const NDArray places = Beginnings(sorted);
  NDArray z(places.shape(), x.dtype(), ResultPlace("unique", {&x}));
  if (z.NumElements() > 0) Take(sorted, OnDeviceOf(x, places), z);
  return z;
}

UniqueResult UniqueAll(const NDArray& x) {
  x.CheckAlive("unique_all", "X");
  const int64_t size = x.NumElements();
  const NDArray flat = Flat(x);
  NDArray order = ScratchLike(x, {size}, DType::kInt64), sorted = ScratchLike(x, {size}, x.dtype());
  const SortAttributes attributes{0, false};
  Dispatch(OpCode::kArgSort, {&flat}, {&order}, &attributes);
  if (size > 0) Take(flat, order, sorted);
  const NDArray places = Beginnings(sorted);
  const int64_t count = places.NumElements();
  const Place place = ResultPlace("unique_all", {&x});
  UniqueResult z{
      NDArray({count}, x.dtype(), place), NDArray({count}, DType::kInt64, place), {}, {}};
  const int64_t* const begins = count > 0 ? places.data<int64_t>() : nullptr;
  z.counts = MadeOnHost({count}, DType::kInt64, x, place, [&](NDArray& counts) {
    int64_t* const to = counts.mutable_data<int64_t>();
    for (int64_t i = 0; i < count; ++i) to[i] = (i + 1 < count ? begins[i + 1] : size) - begins[i];
  });
  const NDArray from = DenseOnHost(order);
  z.inverse = MadeOnHost(x.shape(), DType::kInt64, x, place, [&](NDArray& inverse) {
    const int64_t* const sources = from.data<int64_t>();
    int64_t* const to = inverse.mutable_data<int64_t>();
    for (int64_t i = 0; i < count; ++i) {
      const int64_t end = i + 1 < count ? begins[i + 1] : size;
      for (int64_t k = begins[i]; k < end; ++k) to[sources[k]] = i;
    }
  });
  if (count == 0) return z;
  const NDArray there = OnDeviceOf(x, places);
  Take(sorted, there, z.values);
  Take(order, there, z.first);
  return z;
}

NDArray SearchSorted(const NDArray& sorted, const NDArray& values, bool right) {
  CheckOperands(OpCode::kSearchSorted, {&sorted, &values});
  CheckRank("search_sorted", "sorted", sorted, 1);
  const DType dtype = PromoteTypes(sorted.dtype(), values.dtype());
  NDArray z(values.shape(), DType::kInt64, ResultPlace(OpCode::kSearchSorted, {&values, &sorted}));
  const NDArray from = CastScratch(sorted, dtype), which = CastScratch(values, dtype);
  const SearchSortedAttributes attributes{right};
  Dispatch(OpCode::kSearchSorted, {&from, &which}, {&z}, &attributes);
  return z;
}

NDArray BinCount(const NDArray& x, int64_t min_length) {
  x.CheckAlive("bincount", "X");
  const NDArray one = ScalarOperand(1, DType::kInt64, x);
  return CountInto("bincount", x, one, min_length, ResultPlace("bincount", {&x}));
}

NDArray BinCount(const NDArray& x, const NDArray& weights, int64_t min_length) {
  x.CheckAlive("bincount", "X");
  weights.CheckAlive("bincount", "weights");
  CheckShape("bincount", "weights", weights, x.shape());
  const NDArray updates = CastScratch(weights, DType::kFloat64);
  return CountInto("bincount", x, updates, min_length, ResultPlace("bincount", {&x, &weights}));
}

HistogramResult Histogram(const NDArray& x, const NDArray& edges) {
  x.CheckAlive("histogram", "X");
  edges.CheckAlive("histogram", "edges");
  CheckRank("histogram", "edges", edges, 1);
  const int64_t count = edges.NumElements();
  if (x.dtype() == DType::kBool) Refuse("histogram", "X is bool, expected numbers; Cast it");
  if (count < 2)
    Refuse("histogram", absl::StrCat("edges has ", count, " elements, expected at least 2"));
  NDArray ascends({count - 1}, DType::kBool, Place::Scratch(edges.device()));
  LessEqualInto(edges.Slice(0, 0, count - 1), edges.Slice(0, 1, count), ascends);
  const NDArray checked = DenseOnHost(ascends);
  for (int64_t i = 0; i + 1 < count; ++i) {
    if (!checked.data<bool>()[i]) {
      Refuse("histogram", absl::StrCat("edge ", i + 1, " is not at or above edge ", i,
                                       ", expected edges that ascend"));
    }
  }
  const Place place = ResultPlace("histogram", {&x, &edges});
  if (x.NumElements() == 0) return {Zeros({count - 1}, DType::kInt64, place), edges};
  const DType dtype = PromoteTypes(x.dtype(), edges.dtype());
  const NDArray values = CastScratch(Flat(x), dtype), bounds = CastScratch(edges, dtype);
  NDArray places = ScratchLike(x, values.shape(), DType::kInt64);
  const SearchSortedAttributes attributes{true};
  Dispatch(OpCode::kSearchSorted, {&bounds, &values}, {&places}, &attributes);
  const NDArray found = CountInto("histogram", places, ScalarOperand(1, DType::kInt64, x),
                                  count + 1, Place::Scratch(x.device()));
  // The last bin has its upper edge, too, behind which the search has put these elements.
  NDArray at_end = ScratchLike(x, values.shape(), DType::kBool),
          counted = ScratchLike(x, {}, DType::kInt64);
  EqualInto(values, bounds.Index(0, count - 1), at_end);
  SumInto(at_end, {}, counted);
  HistogramResult z{NDArray({count - 1}, DType::kInt64, place), edges};
  CopyInto(found.Slice(0, 1, count), z.counts);
  NDArray last = z.counts.Index(0, count - 2);
  AddInto(last, counted, last);
  return z;
}

HistogramResult Histogram(const NDArray& x, int64_t bins, double low, double high) {
  x.CheckAlive("histogram", "X");
  if (bins < 1) Refuse("histogram", absl::StrCat("bins is ", bins, ", expected at least 1"));
  if (!(std::isfinite(low) && std::isfinite(high) && low <= high)) {
    Refuse("histogram", absl::StrCat("low is ", low, ", high is ", high,
                                     ", expected finite numbers and low <= high"));
  }
  if (low == high) low -= 0.5, high += 0.5;
  NDArray edges({bins + 1}, IsFloating(x.dtype()) ? x.dtype() : DType::kFloat64,
                ResultPlace("histogram", {&x}));
  CopyInto(Linspace(low, high, bins + 1, edges.dtype(), Place::Scratch(edges.device())), edges);
  return Histogram(x, edges);
}

HistogramResult Histogram(const NDArray& x, int64_t bins) {
  x.CheckAlive("histogram", "X");
  if (x.NumElements() == 0 || x.dtype() == DType::kBool) return Histogram(x, bins, 0, 1);
  NDArray bound({}, x.dtype(), Place::Scratch(x.device()));
  MinInto(x, {}, bound);
  const double low = CastScratch(bound, DType::kFloat64).To(Host()).Item<double>();
  MaxInto(x, {}, bound);
  return Histogram(x, bins, low, CastScratch(bound, DType::kFloat64).To(Host()).Item<double>());
}

}  // namespace tidepool
