// Matrix product of rank-2 f32 arrays.
#ifndef TIDEPOOL_NDARRAY_OPS_MATMUL_H_
#define TIDEPOOL_NDARRAY_OPS_MATMUL_H_

#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// op(X)[m, k] op(Y)[k, n] (+ bias[n]) (then ReLU), see MatMulAttributes. `bias` may be null. The
// result is in the current place. Throws kInvalidArgument naming shapes that do not fit.
NDArray MatMul(const NDArray& x, const NDArray& y, const MatMulAttributes& attributes = {},
               const NDArray* bias = nullptr);
// Into z[m, n], which may not overlap the operands; adds to it with attributes.accumulate.
void MatMulInto(const NDArray& x, const NDArray& y, NDArray& z,
                const MatMulAttributes& attributes = {}, const NDArray* bias = nullptr);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_MATMUL_H_
