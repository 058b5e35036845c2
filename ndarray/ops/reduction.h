// Reductions over any set of axes, and the place of the largest and smallest element.
//
//   Sum(x)                  all axes: rank 0
//   Sum(x, -1)              the last axis disappears
//   Mean(x, {0, 2}, true)   the axes stay with size 1, so that x - Mean(x, {0, 2}, true) broadcasts
//
// Results are made in the current place; the ...Into forms write to a given array of the result's
// shape and type (with or without the axes of size 1 where `keep_dims` says so) and allocate nothing
// but scratch. Any view; none is copied but one without an axis of stride 1.
//
// NaN is as in NumPy: it goes through sums, products, norms, maxima and minima, counts as true, and
// the first one is what ArgMax and ArgMin find. Reductions of no elements: sum 0, product 1, norms 0,
// log_sum_exp -infinity, any false, all true, mean and variance NaN; largest, smallest and their
// places are refused.
//
// Types: sums and products are u64 of u64 and i64 of other integers and bool, modulo 2^64; means,
// variances and norms of integers f64; everything else has its operand's type. 16-bit floats are
// computed in float or double and rounded once. Sums of floats are sums of sums of at most 4096
// elements, which are added up in double (compensated for f64); the order is fixed by shape and
// strides, whatever the number of threads. Products, squares and deviations are in double. norm2
// overflows as its squares do: f64 beyond 1e154.
//
// Errors: kInvalidArgument naming operator, operand, found, expected; kFailedPrecondition for stale
// operands. Cost: one pass over x at memory bandwidth; two for variance and log_sum_exp.
#ifndef TIDEPOOL_NDARRAY_OPS_REDUCTION_H_
#define TIDEPOOL_NDARRAY_OPS_REDUCTION_H_

#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/ops/axes.h"

namespace tidepool {

// Of the elements along these axes; all axes where none is given.
NDArray Sum(const NDArray& x, const Axes& axes = {}, bool keep_dims = false);
NDArray Prod(const NDArray& x, const Axes& axes = {}, bool keep_dims = false);
NDArray Mean(const NDArray& x, const Axes& axes = {}, bool keep_dims = false);
// Mean square of the deviations from the mean, the sum divided by max(0, count - ddof).
NDArray Variance(const NDArray& x, const Axes& axes = {}, int64_t ddof = 0, bool keep_dims = false);

// Norms of the elements as one vector.
NDArray Norm1(const NDArray& x, const Axes& axes = {}, bool keep_dims = false);    // sum |x|
NDArray Norm2(const NDArray& x, const Axes& axes = {}, bool keep_dims = false);    // sqrt(sum x^2)
NDArray NormInf(const NDArray& x, const Axes& axes = {}, bool keep_dims = false);  // max |x|
// log(sum(exp(x))), of the differences from the largest, so that it does not overflow. Floats. Its
// gradient with respect to x is the softmax of x over these axes.
NDArray LogSumExp(const NDArray& x, const Axes& axes = {}, bool keep_dims = false);

// The largest and the smallest element.
NDArray Max(const NDArray& x, const Axes& axes = {}, bool keep_dims = false);
NDArray Min(const NDArray& x, const Axes& axes = {}, bool keep_dims = false);
// bool: whether any element, or each, is not zero.
NDArray Any(const NDArray& x, const Axes& axes = {}, bool keep_dims = false);
NDArray All(const NDArray& x, const Axes& axes = {}, bool keep_dims = false);
// i64: index along one axis, the first of equals.
NDArray ArgMax(const NDArray& x, int axis = -1, bool keep_dims = false);
NDArray ArgMin(const NDArray& x, int axis = -1, bool keep_dims = false);

// The same into z.
void SumInto(const NDArray& x, const Axes& axes, NDArray& z);
void MeanInto(const NDArray& x, const Axes& axes, NDArray& z);
void VarianceInto(const NDArray& x, const Axes& axes, int64_t ddof, NDArray& z);
void MaxInto(const NDArray& x, const Axes& axes, NDArray& z);
void MinInto(const NDArray& x, const Axes& axes, NDArray& z);
void Norm2Into(const NDArray& x, const Axes& axes, NDArray& z);
void LogSumExpInto(const NDArray& x, const Axes& axes, NDArray& z);
void ArgMaxInto(const NDArray& x, int axis, NDArray& z);
// [.., n] -> z[n], given: all axes but the last are summed over.
void SumToLastAxisInto(const NDArray& x, NDArray& z);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_REDUCTION_H_
