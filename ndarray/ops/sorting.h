// Order along an axis: sorting, places in sorted order, the k largest; cumulative sums and products.
//
// NaN counts as larger than everything else, as in NumPy: last when ascending, first when descending
// and among the largest. -0 equals 0. Sorting is stable both ways: equals keep their order (on a GPU 0 and -0 among sorted
// values in any). Any type;
// bool is false before true.
//
// Errors: kInvalidArgument naming operator, operand, found, expected; kFailedPrecondition for stale
// operands. Results are made in the current place; the ...Into forms write to a given array and
// allocate nothing but scratch of the size of a lane. Cost: the CPU backend sorts by radix, in time
// proportional to the number of elements and their width; TopK reads x once where k is small.
#ifndef TIDEPOOL_NDARRAY_OPS_SORTING_H_
#define TIDEPOOL_NDARRAY_OPS_SORTING_H_

#include <cstdint>

#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// The elements of each line along the axis in order.
NDArray Sort(const NDArray& x, int axis = -1, bool descending = false);
// z may be the very same view as x.
void SortInto(const NDArray& x, int axis, bool descending, NDArray& z);
// i64: z[i] is the place in x of what comes i-th.
NDArray ArgSort(const NDArray& x, int axis = -1, bool descending = false);

struct TopKResult {
  NDArray values;  // of x's type, largest first
  NDArray places;  // i64: where they are along the axis; the lower first of equals
};
// `axis` of both results has size k, which is at most x's.
TopKResult TopK(const NDArray& x, int64_t k, int axis = -1);
void TopKInto(const NDArray& x, int axis, NDArray& values, NDArray& places);

// z[i] = x[0] + .. + x[i]; `reverse`: x[i] + .. + x[last]; `exclusive`: without x[i] itself. Floats
// keep their type and are added in double; u64 stays, other integers and bool give i64, modulo
// 2^64. The gradient with respect to x is the same sum of dz with `reverse` the other way round.
NDArray CumSum(const NDArray& x, int axis = -1, bool reverse = false, bool exclusive = false);
// Of products, in the same types; `exclusive` begins with 1.
NDArray CumProd(const NDArray& x, int axis = -1, bool reverse = false, bool exclusive = false);
// z may be the very same view as x where it has its type.
void CumProdInto(const NDArray& x, int axis, bool reverse, bool exclusive, NDArray& z);
void CumSumInto(const NDArray& x, int axis, bool reverse, bool exclusive, NDArray& z);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_SORTING_H_
