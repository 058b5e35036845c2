// Sums, means and the largest element's index.
#ifndef TIDEPOOL_NDARRAY_OPS_REDUCTION_H_
#define TIDEPOOL_NDARRAY_OPS_REDUCTION_H_

#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// Over all elements: rank 0. f32 sums are pairwise or wider inside; their order is fixed.
NDArray Sum(const NDArray& x);
// Over the first or the last axis, which disappears.
NDArray Sum(const NDArray& x, int axis);
// [m, n] -> z[n], given. Higher ranks are folded: all axes but the last are summed over.
void SumToLastAxisInto(const NDArray& x, NDArray& z);
// Over all elements: f32, rank 0; NaN for an empty array.
NDArray Mean(const NDArray& x);
// Over the last axis, which disappears; i64; the first of equals; NaN counts as largest.
NDArray ArgMax(const NDArray& x);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_REDUCTION_H_
