// What kernels of the network operators compute in besides framework/numbers.h: types of sums and
// statistics, and conversions that round once.
#ifndef TIDEPOOL_BACKENDS_CUDA_COMMON_ELEMENT_H_
#define TIDEPOOL_BACKENDS_CUDA_COMMON_ELEMENT_H_

#include <cstdint>
#include <limits>
#include <type_traits>

#include "cuda_runtime.h"
#include "tidepool/backends/cuda/framework/math.h"
#include "tidepool/backends/cuda/framework/numbers.h"
#include "tidepool/ndarray/dtype.h"

namespace tidepool::cuda {

// Of sums over many f32 or 16-bit elements: their rounding errors do not add up.
template <typename T>
using Total = std::conditional_t<kIsFloat<T>, double, uint64_t>;

// Statistics of normalisation.
template <typename T>
using Statistic = std::conditional_t<std::is_same_v<T, double>, double, float>;

// The number that is stored.
template <typename T>
__device__ __forceinline__ Compute<T> Wide(T value) {
  return ToCompute(value);
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
    return FromCompute<T>(single);
  } else {
    return static_cast<T>(value);
  }
}

// a / b of numbers that are not negative: 32-bit division, several times faster, where it will do.
__device__ __forceinline__ int64_t Quotient(int64_t a, int64_t b) {
  if (static_cast<uint64_t>(a | b) >> 32 == 0) {
    return static_cast<uint32_t>(a) / static_cast<uint32_t>(b);
  }
  return a / b;
}

template <typename W>
__device__ __forceinline__ bool IsFinite(W x) {
  return Fabs(x) <= std::numeric_limits<W>::max();
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
