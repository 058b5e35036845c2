// Gradients of gradient operators: for tapes of tapes. Where a function has a corner its slope has a step, and what follows
// from the step is none.
#include <algorithm>
#include <cmath>
#include <vector>

#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/attributes_elementwise.h"
#include "tidepool/ndarray/kernel/attributes_images.h"
#include "tidepool/ndarray/kernel/attributes_nn.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/composed_gradients.h"
#include "tidepool/ndarray/ops/convolution.h"
#include "tidepool/ndarray/ops/convolution3d.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/pooling.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/resize.h"
#include "tidepool/ndarray/ops/softmax.h"
#include "tidepool/ndarray/ops/unary.h"

namespace tidepool {
namespace {

using Call = const GradientCall&;
using Results = GradientResults;

constexpr OperandSet kX0 = InputBit(0), kX1 = InputBit(1), kBoth = kX0 | kX1, kZ = OutputBit(0);

template <typename Function>
NDArray If(Call c, int input, Function function) {
  return c.wants(input) ? function() : NDArray();
}

// Of slopes that are constant but for a step.
NDArray Zero(Call c) {
  return Zeros(c.x(0).shape(), c.dz.dtype(), Place::CurrentOn(c.dz.device()));
}

// Gradients of convolutions are linear in both operands, and convolutions again.
template <typename Attributes>
Attributes Plain(Call c) {
  Attributes a = c.attrs<Attributes>();
  a.relu = a.accumulate = false;
  return a;
}
NDArray FilterGradient(const NDArray& input, const NDArray& dz, const Shape& shape,
                       const Conv2dAttributes& a) {
  NDArray gradient(shape, input.dtype(), Place::CurrentOn(input.device()));
  Conv2dGradFilterInto(input, dz, gradient, a);
  return gradient;
}
NDArray FilterGradient(const NDArray& input, const NDArray& dz, const Shape& shape,
                       const Conv3dAttributes& a) {
  NDArray gradient(shape, input.dtype(), Place::CurrentOn(input.device()));
  Conv3dGradFilterInto(input, dz, gradient, a);
  return gradient;
}
Results OfConv2dGradInput(Call c) {
  const auto a = Plain<Conv2dAttributes>(c);
  return {If(c, 0, [&] { return Conv2d(c.dz, c.x(1), nullptr, a); }),
          If(c, 1, [&] { return FilterGradient(c.dz, c.x(0), c.x(1).shape(), a); })};
}
Results OfConv3dGradInput(Call c) {
  const auto a = Plain<Conv3dAttributes>(c);
  return {If(c, 0, [&] { return Conv3d(c.dz, c.x(1), nullptr, a); }),
          If(c, 1, [&] { return FilterGradient(c.dz, c.x(0), c.x(1).shape(), a); })};
}
Results OfConv2dGradFilter(Call c) {
  const auto a = Plain<Conv2dAttributes>(c);
  return {If(c, 0, [&] { return Conv2dGradInput(c.x(1), c.dz, c.x(0).shape(), a); }),
          If(c, 1, [&] { return Conv2d(c.x(0), c.dz, nullptr, a); })};
}
Results OfConv3dGradFilter(Call c) {
  const auto a = Plain<Conv3dAttributes>(c);
  return {If(c, 0, [&] { return Conv3dGradInput(c.x(1), c.dz, c.x(0).shape(), a); }),
          If(c, 1, [&] { return Conv3d(c.x(0), c.dz, nullptr, a); })};
}

// dX = dZ * slope(X): with respect to dZ the operator itself, with respect to X by the slope's derivative.
template <typename Itself, typename Curvature>
Results OfSlope(Call c, Itself itself, Curvature curvature) {
  return {If(c, 0, [&] { return c.dz * c.x(1) * curvature(); }), If(c, 1, itself)};
}
Results OfSigmoidGrad(Call c) {
  return OfSlope(
      c, [&] { return SigmoidGrad(c.x(0), c.dz); }, [&] { return 1 - c.x(0) * 2; });
}
Results OfTanhGrad(Call c) {
  return OfSlope(
      c, [&] { return TanhGrad(c.x(0), c.dz); }, [&] { return c.x(0) * -2; });
}
Results OfSoftplusGrad(Call c) {
  return OfSlope(
      c, [&] { return SoftplusGrad(c.x(0), c.dz); },
      [&] {
        const NDArray s = Sigmoid(c.x(0));
        return s * (1 - s);
      });
}
Results OfSwishGrad(Call c) {
  return OfSlope(
      c, [&] { return SwishGrad(c.x(0), c.dz); },
      [&] {
        const NDArray s = Sigmoid(c.x(0));
        return s * (1 - s) * (c.x(0) * (1 - s * 2) + 2);
      });
}
Results OfMishGrad(Call c) {
  return OfSlope(
      c, [&] { return MishGrad(c.x(0), c.dz); },
      [&] {
        const NDArray s = Sigmoid(c.x(0)), t = Tanh(Softplus(c.x(0)));
        return (1 - t) * (1 + t) * s * (c.x(0) * (1 - s - t * s * 2) + 2);
      });
}
Results OfGeluGrad(Call c) {
  const bool tanh_form = c.attrs<GeluAttributes>().tanh_form;
  return OfSlope(
      c, [&] { return GeluGrad(c.x(0), c.dz, tanh_form ? GeluForm::kTanh : GeluForm::kErf); },
      [&] {
        const NDArray& x = c.x(0);
        const NDArray square = Square(x);
        if (!tanh_form) return Exp(square * -0.5) * (2 - square) * 0.39894228040143267794;
        constexpr double kScale = 0.79788456080286535588, kCubic = 0.044715;
        const NDArray t = Tanh(x * (square * kCubic + 1) * kScale);
        const NDArray first = (square * (3 * kCubic) + 1) * kScale,
                      second = x * (6 * kCubic * kScale);
        return (1 - t) * (1 + t) * (first + x * 0.5 * (second - t * Square(first) * 2));
      });
}
// Beyond the corner the slope is exp(X): its derivative is itself.
Results OfEluGrad(Call c) {
  const double alpha = c.attrs<AlphaAttributes>().alpha;
  return {If(c, 0, [&] { return Where(c.x(0) > 0, 0, c.z() * c.dz); }),
          If(c, 1, [&] { return EluGrad(c.x(0), c.dz, alpha); })};
}

// dX = Z * (dZ - sum(Z * dZ)).
Results OfSoftmaxGrad(Call c) {
  const int axis = c.attrs<SoftmaxAttributes>().axis;
  return {If(c, 0,
             [&] {
               const NDArray inner = Sum(c.x(0) * c.x(1), {axis}, true),
                             outer = Sum(c.x(0) * c.dz, {axis}, true);
               return c.dz * (c.x(1) - inner) - outer * c.x(1);
             }),
          If(c, 1, [&] { return SoftmaxGrad(c.x(0), c.dz, axis); })};
}
// dX = dZ - exp(Z) * sum(dZ).
Results OfLogSoftmaxGrad(Call c) {
  const int axis = c.attrs<SoftmaxAttributes>().axis;
  const NDArray weighted = Exp(c.x(0)) * c.dz;
  return {If(c, 0, [&] { return -weighted * Sum(c.x(1), {axis}, true); }),
          If(c, 1, [&] { return c.dz - Sum(weighted, {axis}, true); })};
}

// What a mean over rows divides by.
double Divisor(const NDArray& x) {
  return static_cast<double>(x.NumElements()) / static_cast<double>(std::max<int64_t>(1, x.dim(0)));
}
Results OfSquaredErrorGrad(Call c) {
  const double factor = 2 * c.attrs<LossGradAttributes>().scale / std::max(1.0, Divisor(c.x(0)));
  return {If(c, 0, [&] { return c.dz * factor; }), If(c, 1, [&] { return c.dz * -factor; })};
}
Results OfBinaryCrossEntropyGrad(Call c) {
  const double factor = c.attrs<LossGradAttributes>().scale / std::max(1.0, Divisor(c.x(0)));
  return {If(c, 0, [&] { return SigmoidGrad(Sigmoid(c.x(0)), c.dz * factor); }),
          If(c, 1, [&] { return c.dz * -factor; })};
}

constexpr ComposedGradient kSecondGradients[] = {
    {OpCode::kConv2dGradInput, {kX1, kX0}, &OfConv2dGradInput},
    {OpCode::kConv2dGradFilter, {kX1, kX0}, &OfConv2dGradFilter},
    {OpCode::kConv3dGradInput, {kX1, kX0}, &OfConv3dGradInput},
    {OpCode::kConv3dGradFilter, {kX1, kX0}, &OfConv3dGradFilter},
    {OpCode::kResize2dGrad,
     {},
     [](Call c) -> Results {
       return {Resize2d(c.dz, c.x().dim(1), c.x().dim(2), c.attrs<ResizeAttributes>())};
     }},
    {OpCode::kAveragePool2dGrad,
     {},
     [](Call c) -> Results { return {AveragePool2d(c.dz, c.attrs<Pool2dAttributes>())}; }},
    {OpCode::kReluGrad,
     {0, kX0},
     [](Call c) -> Results {
       return {If(c, 0, [&] { return Zero(c); }), If(c, 1, [&] { return ReluGrad(c.x(0), c.dz); })};
     }},
    {OpCode::kLeakyReluGrad,
     {0, kX0},
     [](Call c) -> Results {
       return {If(c, 0, [&] { return Zero(c); }), If(c, 1, [&] {
                 return LeakyReluGrad(c.x(0), c.dz, c.attrs<AlphaAttributes>().alpha);
               })};
     }},
    {OpCode::kSigmoidGrad, {kBoth, kX0}, &OfSigmoidGrad},
    {OpCode::kTanhGrad, {kBoth, kX0}, &OfTanhGrad},
    {OpCode::kSoftplusGrad, {kBoth, kX0}, &OfSoftplusGrad},
    {OpCode::kSwishGrad, {kBoth, kX0}, &OfSwishGrad},
    {OpCode::kMishGrad, {kBoth, kX0}, &OfMishGrad},
    {OpCode::kGeluGrad, {kBoth, kX0}, &OfGeluGrad},
    {OpCode::kEluGrad, {kX0 | kZ, kX0}, &OfEluGrad},
    {OpCode::kSoftmaxGrad, {kBoth, kX0}, &OfSoftmaxGrad},
    {OpCode::kLogSoftmaxGrad, {kBoth, kX0}, &OfLogSoftmaxGrad},
    {OpCode::kSquaredErrorGrad, {}, &OfSquaredErrorGrad},
    {OpCode::kBinaryCrossEntropyGrad, {kX0, 0}, &OfBinaryCrossEntropyGrad},
};

}  // namespace

const ComposedGradient* SecondGradientOf(OpCode op) {
  for (const ComposedGradient& composed : kSecondGradients) {
    if (composed.op == op) return &composed;
  }
  return nullptr;
}

}  // namespace tidepool
