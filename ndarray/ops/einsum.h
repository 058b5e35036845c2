// Sums of products by labelled axes, and the products that are such sums.
//
//   Einsum("ij,jk->ik", {a, b})          MatMul(a, b)
//   Einsum("ii->i", {a})                 the diagonal; "ii" or "ii->": the trace
//   Einsum("bij,bij->b", {a, b})         products of items, summed up
//   Einsum("...ij,j", {a, v})            the leading axes stay; without -> they come first
//
// Types: numbers, promoted to one type as in elementwise.h, which is the result's; bool is refused. Products are those
// of MatMul where axes are summed over: f32 and f64 are added in that type, integers wrap around. More than two operands
// of 16-bit floats are multiplied in f32 and rounded in the end.
//
// Results are made in the current place and share nothing with the operands, as those of other operators. Scratch: the
// results of all pairs but the last, operands whose axes lie as no matrix does, and the result once more where its axes
// have another order than the last product's. Several operands are multiplied in pairs, always those whose result is
// smallest beside what it replaces, so that no pass over all labels at once is made. Cost: that of the products.
//
// Gradients are sums of products too: that with respect to a is, for "ij,jk->ik", Einsum("ik,jk->ij", {dz, b}).
//
// Errors: kInvalidArgument naming operator, operand, labels, shapes; kFailedPrecondition for stale operands.
#ifndef TIDEPOOL_NDARRAY_OPS_EINSUM_H_
#define TIDEPOOL_NDARRAY_OPS_EINSUM_H_

#include <string_view>

#include "absl/types/span.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// A letter an axis, a comma between operands, "..." for axes without a label (they broadcast from the last), "->" and
// the labels of the result; without it those that come once, by alphabet. Spaces mean nothing. A label that comes twice
// in one operand walks its diagonal. Sizes of one label are equal, or 1, which broadcasts. Intermediate results have at
// most kMaxRank axes.
NDArray Einsum(std::string_view subscripts, absl::Span<const NDArray> operands);

// Sums over the last `axes` axes of x and the first of y, in order; or over pairs of axes, x_axes[i] and y_axes[i]. What
// is left of x comes before what is left of y. 0 axes: every product.
NDArray TensorDot(const NDArray& x, const NDArray& y, int axes = 2);
NDArray TensorDot(const NDArray& x, const NDArray& y, absl::Span<const int> x_axes,
                  absl::Span<const int> y_axes);
// Each element of x by each of y: [elements of x, elements of y].
NDArray Outer(const NDArray& x, const NDArray& y);
// Sums over the last axes of both; of rank 0: a product.
NDArray Inner(const NDArray& x, const NDArray& y);
// Sums over the last axis of x and the last but one of y, or its only one; of rank 0: a product. MatMul broadcasts
// leading axes instead.
NDArray Dot(const NDArray& x, const NDArray& y);
// Blocks of y by each element of x: sizes multiply, ranks are made equal by axes of 1 in front.
NDArray Kron(const NDArray& x, const NDArray& y);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_EINSUM_H_
