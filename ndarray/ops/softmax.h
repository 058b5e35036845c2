// Softmax and its logarithm over an axis, with gradients. f32, f64, f16, bf16. The losses of it are
// in loss.h.
//
//   softmax(x)[i] = exp(x[i] - m) / sum_k exp(x[k] - m), m the largest of the axis: no overflow.
//
// Results are in the current place. An axis is counted from the end when negative. A NaN makes its
// line NaN. Errors: kInvalidArgument naming operand, shape and type.
#ifndef TIDEPOOL_NDARRAY_OPS_SOFTMAX_H_
#define TIDEPOOL_NDARRAY_OPS_SOFTMAX_H_

#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/ops/loss.h"

namespace tidepool {

// Of x's shape and type: the formula above, and log(softmax(x)) without the detour.
NDArray Softmax(const NDArray& x, int axis = -1);
NDArray LogSoftmax(const NDArray& x, int axis = -1);

// From the results z. The gradient of Softmax is z * (dz - sum(z * dz)),
// that of LogSoftmax dz - exp(z) * sum(dz).
NDArray SoftmaxGrad(const NDArray& z, const NDArray& dz, int axis = -1);
NDArray LogSoftmaxGrad(const NDArray& z, const NDArray& dz, int axis = -1);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_SOFTMAX_H_
