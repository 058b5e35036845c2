// Functions of float and double by one name, in device code and in the emulation. Errors on devices
// are those of the CUDA C++ programming guide's tables: 0 to 2 ulp for what is here.
#ifndef TIDEPOOL_BACKENDS_CUDA_FRAMEWORK_MATH_H_
#define TIDEPOOL_BACKENDS_CUDA_FRAMEWORK_MATH_H_

#include <math.h>

#include "cuda_runtime.h"

namespace tidepool::cuda {

#define TIDEPOOL_CUDA_FUNCTION(Name, function)                                             \
  __device__ __forceinline__ float Name(float x) { return ::function##f(x); }              \
  __device__ __forceinline__ double Name(double x) { return ::function(x); }
TIDEPOOL_CUDA_FUNCTION(Exp, exp)
TIDEPOOL_CUDA_FUNCTION(Expm1, expm1)
TIDEPOOL_CUDA_FUNCTION(Log, log)
TIDEPOOL_CUDA_FUNCTION(Log1p, log1p)
TIDEPOOL_CUDA_FUNCTION(Sin, sin)
TIDEPOOL_CUDA_FUNCTION(Cos, cos)
TIDEPOOL_CUDA_FUNCTION(Tanh, tanh)
TIDEPOOL_CUDA_FUNCTION(Erf, erf)
TIDEPOOL_CUDA_FUNCTION(Erfc, erfc)
TIDEPOOL_CUDA_FUNCTION(Sqrt, sqrt)
TIDEPOOL_CUDA_FUNCTION(Floor, floor)
TIDEPOOL_CUDA_FUNCTION(Ceil, ceil)
TIDEPOOL_CUDA_FUNCTION(Rint, rint)
TIDEPOOL_CUDA_FUNCTION(Fabs, fabs)
#undef TIDEPOOL_CUDA_FUNCTION

__device__ __forceinline__ float Fmod(float x, float y) { return ::fmodf(x, y); }
__device__ __forceinline__ double Fmod(double x, double y) { return ::fmod(x, y); }
__device__ __forceinline__ float Copysign(float x, float y) { return ::copysignf(x, y); }
__device__ __forceinline__ double Copysign(double x, double y) { return ::copysign(x, y); }
__device__ __forceinline__ double Pow(double x, double y) { return ::pow(x, y); }
// powf is off by up to 4 ulp; rounding the double result costs what such devices have to spare.
__device__ __forceinline__ float Pow(float x, float y) {
  return static_cast<float>(::pow(static_cast<double>(x), static_cast<double>(y)));
}

// 1 / (1 + exp(-x)) without overflow on either side.
template <typename T>
__device__ __forceinline__ T Sigmoid(T x) {
  if (x < T(0)) {
    const T e = Exp(x);
    return e / (T(1) + e);
  }
  return T(1) / (T(1) + Exp(-x));
}

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_FRAMEWORK_MATH_H_
