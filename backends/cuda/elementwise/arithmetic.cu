// Sums, differences, products, extrema: exact up to one rounding. Integers modulo 2^bits.
#include <cstdint>
#include <type_traits>

#include "tidepool/backends/cuda/elementwise/register.h"

namespace tidepool::cuda {
namespace {

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

const bool registered[] = {
    AddBinary<AddFunction>(OpCode::kAdd, NumberTypes()),
    AddBinary<SubtractFunction>(OpCode::kSubtract, NumberTypes()),
    AddBinary<MultiplyFunction>(OpCode::kMultiply, NumberTypes()),
    AddBinary<ExtremumFunction<true>>(OpCode::kMaximum, NumberTypes()),
    AddBinary<ExtremumFunction<false>>(OpCode::kMinimum, NumberTypes()),
};

}  // namespace
}  // namespace tidepool::cuda
