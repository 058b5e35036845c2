// Quotients, remainders, powers and affine maps. Integer division truncates; callers have refused
// zero divisors and negative exponents of integers.
#include <cstdint>
#include <type_traits>

#include "tidepool/backends/cuda/elementwise/basic_functions.h"
#include "tidepool/backends/cuda/elementwise/register.h"
#include "tidepool/backends/cuda/framework/math.h"
#include "tidepool/ndarray/kernel/attributes.h"

namespace tidepool::cuda {
namespace {

struct PowerFunction {
  template <typename T>
  __device__ T operator()(T x, T y) const {
    if constexpr (std::is_integral_v<T>) {
      uint64_t result = 1, factor = static_cast<uint64_t>(x);
      for (auto rest = static_cast<uint64_t>(y); rest > 0; rest >>= 1, factor *= factor) {
        if (rest & 1) result *= factor;
      }
      return static_cast<T>(result);
    } else {
      return Pow(x, y);
    }
  }
};

// As NumPy's mod: x - floor(x / y) * y.
struct RemainderFunction {
  template <typename T>
  __device__ T operator()(T x, T y) const {
    if constexpr (std::is_unsigned_v<T>) {
      return static_cast<T>(x % y);
    } else if constexpr (std::is_integral_v<T>) {
      if (y == T(-1)) return T(0);
      const T rest = static_cast<T>(x % y);
      return rest != 0 && (rest < 0) != (y < 0) ? static_cast<T>(rest + y) : rest;
    } else {
      T rest = Fmod(x, y);
      if (rest == 0) return Copysign(T(0), y);
      if ((rest < 0) != (y < 0)) rest += y;
      return rest;
    }
  }
};

struct ScaleShiftFunction {
  explicit ScaleShiftFunction(const KernelCall& call)
      : scale(call.attrs<ScaleShiftAttributes>().scale),
        shift(call.attrs<ScaleShiftAttributes>().shift) {
    auto is_whole = [](double value) {
      return value >= -0x1p63 && value < 0x1p63 && value == trunc(value);
    };
    whole = is_whole(scale) && is_whole(shift);
    if (whole) {
      whole_scale = static_cast<uint64_t>(static_cast<int64_t>(scale));
      whole_shift = static_cast<uint64_t>(static_cast<int64_t>(shift));
    }
  }
  template <typename T>
  __device__ T operator()(T x) const {
    if constexpr (!std::is_integral_v<T>) {
      return ScaleAndShift(x, scale, shift);
    } else if (whole) {
      return static_cast<T>(static_cast<uint64_t>(x) * whole_scale + whole_shift);
    } else {
      // Two roundings, as the reference.
      return ConvertElement<T>(__dadd_rn(__dmul_rn(scale, static_cast<double>(x)), shift));
    }
  }

  double scale, shift;
  bool whole;
  uint64_t whole_scale = 0, whole_shift = 0;
};

const bool registered[] = {
    AddBinary<DivideFunction>(OpCode::kDivide, NumberTypes()),
    AddBinary<PowerFunction>(OpCode::kPower, NumberTypes()),
    AddBinary<RemainderFunction>(OpCode::kRemainder, NumberTypes()),
    AddUnary<ScaleShiftFunction>(OpCode::kScaleShift, NumberTypes()),
};

}  // namespace
}  // namespace tidepool::cuda
