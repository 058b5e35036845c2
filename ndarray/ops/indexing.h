// Picking and placing elements by index, reversing, triangles.
//
// Indices are i64 or i32 arrays of any shape, from 0 to size - 1; each is checked before anything is
// written, and one that is outside is refused with its value and its position (row-major). Negative
// indices do not count from the end: they are refused. Data may be of any type unless said otherwise.
// Kernels of CUDA devices look at the indices themselves, so that nobody waits for them: one that is
// outside gives zeros or is left out, and the same error comes at the next read of values or Wait() in
// that queue (memory/provider/value_faults.h).
//
// Errors: kInvalidArgument naming operator, operand, found, expected; kFailedPrecondition for stale
// operands. Results are made in the current place; the ...Into forms write to a given array. Cost:
// what is read and written, and one pass over the indices.
#ifndef TIDEPOOL_NDARRAY_OPS_INDEXING_H_
#define TIDEPOOL_NDARRAY_OPS_INDEXING_H_

#include <cstdint>

#include "tidepool/ndarray/kernel/attributes_indexing.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/ops/axes.h"

namespace tidepool {

// Slices of x along `axis` in the order of indices (NumPy's take): the axis is replaced by the shape
// of indices. x may be empty where indices is.
NDArray Gather(const NDArray& x, const NDArray& indices, int axis = 0);
void GatherInto(const NDArray& x, const NDArray& indices, int axis, NDArray& z);

// One element for each index (NumPy's take_along_axis, PyTorch's gather): z[.., i, ..] =
// x[.., indices[.., i, ..], ..], where the index stands on `axis` and the others are the result's own. x and indices
// have one rank of at least 1; the result has indices' size along `axis`, and along the other axes, where both
// broadcast, their common one. Mind the order of arguments: Gather(x, indices, axis) takes whole slices. The
// gradient with respect to x is Scatter(zeros, axis, indices, dz, ScatterReduction::kAdd). Scratch: 8 bytes an
// element of the result (none for x of rank 1), made on the host; views of x are read where they are.
NDArray Gather(const NDArray& x, int axis, const NDArray& indices);
void GatherInto(const NDArray& x, int axis, const NDArray& indices, NDArray& z);

// target with each element z[.., indices[.., i, ..], ..] along `axis` changed by updates[.., i, ..] (NumPy's
// put_along_axis, PyTorch's scatter and scatter_reduce with include_self): written over (kNone), added, multiplied, or
// the smaller or larger of both, NaN where either is. target and indices have one rank of at least 1 and broadcast
// but along `axis`; updates, of target's type, broadcast to them. Equal indices follow one another in row-major
// order for any number of threads, so that of kNone the last one stays. bool is not added or multiplied; 16-bit
// floats are rounded after each step, integers wrap.
// A gradient tape has those of target and updates, of kNone and kAdd: of kAdd's updates Gather(dz, axis, indices), of kNone's the
// same where they stayed. Cost: a copy of
// target, which ScatterInto saves; scratch of 8 bytes an update, made on the host. One thread, on the
// host; devices add f32, f64, i32 and i64 by scatter_add's kernels.
NDArray Scatter(const NDArray& target, int axis, const NDArray& indices, const NDArray& updates,
                ScatterReduction reduction = ScatterReduction::kNone);
void ScatterInto(int axis, const NDArray& indices, const NDArray& updates,
                 ScatterReduction reduction, NDArray& target);

// z[.., indices[i], ..] += updates[.., i, ..] along `axis` of z, where i runs over the shape of
// indices. Equal indices are added one after the other, in row-major order, for any number of
// threads. f32, f64, i32 (modulo 2^32), i64.
void ScatterAddInto(const NDArray& updates, const NDArray& indices, int axis, NDArray& z);

// The gradient of Gather with respect to x, of `x_shape`: zeros, and dz added where it came from.
NDArray GatherGrad(const NDArray& dz, const NDArray& indices, const Shape& x_shape, int axis = 0);

// Rows of a table [entries, ..]: the lookup of an embedding. Its gradient is the table's.
inline NDArray EmbeddingLookup(const NDArray& table, const NDArray& indices) {
  return Gather(table, indices, 0);
}
// [entries, ..] of table_shape: each row has the sum of its dz.
inline NDArray EmbeddingGrad(const NDArray& dz, const NDArray& indices, const Shape& table_shape) {
  return GatherGrad(dz, indices, table_shape, 0);
}

// A new last axis of size `depth`: `on` at the index, `off` elsewhere.
NDArray OneHot(const NDArray& indices, int64_t depth, DType dtype = DType::kFloat32, double on = 1,
               double off = 0);

// x with these axes reversed; all of them when none are given.
NDArray Flip(const NDArray& x, const Axes& axes = {});

// The last two axes' elements on and above (upper) or on and below (lower) a diagonal, zeros
// elsewhere. Diagonal 0 is the main one, 1 the one above it. z may be the very same view as x.
NDArray UpperTriangle(const NDArray& x, int64_t diagonal = 0);
NDArray LowerTriangle(const NDArray& x, int64_t diagonal = 0);
void UpperTriangleInto(const NDArray& x, int64_t diagonal, NDArray& z);
void LowerTriangleInto(const NDArray& x, int64_t diagonal, NDArray& z);
// [rows, columns]: ones on and below the diagonal. What a token may look at, for diagonal 0.
NDArray LowerTriangularMask(int64_t rows, int64_t columns, int64_t diagonal = 0,
                            DType dtype = DType::kBool);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_INDEXING_H_
