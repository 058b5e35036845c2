// Elements in device code: what a kernel computes in, and conversions between it and memory.
//
// f16 and bf16 are computed in float; conversions are single instructions on devices and those of
// ndarray/float16.h, with the same values, elsewhere.
#ifndef TIDEPOOL_BACKENDS_CUDA_COMMON_ELEMENT_H_
#define TIDEPOOL_BACKENDS_CUDA_COMMON_ELEMENT_H_

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "cuda_runtime.h"
#include "tidepool/ndarray/dtype.h"

namespace tidepool::cuda {

// What arithmetic on elements happens in: float for 16-bit floats, else the type itself.
template <typename T>
using Compute = std::conditional_t<kIs16BitFloat<T>, float, T>;

// Of sums over many f32 or 16-bit elements: their rounding errors do not add up.
template <typename T>
using Total = std::conditional_t<kIsFloat<T>, double, uint64_t>;

// Statistics of normalisation.
template <typename T>
using Statistic = std::conditional_t<std::is_same_v<T, double>, double, float>;

__device__ __forceinline__ float ToFloat(Float16 value) {
#if defined(__CUDA_ARCH__)
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
#else
  return static_cast<float>(value);
#endif
}
__device__ __forceinline__ float ToFloat(BFloat16 value) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(static_cast<unsigned>(value.bits) << 16);
#else
  return static_cast<float>(value);
#endif
}

// The number that is stored.
template <typename T>
__device__ __forceinline__ Compute<T> Wide(T value) {
  if constexpr (kIs16BitFloat<T>) {
    return ToFloat(value);
  } else {
    return value;
  }
}

__device__ __forceinline__ float RoundToOdd(double value) {
#if defined(__CUDA_ARCH__)
  const float towards_zero = __double2float_rz(value);
  const bool exact = static_cast<double>(towards_zero) == value || value != value;
  return exact ? towards_zero : __uint_as_float(__float_as_uint(towards_zero) | 1u);
#else
  return float16_internal::ToOddFloat(value);
#endif
}

// Rounded once to a float type.
template <typename T, typename From>
__device__ __forceinline__ T Narrow(From value) {
  if constexpr (std::is_same_v<T, From>) {
    return value;
  } else if constexpr (kIs16BitFloat<T>) {
    float single;
    if constexpr (std::is_same_v<From, double>) {
      single = RoundToOdd(value);
    } else {
      single = static_cast<float>(value);
    }
    T result;
#if defined(__CUDA_ARCH__)
    if constexpr (std::is_same_v<T, Float16>) {
      asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(single));
    } else {
      asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(single));
    }
#else
    result = T(single);
#endif
    return result;
  } else {
    return static_cast<T>(value);
  }
}

// The one of the type, so that no double arithmetic slips in among floats.
__device__ __forceinline__ float Exp(float x) { return expf(x); }
__device__ __forceinline__ double Exp(double x) { return exp(x); }
__device__ __forceinline__ float Log(float x) { return logf(x); }
__device__ __forceinline__ double Log(double x) { return log(x); }
__device__ __forceinline__ float Log1p(float x) { return log1pf(x); }
__device__ __forceinline__ double Log1p(double x) { return log1p(x); }
__device__ __forceinline__ float Tanh(float x) { return tanhf(x); }
__device__ __forceinline__ double Tanh(double x) { return tanh(x); }
__device__ __forceinline__ float Sqrt(float x) { return sqrtf(x); }
__device__ __forceinline__ double Sqrt(double x) { return sqrt(x); }
__device__ __forceinline__ float Abs(float x) { return fabsf(x); }
__device__ __forceinline__ double Abs(double x) { return fabs(x); }
template <typename W>
__device__ __forceinline__ W Sigmoid(W x) {
  return 1 / (1 + Exp(-x));
}
template <typename W>
__device__ __forceinline__ bool IsFinite(W x) {
  return Abs(x) <= std::numeric_limits<W>::max();
}
template <typename W>
__device__ __forceinline__ W Infinity() {
  return std::numeric_limits<W>::infinity();
}
template <typename W>
__device__ __forceinline__ W NaN() {
  return std::numeric_limits<W>::quiet_NaN();
}
template <typename W>
__device__ __forceinline__ bool IsNaN(W x) {
  return x != x;
}

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_COMMON_ELEMENT_H_
