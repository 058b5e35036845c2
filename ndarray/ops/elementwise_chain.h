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

// The operand of a step that takes one besides the value.
enum ChainOperand : uint8_t { kChainY = 1, kChainW = 2 };

class ElementwiseChain {
 public:
  // v op operand (Add, Subtract, Multiply, Divide, Maximum, Minimum), and f(v) (Negate, Abs, Square, Sqrt, Exp, Tanh,
  // Sigmoid, Relu, Swish) ...
#define TIDEPOOL_CHAIN_FUNCTION_OF_TWO(Name) \
  ElementwiseChain& Name(ChainOperand operand) { return Take({OpCode::k##Name, operand}); }
#define TIDEPOOL_CHAIN_FUNCTION(Name) \
  ElementwiseChain& Name() { return Take({OpCode::k##Name}); }
#include "tidepool/ndarray/kernel/operators/chain_steps.inc"
#undef TIDEPOOL_CHAIN_FUNCTION_OF_TWO
#undef TIDEPOOL_CHAIN_FUNCTION
  // ... and operand op v.
  ElementwiseChain& SubtractFrom(ChainOperand operand) {
    return Take({OpCode::kSubtract, operand, true});
  }
  // operand / v.
  ElementwiseChain& DivideInto(ChainOperand operand) {
    return Take({OpCode::kDivide, operand, true});
  }

  // ... and functions that take numbers.
  ElementwiseChain& ScaleShift(double scale, double shift) {
    return Take({OpCode::kScaleShift, 0, false, scale, shift});
  }
  // As the functions of these names in unary.h and activation.h. Throws kInvalidArgument unless
  // low <= high.
  ElementwiseChain& Clip(double low, double high);
  // Likewise.
  ElementwiseChain& LeakyRelu(double alpha = 0.01) {
    return Take({OpCode::kLeakyRelu, 0, false, alpha});
  }
  // Likewise.
  ElementwiseChain& Elu(double alpha = 1) { return Take({OpCode::kElu, 0, false, alpha}); }
  // Likewise.
  ElementwiseChain& Gelu(GeluForm form = GeluForm::kErf) {
    return Take({OpCode::kGelu, 0, false, form == GeluForm::kTanh ? 1.0 : 0.0});
  }

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
