// Arithmetic of two operands. Floats in their own precision where the operator is exact (f16 and
// bf16 in double), in the next wider type elsewhere. Integers modulo 2^bits; their division
// truncates.
#include <cmath>
#include <limits>
#include <type_traits>

#include "tidepool/backends/reference/pointwise.h"
#include "tidepool/ndarray/kernel/attributes.h"

namespace tidepool {
namespace {

// Rounded once whatever T is: double holds sums, products and quotients of 16-bit floats closely
// enough, and rounding f64 through long double would round twice.
template <typename T>
using Own = std::conditional_t<kIs16BitFloat<T>, double, T>;

// Operands converted so that +, - and * wrap instead of overflowing: no signed type, and none that
// promotes to one.
template <typename T, bool kInteger = std::is_integral_v<T>>
struct WrappingOf {
  using type = Own<T>;
};
template <typename T>
struct WrappingOf<T, true> {
  using type = uint64_t;
};
template <typename T>
using Wrapping = typename WrappingOf<T>::type;

template <typename T, typename Function>
void Binary(const KernelCall& call, Function function) {
  ForEachElement<T, T, T>(call, function);
}

struct AddKernel {
  template <typename T>
  static void Run(const KernelCall& call) {
    Binary<T>(call, [](T x, T y) {
      return static_cast<T>(static_cast<Wrapping<T>>(x) + static_cast<Wrapping<T>>(y));
    });
  }
};
struct SubtractKernel {
  template <typename T>
  static void Run(const KernelCall& call) {
    Binary<T>(call, [](T x, T y) {
      return static_cast<T>(static_cast<Wrapping<T>>(x) - static_cast<Wrapping<T>>(y));
    });
  }
};
struct MultiplyKernel {
  template <typename T>
  static void Run(const KernelCall& call) {
    Binary<T>(call, [](T x, T y) {
      return static_cast<T>(static_cast<Wrapping<T>>(x) * static_cast<Wrapping<T>>(y));
    });
  }
};

struct DivideKernel {
  template <typename T>
  static void Run(const KernelCall& call) {
    Binary<T>(call, [](T x, T y) {
      if constexpr (kIsFloat<T>) {
        return static_cast<T>(static_cast<Own<T>>(x) / static_cast<Own<T>>(y));
      } else {
        // The caller has refused zero divisors. The one quotient that overflows wraps.
        if (std::is_signed_v<T> && y == T(-1)) return static_cast<T>(uint64_t{0} - uint64_t(x));
        return static_cast<T>(x / y);
      }
    });
  }
};

template <bool kMaximum>
struct ExtremumKernel {
  template <typename T>
  static void Run(const KernelCall& call) {
    Binary<T>(call, [](T x, T y) {
      if (x != x) return x;
      if (y != y) return y;
      return (kMaximum ? x < y : y < x) ? y : x;
    });
  }
};

struct PowerKernel {
  template <typename T>
  static void Run(const KernelCall& call) {
    Binary<T>(call, [](T x, T y) {
      if constexpr (kIsFloat<T>) {
        return Narrow<T>(std::pow(Wide<T>(x), Wide<T>(y)));
      } else {
        uint64_t result = 1, factor = static_cast<uint64_t>(x);
        for (auto rest = static_cast<uint64_t>(y); rest > 0; rest >>= 1, factor *= factor) {
          if (rest & 1) result *= factor;
        }
        return static_cast<T>(result);
      }
    });
  }
};

// As NumPy's mod: x - floor(x / y) * y.
struct RemainderKernel {
  template <typename T>
  static void Run(const KernelCall& call) {
    Binary<T>(call, [](T x, T y) {
      if constexpr (kIsFloat<T>) {
        const Wide<T> divisor = y;
        Wide<T> rest = std::fmod(Wide<T>(x), divisor);
        if (rest == 0) return Narrow<T>(std::copysign(Wide<T>(0), divisor));
        if ((rest < 0) != (divisor < 0)) rest += divisor;
        return Narrow<T>(rest);
      } else {
        if (std::is_signed_v<T> && y == T(-1)) return T(0);
        const T rest = static_cast<T>(x % y);
        return rest != 0 && (rest < 0) != (y < 0) ? static_cast<T>(rest + y) : rest;
      }
    });
  }
};

// As C's fmod and %.
struct FModKernel {
  template <typename T>
  static void Run(const KernelCall& call) {
    Binary<T>(call, [](T x, T y) {
      if constexpr (kIsFloat<T>) {
        return Narrow<T>(std::fmod(Wide<T>(x), Wide<T>(y)));
      } else {
        if (std::is_signed_v<T> && y == T(-1)) return T(0);
        return static_cast<T>(x % y);
      }
    });
  }
};

// As NumPy's floor_divide: the quotient of what is left when the remainder is taken away, so that it is whole.
struct FloorDivideKernel {
  template <typename T>
  static void Run(const KernelCall& call) {
    Binary<T>(call, [](T x, T y) {
      if constexpr (kIsFloat<T>) {
        const Wide<T> value = x, divisor = y;
        if (divisor == 0) return Narrow<T>(value / divisor);
        Wide<T> rest = std::fmod(value, divisor);
        Wide<T> quotient = (value - rest) / divisor;
        if (rest != 0 && (rest < 0) != (divisor < 0)) quotient -= 1;
        if (quotient == 0) return Narrow<T>(std::copysign(Wide<T>(0), value / divisor));
        return Narrow<T>(std::round(quotient));
      } else {
        if (std::is_signed_v<T> && y == T(-1)) return static_cast<T>(uint64_t{0} - uint64_t(x));
        const T quotient = static_cast<T>(x / y);
        return x % y != 0 && (x < 0) != (y < 0) ? static_cast<T>(quotient - 1) : quotient;
      }
    });
  }
};

template <auto kFunction>
struct FunctionOfTwoKernel {
  template <typename T>
  static void Run(const KernelCall& call) {
    Binary<T>(call, [](T x, T y) { return Narrow<T>(kFunction(Wide<T>(x), Wide<T>(y))); });
  }
};

template <auto kFunction>
struct BitwiseKernel {
  template <typename T>
  static void Run(const KernelCall& call) {
    Binary<T>(call, [](T x, T y) { return static_cast<T>(kFunction(x, y)); });
  }
};

// Whether bits can be shifted by y and some of them stay.
template <typename T>
bool IsInWidth(T y) {
  return static_cast<uint64_t>(y) < 8 * sizeof(T);
}
constexpr auto kShiftLeft = [](auto x, auto y) {
  return IsInWidth(y) ? static_cast<decltype(x)>(static_cast<uint64_t>(x) << y) : decltype(x)(0);
};
constexpr auto kShiftRight = [](auto x, auto y) {
  return IsInWidth(y) ? static_cast<decltype(x)>(x >> y) : decltype(x)(x < 0 ? -1 : 0);
};

bool IsInt64(double value) {
  return value >= -0x1p63 && value < 0x1p63 && value == std::trunc(value);
}

struct ScaleShiftKernel {
  template <typename T>
  static void Run(const KernelCall& call) {
    const auto& a = call.attrs<ScaleShiftAttributes>();
    if constexpr (std::is_same_v<T, double>) {
      // One of the two is exact, so the other rounds as it does by itself, and once.
      if (a.shift == 0 || std::abs(a.scale) == 1) {
        return ForEachElement<T, T>(call, [&](T x) { return a.scale * x + a.shift; });
      }
    }
    if constexpr (kIsFloat<T>) {
      ForEachElement<T, T>(call, [&](T x) {
        return Narrow<T>(static_cast<Wide<T>>(a.scale) * Wide<T>(x) + static_cast<Wide<T>>(a.shift));
      });
    } else if (IsInt64(a.scale) && IsInt64(a.shift)) {
      const auto scale = static_cast<uint64_t>(static_cast<int64_t>(a.scale));
      const auto shift = static_cast<uint64_t>(static_cast<int64_t>(a.shift));
      ForEachElement<T, T>(
          call, [&](T x) { return static_cast<T>(static_cast<uint64_t>(x) * scale + shift); });
    } else {
      ForEachElement<T, T>(call, [&](T x) {
        return ConvertElement<T>(a.scale * static_cast<double>(x) + a.shift);
      });
    }
  }
};

const bool registered[] = {
    RegisterReference<AddKernel>(OpCode::kAdd, NumberTypes()),
    RegisterReference<SubtractKernel>(OpCode::kSubtract, NumberTypes()),
    RegisterReference<MultiplyKernel>(OpCode::kMultiply, NumberTypes()),
    RegisterReference<DivideKernel>(OpCode::kDivide, NumberTypes()),
    RegisterReference<ExtremumKernel<true>>(OpCode::kMaximum, NumberTypes()),
    RegisterReference<ExtremumKernel<false>>(OpCode::kMinimum, NumberTypes()),
    RegisterReference<PowerKernel>(OpCode::kPower, NumberTypes()),
    RegisterReference<RemainderKernel>(OpCode::kRemainder, NumberTypes()),
    RegisterReference<FModKernel>(OpCode::kFMod, NumberTypes()),
    RegisterReference<FloorDivideKernel>(OpCode::kFloorDivide, NumberTypes()),
    RegisterReference<FunctionOfTwoKernel<[](auto x, auto y) { return std::atan2(x, y); }>>(
        OpCode::kAtan2, FloatTypes()),
    RegisterReference<FunctionOfTwoKernel<[](auto x, auto y) { return std::hypot(x, y); }>>(
        OpCode::kHypot, FloatTypes()),
    RegisterReference<FunctionOfTwoKernel<[](auto x, auto y) { return std::copysign(x, y); }>>(
        OpCode::kCopySign, FloatTypes()),
    RegisterReference<BitwiseKernel<[](auto x, auto y) { return x & y; }>>(OpCode::kBitwiseAnd,
                                                                         IntegerTypes()),
    RegisterReference<BitwiseKernel<[](auto x, auto y) { return x | y; }>>(OpCode::kBitwiseOr,
                                                                         IntegerTypes()),
    RegisterReference<BitwiseKernel<[](auto x, auto y) { return x ^ y; }>>(OpCode::kBitwiseXor,
                                                                         IntegerTypes()),
    RegisterReference<BitwiseKernel<kShiftLeft>>(OpCode::kShiftLeft, IntegerTypes()),
    RegisterReference<BitwiseKernel<kShiftRight>>(OpCode::kShiftRight, IntegerTypes()),
    RegisterReference<ScaleShiftKernel>(OpCode::kScaleShift, NumberTypes()),
};

}  // namespace
}  // namespace tidepool
