// Gradients of the list's operators that other operators make up.
#ifndef TIDEPOOL_NDARRAY_OPS_COMPOSED_GRADIENTS_H_
#define TIDEPOOL_NDARRAY_OPS_COMPOSED_GRADIENTS_H_

#include "tidepool/ndarray/ops/gradients.h"

namespace tidepool {

inline constexpr int kComposedInputs = 5;  // the most of an operator of kComposed

struct ComposedGradient {
  OpCode op;
  // By input: whose elements its gradient is computed from; a result that ended with a ReLU is known to be.
  OperandSet needs[kComposedInputs];
  GradientFunction function;
};

// Null for operators whose rows do not say kComposed.
const ComposedGradient* ComposedGradientOf(OpCode op);

// Likewise, of operators that order, pick, place and multiply elements along axes, and of gradient operators.
const ComposedGradient* OrderGradientOf(OpCode op);
const ComposedGradient* SecondGradientOf(OpCode op);

// The sum of `dz` over the axes along which `shape` was broadcast to its own; into `destination` where that is not null.
NDArray SumTo(const NDArray& dz, const Shape& shape, NDArray* destination = nullptr);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_COMPOSED_GRADIENTS_H_
