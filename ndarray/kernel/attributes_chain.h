// What a chain of elementwise operators does to each element; see ndarray/ops/elementwise_chain.h.
#ifndef TIDEPOOL_NDARRAY_KERNEL_ATTRIBUTES_CHAIN_H_
#define TIDEPOOL_NDARRAY_KERNEL_ATTRIBUTES_CHAIN_H_

#include <cstdint>

#include "tidepool/ndarray/kernel/op_code.h"

namespace tidepool {

inline constexpr int kMaxChainSteps = 8;

// v = op(v), v = op(v, operand) or, reversed, v = op(operand, v); each rounded to the arrays' type. The
// operators: operators/chain_steps.inc, and scale_shift, clip, leaky_relu, elu, gelu.
struct ChainStep {
  OpCode op = OpCode::kAdd;
  uint8_t operand = 0;  // 1: Y, 2: W; 0: of operators that have none
  bool reversed = false;
  // Of scale_shift the scale and the shift, of clip low and high, of leaky_relu and elu alpha, of gelu
  // whether it is the form with tanh.
  double a = 0, b = 0;
};

// From v = X on, one step after the other; at least one.
struct ElementwiseChainAttributes {
  int count = 0;
  ChainStep steps[kMaxChainSteps];
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_KERNEL_ATTRIBUTES_CHAIN_H_
