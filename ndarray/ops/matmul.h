// Matrix products as NumPy's matmul: of the last two axes, the leading ones broadcast. Numbers; operands of
// different types promote (PromoteTypes of dtype.h) and the result has that type; integers wrap around. f32 and f64
// sums are in that type, those of 16-bit floats in f32. What is promoted, and integers other than i32 and i64, are
// copied to the type that is multiplied in first.
//
// A rank-1 X is one row, a rank-1 Y one column; the axis they lack is left out of the result, and
// they have nothing to transpose. Cost: 2 m n k operations an item; scratch of at most a few MiB a
// thread is taken in the current place.
#ifndef TIDEPOOL_NDARRAY_OPS_MATMUL_H_
#define TIDEPOOL_NDARRAY_OPS_MATMUL_H_

#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// op(X)[.., m, k] op(Y)[.., k, n] (+ bias[n]) (then ReLU), see MatMulAttributes. `bias` may be null.
// The result is in the current place. Throws kInvalidArgument naming shapes that do not fit.
NDArray MatMul(const NDArray& x, const NDArray& y, const MatMulAttributes& attributes = {},
               const NDArray* bias = nullptr);
// Into z, of the shape MatMul would return, which may not overlap the operands; adds to it with
// attributes.accumulate.
void MatMulInto(const NDArray& x, const NDArray& y, NDArray& z,
                const MatMulAttributes& attributes = {}, const NDArray* bias = nullptr);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_MATMUL_H_
