// Gradients of activations: from the output (Z) or the input (X) and the gradient of the output.
#include "tidepool/backends/cuda/elementwise/activation_functions.h"
#include "tidepool/backends/cuda/elementwise/register.h"
#include "tidepool/backends/cuda/framework/math.h"

namespace tidepool::cuda {
namespace {

#define TIDEPOOL_GRADIENT(Name, expression)       \
  struct Name {                                   \
    template <typename T>                         \
    __device__ T operator()(T x, T dz) const {    \
      return expression;                          \
    }                                             \
  };
TIDEPOOL_GRADIENT(ReluGradFunction, x > T(0) ? dz : T(0))
TIDEPOOL_GRADIENT(SigmoidGradFunction, dz * (x * (T(1) - x)))
TIDEPOOL_GRADIENT(TanhGradFunction, dz * ((T(1) - x) * (T(1) + x)))
TIDEPOOL_GRADIENT(SwishGradFunction, dz * (Sigmoid(x) * (T(1) + x * Sigmoid(-x))))
TIDEPOOL_GRADIENT(SoftplusGradFunction, dz * Sigmoid(x))
#undef TIDEPOOL_GRADIENT

struct LeakyReluGradFunction : AlphaFunction {
  using AlphaFunction::AlphaFunction;
  template <typename T>
  __device__ T operator()(T x, T dz) const {
    return x > T(0) ? dz : Scaled(dz);
  }
};
struct EluGradFunction : AlphaFunction {
  using AlphaFunction::AlphaFunction;
  template <typename T>
  __device__ T operator()(T x, T dz) const {
    return x > T(0) ? dz : static_cast<T>(static_cast<double>(dz) * alpha * static_cast<double>(Exp(x)));
  }
};
struct GeluGradFunction : GeluBase {
  using GeluBase::GeluBase;
  template <typename T>
  __device__ T operator()(T x, T dz) const {
    if (tanh_form) {
      const T inner = T(kSqrt8OverPi) * (x + T(kCubic) * x * x * x);
      const T s = Sigmoid(inner);
      // 1 - s without cancellation, and before the large factor: where it is 0 the product is.
      return dz * (s + x * (s * Sigmoid(-inner)) * (T(kSqrt8OverPi) * (T(1) + T(3 * kCubic) * x * x)));
    }
    return dz * (Erfc(-x * T(kSqrtHalf)) / T(2) + x * (T(kInverseSqrt2Pi) * Exp(x * x / T(-2))));
  }
};

const bool registered[] = {
    AddBinary<ReluGradFunction>(OpCode::kReluGrad, FloatTypes()),
    AddBinary<SigmoidGradFunction>(OpCode::kSigmoidGrad, FloatTypes()),
    AddBinary<TanhGradFunction>(OpCode::kTanhGrad, FloatTypes()),
    AddBinary<SwishGradFunction>(OpCode::kSwishGrad, FloatTypes()),
    AddBinary<SoftplusGradFunction>(OpCode::kSoftplusGrad, FloatTypes()),
    AddBinary<LeakyReluGradFunction>(OpCode::kLeakyReluGrad, FloatTypes()),
    AddBinary<EluGradFunction>(OpCode::kEluGrad, FloatTypes()),
    AddBinary<GeluGradFunction>(OpCode::kGeluGrad, FloatTypes()),
};

}  // namespace
}  // namespace tidepool::cuda
