// Gradients of the list's operators that other operators make up.
#ifndef TIDEPOOL_NDARRAY_OPS_COMPOSED_GRADIENTS_H_
#define TIDEPOOL_NDARRAY_OPS_COMPOSED_GRADIENTS_H_

#include "tidepool/ndarray/ops/gradients.h"

namespace tidepool {

// Null for operators whose rows do not say kComposed.
GradientFunction ComposedGradientOf(OpCode op);

// The sum of `dz` over the axes along which `shape` was broadcast to its own.
NDArray SumTo(const NDArray& dz, const Shape& shape);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_COMPOSED_GRADIENTS_H_
