// Activations and the gradients of those that have one, in the next wider type, rounded once.
#include <cmath>

#include "tidepool/backends/reference/pointwise.h"
#include "tidepool/ndarray/kernel/attributes_elementwise.h"

namespace tidepool {
namespace {

template <typename W>
constexpr W kSqrtHalf = W(0.70710678118654752440L);
template <typename W>
constexpr W kInverseSqrt2Pi = W(0.39894228040143267794L);  // 1 / sqrt(2 pi)
template <typename W>
constexpr W kSqrt8OverPi = W(1.59576912160573071176L);  // twice sqrt(2 / pi)
template <typename W>
constexpr W kCubic = W(0.044715L);

template <typename W>
W Sigmoid(W x) {
  return 1 / (1 + std::exp(-x));
}

// Below are functions of (x) or (x, gradient) in Wide<T> with the call's attributes.

constexpr auto kLeakyRelu = [](auto x, const AlphaAttributes& a) { return x > 0 ? x : a.alpha * x; };
constexpr auto kLeakyReluGrad = [](auto x, auto dz, const AlphaAttributes& a) {
  return x > 0 ? dz : a.alpha * dz;
};
constexpr auto kElu = [](auto x, const AlphaAttributes& a) {
  return x > 0 ? x : a.alpha * std::expm1(x);
};
constexpr auto kEluGrad = [](auto x, auto dz, const AlphaAttributes& a) {
  return x > 0 ? dz : dz * a.alpha * std::exp(x);
};
constexpr auto kGelu = [](auto x, const GeluAttributes& a) {
  using W = decltype(x);
  if (a.tanh_form) return x * Sigmoid(kSqrt8OverPi<W> * (x + kCubic<W> * x * x * x));
  return x * (std::erfc(-x * kSqrtHalf<W>) / 2);
};
constexpr auto kGeluGrad = [](auto x, auto dz, const GeluAttributes& a) {
  using W = decltype(x);
  if (a.tanh_form) {
    const W s = Sigmoid(kSqrt8OverPi<W> * (x + kCubic<W> * x * x * x));
    // 1 - s before the large factor: where it is 0 the product is.
    return dz * (s + x * (s * (1 - s)) * (kSqrt8OverPi<W> * (1 + 3 * kCubic<W> * x * x)));
  }
  return dz * (std::erfc(-x * kSqrtHalf<W>) / 2 + x * (kInverseSqrt2Pi<W> * std::exp(x * x / -2)));
};
constexpr auto kSwish = [](auto x) { return x * Sigmoid(x); };
constexpr auto kSwishGrad = [](auto x, auto dz) {
  return dz * (Sigmoid(x) * (1 + x * Sigmoid(-x)));
};
// NaN stays NaN: it is not at most zero.
constexpr auto kRelu = [](auto x) { return x <= 0 ? 0 : x; };
constexpr auto kReluGrad = [](auto z, auto dz) { return z > 0 ? dz : 0; };
constexpr auto kSigmoidGrad = [](auto z, auto dz) { return dz * (z * (1 - z)); };
constexpr auto kTanhGrad = [](auto z, auto dz) { return dz * ((1 - z) * (1 + z)); };
constexpr auto kSoftplusGrad = [](auto x, auto dz) { return dz * Sigmoid(x); };

// Attributes: void or the struct that the function takes last.
template <auto kFunction, typename Attributes>
struct ActivationKernel {
  template <typename T>
  static void Run(const KernelCall& call) {
    ForEachElement<T, T>(call, [&](T x) {
      if constexpr (std::is_void_v<Attributes>) {
        return Narrow<T>(kFunction(Wide<T>(x)));
      } else {
        return Narrow<T>(kFunction(Wide<T>(x), call.attrs<Attributes>()));
      }
    });
  }
};

template <auto kFunction, typename Attributes>
struct GradientKernel {
  template <typename T>
  static void Run(const KernelCall& call) {
    ForEachElement<T, T, T>(call, [&](T x, T dz) {
      if constexpr (std::is_void_v<Attributes>) {
        return Narrow<T>(kFunction(Wide<T>(x), Wide<T>(dz)));
      } else {
        return Narrow<T>(kFunction(Wide<T>(x), Wide<T>(dz), call.attrs<Attributes>()));
      }
    });
  }
};

template <auto kFunction, typename Attributes = void>
bool Register(OpCode op) {
  return RegisterReference<ActivationKernel<kFunction, Attributes>>(op, FloatTypes());
}
template <auto kFunction, typename Attributes = void>
bool RegisterGradient(OpCode op) {
  return RegisterReference<GradientKernel<kFunction, Attributes>>(op, FloatTypes());
}

const bool registered[] = {
    Register<kRelu>(OpCode::kRelu),
    Register<kLeakyRelu, AlphaAttributes>(OpCode::kLeakyRelu),
    Register<kElu, AlphaAttributes>(OpCode::kElu),
    Register<kGelu, GeluAttributes>(OpCode::kGelu),
    Register<kSwish>(OpCode::kSwish),
    RegisterGradient<kReluGrad>(OpCode::kReluGrad),
    RegisterGradient<kSigmoidGrad>(OpCode::kSigmoidGrad),
    RegisterGradient<kTanhGrad>(OpCode::kTanhGrad),
    RegisterGradient<kLeakyReluGrad, AlphaAttributes>(OpCode::kLeakyReluGrad),
    RegisterGradient<kEluGrad, AlphaAttributes>(OpCode::kEluGrad),
    RegisterGradient<kGeluGrad, GeluAttributes>(OpCode::kGeluGrad),
    RegisterGradient<kSwishGrad>(OpCode::kSwishGrad),
    RegisterGradient<kSoftplusGrad>(OpCode::kSoftplusGrad),
};

}  // namespace
}  // namespace tidepool
