// Activations that take attributes.
#ifndef TIDEPOOL_BACKENDS_CUDA_ELEMENTWISE_ACTIVATION_FUNCTIONS_H_
#define TIDEPOOL_BACKENDS_CUDA_ELEMENTWISE_ACTIVATION_FUNCTIONS_H_

#include "tidepool/backends/cuda/framework/math.h"
#include "tidepool/ndarray/kernel/attributes_elementwise.h"
#include "tidepool/ndarray/kernel/kernel.h"

namespace tidepool::cuda {

struct AlphaFunction {
  explicit AlphaFunction(const KernelCall& call) : alpha(call.attrs<AlphaAttributes>().alpha) {}
  __device__ explicit AlphaFunction(double of) : alpha(of) {}
  // Rounded once.
  template <typename T>
  __device__ T Scaled(T x) const {
    return static_cast<T>(alpha * static_cast<double>(x));
  }
  double alpha;
};

struct LeakyReluFunction : AlphaFunction {
  using AlphaFunction::AlphaFunction;
  template <typename T>
  __device__ T operator()(T x) const {
    return x > T(0) ? x : Scaled(x);
  }
};
struct EluFunction : AlphaFunction {
  using AlphaFunction::AlphaFunction;
  template <typename T>
  __device__ T operator()(T x) const {
    return x > T(0) ? x : Scaled(Expm1(x));
  }
};

struct GeluBase {
  explicit GeluBase(const KernelCall& call) : tanh_form(call.attrs<GeluAttributes>().tanh_form) {}
  __device__ explicit GeluBase(bool of_tanh) : tanh_form(of_tanh) {}
  bool tanh_form;

  static constexpr double kSqrtHalf = 0.70710678118654752440;
  static constexpr double kInverseSqrt2Pi = 0.39894228040143267794;
  static constexpr double kSqrt8OverPi = 1.59576912160573071176;  // twice sqrt(2 / pi)
  static constexpr double kCubic = 0.044715;
};
struct GeluFunction : GeluBase {
  using GeluBase::GeluBase;
  template <typename T>
  __device__ T operator()(T x) const {
    if (tanh_form) return x * Sigmoid(T(kSqrt8OverPi) * (x + T(kCubic) * x * x * x));
    return x * (Erfc(-x * T(kSqrtHalf)) / T(2));
  }
};

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_ELEMENTWISE_ACTIVATION_FUNCTIONS_H_
