// Functions of elements that are exact up to one rounding, for kernels of one operator and of chains.
// Integers wrap modulo 2^bits.
#ifndef TIDEPOOL_BACKENDS_CUDA_ELEMENTWISE_BASIC_FUNCTIONS_H_
#define TIDEPOOL_BACKENDS_CUDA_ELEMENTWISE_BASIC_FUNCTIONS_H_

#include <cstdint>
#include <type_traits>

#include "tidepool/backends/cuda/framework/math.h"

namespace tidepool::cuda {

// Operands converted so that +, - and * wrap instead of overflowing; floats stay what they are.
template <typename T>
using Wrapping = std::conditional_t<std::is_integral_v<T>,
                                    std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>, T>;

struct AddFunction {
  template <typename T>
  __device__ T operator()(T x, T y) const {
    return static_cast<T>(static_cast<Wrapping<T>>(x) + static_cast<Wrapping<T>>(y));
  }
};
struct SubtractFunction {
  template <typename T>
  __device__ T operator()(T x, T y) const {
    return static_cast<T>(static_cast<Wrapping<T>>(x) - static_cast<Wrapping<T>>(y));
  }
};
struct MultiplyFunction {
  template <typename T>
  __device__ T operator()(T x, T y) const {
    return static_cast<T>(static_cast<Wrapping<T>>(x) * static_cast<Wrapping<T>>(y));
  }
};
struct DivideFunction {
  template <typename T>
  __device__ T operator()(T x, T y) const {
    if constexpr (std::is_integral_v<T>) {
      // The one quotient that overflows wraps.
      if (std::is_signed_v<T> && y == T(-1)) return static_cast<T>(uint64_t{0} - static_cast<uint64_t>(x));
      return static_cast<T>(x / y);
    } else {
      return x / y;
    }
  }
};
// NaN if either is.
template <bool kMaximum>
struct ExtremumFunction {
  template <typename T>
  __device__ T operator()(T x, T y) const {
    if (x != x) return x;
    if (y != y) return y;
    return (kMaximum ? x < y : y < x) ? y : x;
  }
};

struct NegateFunction {
  template <typename T>
  __device__ T operator()(T x) const {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(uint64_t{0} - static_cast<uint64_t>(x));
    } else {
      return -x;
    }
  }
};
struct AbsFunction {
  template <typename T>
  __device__ T operator()(T x) const {
    if constexpr (std::is_unsigned_v<T>) {
      return x;
    } else if constexpr (std::is_integral_v<T>) {
      return x < 0 ? static_cast<T>(uint64_t{0} - static_cast<uint64_t>(x)) : x;
    } else {
      return Fabs(x);
    }
  }
};
struct SquareFunction {
  template <typename T>
  __device__ T operator()(T x) const {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<uint64_t>(x) * static_cast<uint64_t>(x));
    } else {
      return x * x;
    }
  }
};
struct ReluFunction {
  // NaN stays NaN: it is not at most zero.
  template <typename T>
  __device__ T operator()(T x) const {
    return x <= T(0) ? T(0) : x;
  }
};

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

#endif  // TIDEPOOL_BACKENDS_CUDA_ELEMENTWISE_BASIC_FUNCTIONS_H_
