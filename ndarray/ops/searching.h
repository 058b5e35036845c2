// Where elements are: those that are not zero, those that differ, places in sorted arrays, counts.
//
// The size of most results hangs on values, so operands of devices are looked at on the host: masks of a byte an element,
// or places of 8, move there; sorting, comparing and gathering stay on the device.
//
// NaN: counts as not zero, comes last in sorted order, and all NaN are one in Unique. -0 equals 0.
//
// Errors: kInvalidArgument naming operator, operand, found, expected; kFailedPrecondition for stale operands. Results
// are made in the current place. Scratch: the elements once or twice, and 8 bytes for each.
#ifndef TIDEPOOL_NDARRAY_OPS_SEARCHING_H_
#define TIDEPOOL_NDARRAY_OPS_SEARCHING_H_

#include <cstdint>
#include <vector>

#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// i64 arrays, one an axis, of the indices of elements that are not zero, in row-major order: x(NonZero(x)..) are those.
// Any type; rank 1 or more.
std::vector<NDArray> NonZero(const NDArray& x);
// The same as one array [elements, rank].
NDArray ArgWhere(const NDArray& x);

// The different elements of x in ascending order. Any type and shape. Cost: sorting.
NDArray Unique(const NDArray& x);
struct UniqueResult {
  NDArray values;   // as of Unique
  NDArray first;    // i64: the place of the first of each in x, row-major
  NDArray inverse;  // i64, of x's shape: which of values each element is
  NDArray counts;   // i64: how many there are of each
};
UniqueResult UniqueAll(const NDArray& x);

// i64, of the shape of values: the place in `sorted` (rank 1, ascending, which is not checked) where each would be put to
// keep it so, before its equals, or with `right` behind them. Types promote. Cost: a binary search each, on the host.
NDArray SearchSorted(const NDArray& sorted, const NDArray& values, bool right = false);

// i64: how often each number from 0 to the largest, or to min_length - 1 if that is more, is in x: integers of rank 1,
// none negative. With weights, of x's shape, the sum of theirs in f64.
NDArray BinCount(const NDArray& x, int64_t min_length = 0);
NDArray BinCount(const NDArray& x, const NDArray& weights, int64_t min_length = 0);

struct HistogramResult {
  NDArray counts;  // i64, one fewer than edges
  NDArray edges;
};
// How many elements of x, of any shape and number type, lie in each of `bins` bins of one width between `low` and `high`,
// or between the smallest and largest; 0.5 to both sides of a single one, 0 to 1 of none. A bin has its lower edge, the
// last its upper one too; what lies outside, and NaN, counts nowhere. Edges have x's float type, f64 of integers.
// Throws kInvalidArgument where they are not finite, for bins below 1 and high below low.
HistogramResult Histogram(const NDArray& x, int64_t bins = 10);
HistogramResult Histogram(const NDArray& x, int64_t bins, double low, double high);
// Between these edges: rank 1, at least 2 that do not descend. `edges` of the result are these.
HistogramResult Histogram(const NDArray& x, const NDArray& edges);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_SEARCHING_H_
