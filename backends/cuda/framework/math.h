// Functions of float and double by one name, in device code and in the emulation. Errors on devices
// are those of the CUDA C++ programming guide's tables: 0 to 2 ulp for what is here.
#ifndef TIDEPOOL_BACKENDS_CUDA_FRAMEWORK_MATH_H_
#define TIDEPOOL_BACKENDS_CUDA_FRAMEWORK_MATH_H_

#include <math.h>

#include <cstdint>

#include "cuda_runtime.h"

namespace tidepool::cuda {

#define TIDEPOOL_CUDA_FUNCTION(Name, function)                                \
  __device__ __forceinline__ float Name(float x) { return ::function##f(x); } \
  __device__ __forceinline__ double Name(double x) { return ::function(x); }
TIDEPOOL_CUDA_FUNCTION(Exp, exp)
TIDEPOOL_CUDA_FUNCTION(Exp2, exp2)
TIDEPOOL_CUDA_FUNCTION(Expm1, expm1)
TIDEPOOL_CUDA_FUNCTION(Log, log)
TIDEPOOL_CUDA_FUNCTION(Log2, log2)
TIDEPOOL_CUDA_FUNCTION(Log10, log10)
TIDEPOOL_CUDA_FUNCTION(Log1p, log1p)
TIDEPOOL_CUDA_FUNCTION(Cbrt, cbrt)
TIDEPOOL_CUDA_FUNCTION(Sin, sin)
TIDEPOOL_CUDA_FUNCTION(Cos, cos)
TIDEPOOL_CUDA_FUNCTION(Tan, tan)
TIDEPOOL_CUDA_FUNCTION(Asin, asin)
TIDEPOOL_CUDA_FUNCTION(Acos, acos)
TIDEPOOL_CUDA_FUNCTION(Atan, atan)
TIDEPOOL_CUDA_FUNCTION(Sinh, sinh)
TIDEPOOL_CUDA_FUNCTION(Cosh, cosh)
TIDEPOOL_CUDA_FUNCTION(Tanh, tanh)
TIDEPOOL_CUDA_FUNCTION(Asinh, asinh)
TIDEPOOL_CUDA_FUNCTION(Acosh, acosh)
TIDEPOOL_CUDA_FUNCTION(Atanh, atanh)
TIDEPOOL_CUDA_FUNCTION(Erf, erf)
TIDEPOOL_CUDA_FUNCTION(Erfc, erfc)
TIDEPOOL_CUDA_FUNCTION(Sqrt, sqrt)
TIDEPOOL_CUDA_FUNCTION(Floor, floor)
TIDEPOOL_CUDA_FUNCTION(Ceil, ceil)
TIDEPOOL_CUDA_FUNCTION(Rint, rint)
TIDEPOOL_CUDA_FUNCTION(Trunc, trunc)
TIDEPOOL_CUDA_FUNCTION(Fabs, fabs)
#undef TIDEPOOL_CUDA_FUNCTION

#define TIDEPOOL_CUDA_FUNCTION_OF_TWO(Name, function)                                     \
  __device__ __forceinline__ float Name(float x, float y) { return ::function##f(x, y); } \
  __device__ __forceinline__ double Name(double x, double y) { return ::function(x, y); }
TIDEPOOL_CUDA_FUNCTION_OF_TWO(Fmod, fmod)
TIDEPOOL_CUDA_FUNCTION_OF_TWO(Copysign, copysign)
TIDEPOOL_CUDA_FUNCTION_OF_TWO(Atan2, atan2)
TIDEPOOL_CUDA_FUNCTION_OF_TWO(Hypot, hypot)
#undef TIDEPOOL_CUDA_FUNCTION_OF_TWO
__device__ __forceinline__ float Fma(float a, float b, float c) { return ::fmaf(a, b, c); }
__device__ __forceinline__ double Fma(double a, double b, double c) { return ::fma(a, b, c); }
__device__ __forceinline__ double Pow(double x, double y) { return ::pow(x, y); }
// powf is off by up to 4 ulp; rounding the double result costs what such devices have to spare.
__device__ __forceinline__ float Pow(float x, float y) {
  return static_cast<float>(::pow(static_cast<double>(x), static_cast<double>(y)));
}

// The formulas of elementwise operators in these words.
using Truth = bool;
#define TIDEPOOL_FORMULA __device__ __forceinline__
#define TIDEPOOL_REAL(x) static_cast<T>(x)
// In this order: each needs those above it.
// clang-format off
#include "tidepool/ndarray/kernel/element_formulas.inc"
#include "tidepool/ndarray/kernel/cell_formulas.inc"
// clang-format on
#undef TIDEPOOL_FORMULA
#undef TIDEPOOL_REAL

template <typename T>
__device__ __forceinline__ T Sigmoid(T x) {
  return SigmoidWord(x);
}

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_FRAMEWORK_MATH_H_
