// Functions of one operand, in the next wider type, rounded once.
#include <cmath>
#include <type_traits>

#include "tidepool/backends/reference/pointwise.h"
#include "tidepool/ndarray/kernel/attributes_elementwise.h"

namespace tidepool {
namespace {

struct NegateKernel {
  template <typename T>
  static void Run(const KernelCall& call) {
    ForEachElement<T, T>(call, [](T x) {
      if constexpr (kIsFloat<T>) {
        return Narrow<T>(-Wide<T>(x));
      } else {
        return static_cast<T>(uint64_t{0} - static_cast<uint64_t>(x));
      }
    });
  }
};

struct AbsKernel {
  template <typename T>
  static void Run(const KernelCall& call) {
    ForEachElement<T, T>(call, [](T x) {
      if constexpr (kIsFloat<T>) {
        return Narrow<T>(std::abs(Wide<T>(x)));
      } else {
        return x < 0 ? static_cast<T>(uint64_t{0} - static_cast<uint64_t>(x)) : x;
      }
    });
  }
};

struct SignKernel {
  template <typename T>
  static void Run(const KernelCall& call) {
    ForEachElement<T, T>(call, [](T x) {
      const Wide<T> wide = x;
      return Narrow<T>(wide > 0 ? 1 : wide < 0 ? static_cast<Wide<T>>(-1) : wide);
    });
  }
};

// f64 in its own precision: exact up to one rounding.
struct SquareKernel {
  template <typename T>
  static void Run(const KernelCall& call) {
    ForEachElement<T, T>(call, [](T x) {
      if constexpr (std::is_same_v<T, double>) {
        return x * x;
      } else if constexpr (kIsFloat<T>) {
        return Narrow<T>(Wide<T>(x) * Wide<T>(x));
      } else {
        return static_cast<T>(static_cast<uint64_t>(x) * static_cast<uint64_t>(x));
      }
    });
  }
};

struct ClipKernel {
  template <typename T>
  static void Run(const KernelCall& call) {
    const auto& a = call.attrs<ClipAttributes>();
    const T low = ClipBound<T>(a.low), high = ClipBound<T>(a.high);
    ForEachElement<T, T>(call, [&](T x) { return x < low ? low : x > high ? high : x; });
  }
};

// A function of Wide<T>.
template <auto kFunction>
struct FunctionKernel {
  template <typename T>
  static void Run(const KernelCall& call) {
    ForEachElement<T, T>(call, [](T x) { return Narrow<T>(kFunction(Wide<T>(x))); });
  }
};

template <auto kFunction>
bool Register(OpCode op) {
  return RegisterReference<FunctionKernel<kFunction>>(op, FloatTypes());
}

// As glibc's rint in the default mode.
constexpr auto kRound = [](auto x) {
  const auto whole = std::floor(x);
  const auto rest = x - whole;
  if (rest < 0.5) return std::copysign(whole, x);
  if (rest > 0.5) return std::copysign(whole + 1, x);
  return std::fmod(whole, decltype(x)(2)) == 0 ? std::copysign(whole, x)
                                               : std::copysign(whole + 1, x);
};

const bool registered[] = {
    RegisterReference<NegateKernel>(OpCode::kNegate, NumberTypes()),
    RegisterReference<AbsKernel>(OpCode::kAbs, NumberTypes()),
    RegisterReference<SignKernel>(OpCode::kSign, NumberTypes()),
    RegisterReference<SquareKernel>(OpCode::kSquare, NumberTypes()),
    RegisterReference<ClipKernel>(OpCode::kClip, NumberTypes()),
    Register<[](auto x) { return std::sqrt(x); }>(OpCode::kSqrt),
    Register<[](auto x) { return 1 / std::sqrt(x); }>(OpCode::kRsqrt),
    Register<[](auto x) { return 1 / x; }>(OpCode::kReciprocal),
    Register<[](auto x) { return std::exp(x); }>(OpCode::kExp),
    Register<[](auto x) { return std::expm1(x); }>(OpCode::kExpm1),
    Register<[](auto x) { return std::log(x); }>(OpCode::kLog),
    Register<[](auto x) { return std::log1p(x); }>(OpCode::kLog1p),
    Register<[](auto x) { return std::sin(x); }>(OpCode::kSin),
    Register<[](auto x) { return std::cos(x); }>(OpCode::kCos),
    Register<[](auto x) { return std::tanh(x); }>(OpCode::kTanh),
    Register<[](auto x) { return 1 / (1 + std::exp(-x)); }>(OpCode::kSigmoid),
    Register<[](auto x) { return std::erf(x); }>(OpCode::kErf),
    Register<[](auto x) { return std::floor(x); }>(OpCode::kFloor),
    Register<[](auto x) { return std::ceil(x); }>(OpCode::kCeil),
    Register<kRound>(OpCode::kRound),
    Register<[](auto x) { return std::tan(x); }>(OpCode::kTan),
    Register<[](auto x) { return std::asin(x); }>(OpCode::kAsin),
    Register<[](auto x) { return std::acos(x); }>(OpCode::kAcos),
    Register<[](auto x) { return std::atan(x); }>(OpCode::kAtan),
    Register<[](auto x) { return std::sinh(x); }>(OpCode::kSinh),
    Register<[](auto x) { return std::cosh(x); }>(OpCode::kCosh),
    Register<[](auto x) { return std::asinh(x); }>(OpCode::kAsinh),
    Register<[](auto x) { return std::acosh(x); }>(OpCode::kAcosh),
    Register<[](auto x) { return std::atanh(x); }>(OpCode::kAtanh),
    Register<[](auto x) { return std::log2(x); }>(OpCode::kLog2),
    Register<[](auto x) { return std::log10(x); }>(OpCode::kLog10),
    Register<[](auto x) { return std::exp2(x); }>(OpCode::kExp2),
    Register<[](auto x) { return std::cbrt(x); }>(OpCode::kCbrt),
    Register<[](auto x) { return std::trunc(x); }>(OpCode::kTrunc),
    Register<[](auto x) {
      return (x > 0 ? x : 0) + std::log1p(std::exp(-std::abs(x)));
    }>(OpCode::kSoftplus),
};

}  // namespace
}  // namespace tidepool
