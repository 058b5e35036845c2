// Chains of elementwise operators: one kernel goes through the steps of the program it is given, with
// the functions of the operators themselves, for each element it has loaded.
#include "tidepool/backends/cuda/elementwise/parameters.h"
#include "tidepool/backends/cuda/elementwise/register.h"
#include "tidepool/backends/cuda/framework/math.h"
#include "tidepool/ndarray/kernel/attributes_chain.h"

namespace tidepool::cuda {
namespace {

template <typename T>
class ChainFunction {
 public:
  using Number = Compute<T>;

  explicit ChainFunction(const KernelCall& call)
      : program_(call.attrs<ElementwiseChainAttributes>()) {
    for (ChainStep& step : program_.steps) {
      if (step.op != OpCode::kClip) continue;
      step.a = ConvertElement<double>(ClipBound<T>(step.a));
      step.b = ConvertElement<double>(ClipBound<T>(step.b));
    }
  }
  __device__ Number operator()(Number x) const { return Run(x, Number(0), Number(0)); }
  __device__ Number operator()(Number x, Number y) const { return Run(x, y, Number(0)); }
  __device__ Number operator()(Number x, Number y, Number w) const { return Run(x, y, w); }

 private:
  __device__ __forceinline__ Number Run(Number v, Number y, Number w) const {
    // Not unrolled: a product and a sum of two steps must not become one with one rounding.
#pragma unroll 1
    for (int i = 0; i < program_.count; ++i) {
      const ChainStep& step = program_.steps[i];
      const Number other = step.operand == 2 ? w : y;
      // Rounded as the operator's result would be.
      v = ToCompute(FromCompute<T>(step.reversed ? Do(step, other, v) : Do(step, v, other)));
    }
    return v;
  }
  static __device__ __forceinline__ Number Do(const ChainStep& step, Number v, Number w) {
    switch (step.op) {
#define TIDEPOOL_CHAIN_FUNCTION_OF_TWO(Name) \
  case OpCode::k##Name:                      \
    return Name##Formula()(v, w);
#define TIDEPOOL_CHAIN_FUNCTION(Name) \
  case OpCode::k##Name:               \
    return Name##Formula()(v);
#include "tidepool/ndarray/kernel/operators/chain_steps.inc"
#undef TIDEPOOL_CHAIN_FUNCTION_OF_TWO
#undef TIDEPOOL_CHAIN_FUNCTION
      case OpCode::kScaleShift:
        return ScaleAndShift(v, step.a, step.b);
      case OpCode::kClip:
        return Clipped(v, static_cast<Number>(step.a), static_cast<Number>(step.b));
      case OpCode::kLeakyRelu:
        return LeakyReluFunction(step.a)(v);
      case OpCode::kElu:
        return EluFunction(step.a)(v);
      default:
        return GeluFunction(step.a != 0)(v);
    }
  }

  ElementwiseChainAttributes program_;
};

template <typename T>
void RunChain(const KernelCall& call) {
  const ChainFunction<T> function(call);
  if (call.inputs[2].present) {
    RunPointwise<T, T, T, T>(call, function);
  } else if (call.inputs[1].present) {
    RunPointwise<T, T, T>(call, function);
  } else {
    RunPointwise<T, T>(call, function);
  }
}

const bool registered = [] {
  ForEachType(FloatTypes(), [](auto t) {
    using T = decltype(t);
    AddKernel(OpCode::kElementwiseChain, DTypeOf<T>::value, &RunChain<T>, true);
  });
  return true;
}();

}  // namespace
}  // namespace tidepool::cuda
