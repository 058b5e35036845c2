// Formulas with a parameter (ndarray/kernel/element_formulas.inc), held as functions of elements, for kernels of one operator
// and of chains.
#ifndef TIDEPOOL_BACKENDS_CUDA_ELEMENTWISE_PARAMETERS_H_
#define TIDEPOOL_BACKENDS_CUDA_ELEMENTWISE_PARAMETERS_H_

#include "tidepool/backends/cuda/framework/math.h"
#include "tidepool/ndarray/kernel/attributes_elementwise.h"
#include "tidepool/ndarray/kernel/kernel.h"

namespace tidepool::cuda {

template <typename Formula>
struct AlphaFunction {
  explicit AlphaFunction(const KernelCall& call) : alpha(call.attrs<AlphaAttributes>().alpha) {}
  __device__ explicit AlphaFunction(double of) : alpha(of) {}
  template <typename T, typename... Gradient>
  __device__ T operator()(T x, Gradient... dz) const {
    return Formula()(x, dz..., static_cast<T>(alpha));
  }
  double alpha;
};
using LeakyReluFunction = AlphaFunction<LeakyReluFormula>;
using EluFunction = AlphaFunction<EluFormula>;

template <typename ErfFormula, typename TanhFormula>
struct GeluFunctions {
  explicit GeluFunctions(const KernelCall& call)
      : tanh_form(call.attrs<GeluAttributes>().tanh_form) {}
  __device__ explicit GeluFunctions(bool of_tanh) : tanh_form(of_tanh) {}
  template <typename T, typename... Gradient>
  __device__ T operator()(T x, Gradient... dz) const {
    return tanh_form ? TanhFormula()(x, dz...) : ErfFormula()(x, dz...);
  }
  bool tanh_form;
};
using GeluFunction = GeluFunctions<GeluErfFormula, GeluTanhFormula>;

template <typename T>
__device__ __forceinline__ T Clipped(T x, T low, T high) {
  return x < low ? low : x > high ? high : x;
}

// Of floats: rounded once.
template <typename T>
__device__ __forceinline__ T ScaleAndShift(T x, double scale, double shift) {
  return static_cast<T>(fma(scale, static_cast<double>(x), shift));
}

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_ELEMENTWISE_PARAMETERS_H_
