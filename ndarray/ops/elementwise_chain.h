// Several elementwise operators in one pass over memory.
//
//   // y = clip(gelu(x + bias) + residual, -6, 6)
//   static const ElementwiseChain chain =
//       ElementwiseChain().Add(kChainY).Gelu().Add(kChainW).Clip(-6, 6);
//   NDArray y = chain.Apply(x, &bias, &residual);
//
// The value of an element begins as X's and goes through the steps in order; Y and W, up to two further
// arrays, are operands of steps, Y before W. The bits are those of the operators of elementwise.h, unary.h and
// activation.h one after the other, f16 and bf16 rounded after each step, on every device; but X, Y and
// W are read and Z is written once, and nothing lies in between: on CUDA devices it is one kernel, on
// the CPU each step goes over a block that stays in the cache.
//
// Types: X, Y and W have one float type (no promotion), Z too. Shapes broadcast as NumPy's. Z may be
// the very same view as an operand. Cost: one pass; on the CPU it pays above the size of the caches.
// Errors: kInvalidArgument, naming the operator, for a ninth step, bounds of Clip out of order, an
// empty chain, an operand that is used and not given or given and not used, types and shapes that do
// not fit; kFailedPrecondition for stale operands.
// Threads: building: one; Apply: any.
#ifndef TIDEPOOL_NDARRAY_OPS_ELEMENTWISE_CHAIN_H_
#define TIDEPOOL_NDARRAY_OPS_ELEMENTWISE_CHAIN_H_

#include "tidepool/ndarray/kernel/attributes_chain.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/ops/activation.h"

namespace tidepool {

enum ChainOperand : uint8_t { kChainY = 1, kChainW = 2 };

class ElementwiseChain {
 public:
  // v op operand ...
  ElementwiseChain& Add(ChainOperand operand) { return Take({OpCode::kAdd, operand}); }
  ElementwiseChain& Subtract(ChainOperand operand) { return Take({OpCode::kSubtract, operand}); }
  ElementwiseChain& Multiply(ChainOperand operand) { return Take({OpCode::kMultiply, operand}); }
  ElementwiseChain& Divide(ChainOperand operand) { return Take({OpCode::kDivide, operand}); }
  ElementwiseChain& Maximum(ChainOperand operand) { return Take({OpCode::kMaximum, operand}); }
  ElementwiseChain& Minimum(ChainOperand operand) { return Take({OpCode::kMinimum, operand}); }
  // ... and operand op v.
  ElementwiseChain& SubtractFrom(ChainOperand operand) {
    return Take({OpCode::kSubtract, operand, true});
  }
  ElementwiseChain& DivideInto(ChainOperand operand) { return Take({OpCode::kDivide, operand, true}); }

  ElementwiseChain& Negate() { return Take({OpCode::kNegate}); }
  ElementwiseChain& Abs() { return Take({OpCode::kAbs}); }
  ElementwiseChain& Square() { return Take({OpCode::kSquare}); }
  ElementwiseChain& Sqrt() { return Take({OpCode::kSqrt}); }
  ElementwiseChain& Exp() { return Take({OpCode::kExp}); }
  ElementwiseChain& Tanh() { return Take({OpCode::kTanh}); }
  ElementwiseChain& Sigmoid() { return Take({OpCode::kSigmoid}); }
  ElementwiseChain& ScaleShift(double scale, double shift) {
    return Take({OpCode::kScaleShift, 0, false, scale, shift});
  }
  ElementwiseChain& Clip(double low, double high);
  ElementwiseChain& Relu() { return Take({OpCode::kRelu}); }
  ElementwiseChain& LeakyRelu(double alpha = 0.01) {
    return Take({OpCode::kLeakyRelu, 0, false, alpha});
  }
  ElementwiseChain& Elu(double alpha = 1) { return Take({OpCode::kElu, 0, false, alpha}); }
  ElementwiseChain& Gelu(GeluForm form = GeluForm::kErf) {
    return Take({OpCode::kGelu, 0, false, form == GeluForm::kTanh ? 1.0 : 0.0});
  }
  ElementwiseChain& Swish() { return Take({OpCode::kSwish}); }

  // The result is in the current place.
  NDArray Apply(const NDArray& x, const NDArray* y = nullptr, const NDArray* w = nullptr) const;
  // Into z, of the shape and type Apply would return.
  void ApplyInto(const NDArray& x, const NDArray* y, const NDArray* w, NDArray& z) const;

 private:
  ElementwiseChain& Take(const ChainStep& step);
  Shape ResultShape(const NDArray& x, const NDArray* y, const NDArray* w) const;

  ElementwiseChainAttributes program_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_ELEMENTWISE_CHAIN_H_
