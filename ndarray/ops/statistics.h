// Deviations, quantiles, and reductions that leave NaN out. Axes and keep_dims as in reduction.h.
//
// Types: floats keep theirs, integers and bool give f64 (sums i64, largest and smallest their own).
//
// Errors: kInvalidArgument naming operator, operand, found, expected; kFailedPrecondition for stale operands. Results
// are made in the current place. Made of other operators: std costs what the variance does (of 16-bit floats of a copy in f32), quantiles sort a copy, and
// reductions without NaN make a copy without them first (three to five passes; of integers none).
#ifndef TIDEPOOL_NDARRAY_OPS_STATISTICS_H_
#define TIDEPOOL_NDARRAY_OPS_STATISTICS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/ops/axes.h"

namespace tidepool {

// The square root of Variance(), rounded once. PyTorch's has ddof 1. Where all elements are equal nothing flows to them.
NDArray Std(const NDArray& x, const Axes& axes = {}, int64_t ddof = 0, bool keep_dims = false);

// What is taken between two elements.
enum class QuantileMethod : uint8_t {
  kLinear,
  kLower,
  kHigher,
  kNearest,
  kMidpoint
};  // kNearest: halves to even
// What lies at q * (count - 1) of the elements in order, from 0 to 1: between the neighbours, in double, where that is no
// place. NaN where there is one. No elements are refused.
NDArray Quantile(const NDArray& x, double q, const Axes& axes = {}, bool keep_dims = false,
                 QuantileMethod method = QuantileMethod::kLinear);
// For each q, along a new first axis; sorted once.
NDArray Quantile(const NDArray& x, absl::Span<const double> q, const Axes& axes = {},
                 bool keep_dims = false, QuantileMethod method = QuantileMethod::kLinear);
// The middle one, or the mean of the two in the middle; PyTorch's is the lower of these.
NDArray Median(const NDArray& x, const Axes& axes = {}, bool keep_dims = false);

// Sums are 0 where there is nothing but NaN; means and the largest and smallest NaN there.
NDArray NanSum(const NDArray& x, const Axes& axes = {}, bool keep_dims = false);
NDArray NanMean(const NDArray& x, const Axes& axes = {}, bool keep_dims = false);
NDArray NanMax(const NDArray& x, const Axes& axes = {}, bool keep_dims = false);
NDArray NanMin(const NDArray& x, const Axes& axes = {}, bool keep_dims = false);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_STATISTICS_H_
