// Convolutions of one to three axes and transposed ones, then an activation. See conv2d.h for two
// axes, depthwise ones here.
//
//   Conv1D(64, {3}, Activation::kRelu, Conv1D::Same({3}))   sequences [length, channels]
//   Conv3D(8, {3, 3, 3})                                    volumes [depth, height, width, channels]
//   Conv2DTranspose(8, {3, 3}, Activation::kIdentity, {.stride = {2, 2}})
//
// Parameters: "filter" [filters, kernel..., channels / groups], of transposed ones that of the
// convolution which they transpose, [channels, kernel..., filters / groups]; "bias" [filters].
//
// Masks (Conv1D): steps that are none are zeros to the window. A step of the output is one where
// its window has one of the input.
#ifndef TIDEPOOL_NN_LAYERS_CONVOLUTION_H_
#define TIDEPOOL_NN_LAYERS_CONVOLUTION_H_

#include <array>
#include <string>
#include <vector>

#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/nn/layers/activation.h"
#include "tidepool/nn/layers/layer.h"

namespace tidepool::nn {

// By axis.
template <int kAxes>
using WindowSizes = std::array<int64_t, kAxes>;

// The same for every axis.
template <int kAxes>
constexpr WindowSizes<kAxes> AllSizes(int64_t value) {
  WindowSizes<kAxes> sizes;
  sizes.fill(value);
  return sizes;
}

// What a convolution may be given beside its sizes; `before` and `behind` are padding by zeros.
template <int kAxes>
struct ConvolutionOptions {
  // Elements, by axis.
  WindowSizes<kAxes> stride = AllSizes<kAxes>(1), before = AllSizes<kAxes>(0),
                     behind = AllSizes<kAxes>(0), dilation = AllSizes<kAxes>(1);
  WindowSizes<kAxes> output_padding =
      AllSizes<kAxes>(0);  // of transposed ones, less than the stride
  int64_t groups = 1;      // of channels and of filters, each by itself; divides both
  bool bias = true;        // whether there is one, a number for each filter
  Initializer filter_initializer = {};
};

template <int kAxes, bool kTransposed>
class Convolution final : public Layer {
 public:
  // Short names within.
  using Sizes = WindowSizes<kAxes>;
  using Options = ConvolutionOptions<kAxes>;

  explicit Convolution(int64_t filters, Sizes kernel, Activation activation = Activation::kIdentity,
                       Options options = {})
      : filters_(filters), kernel_(kernel), activation_(activation), options_(options) {}

  // Padding so that the output has the size of the input divided by the stride, rounded up; odd
  // kernels.
  static Options Same(Sizes kernel, Sizes stride = AllSizes<kAxes>(1));
  // Of one axis: so that a step of the output sees itself and those before it.
  static Options Causal(int64_t kernel, int64_t dilation = 1) requires(kAxes == 1 && !kTransposed);

  std::string Kind() const override;
  InputTypes TakenTypes() const override { return InputTypes::kFloats; }
  void VisitFields(FieldVisitor& visitor) override;
  std::string Describe() const override;
  Shape OutputShape(const Shape& input) const override;
  std::vector<ParameterSpec> Parameters(const Shape& input) const override;
  NDArray Forward(LayerContext& context, const NDArray& input) const override;
  LayerCost CostOf(absl::Span<const Shape> inputs) const override;
  bool ToFrozen(FrozenOp& op) const override;

 private:
  NDArray Convolve(const LayerContext& context, const NDArray& input, bool relu) const;
  NDArray ConvolveOnTape(const LayerContext& context, const NDArray& input) const;
  NDArray OutputMask(const NDArray& mask) const;

  int64_t filters_;
  Sizes kernel_;
  Activation activation_;
  Options options_;
};

// By axes: of sequences, volumes, and those that undo a stride.
using Conv1D = Convolution<1, false>;
using Conv3D = Convolution<3, false>;
using Conv1DTranspose = Convolution<1, true>;
using Conv2DTranspose = Convolution<2, true>;
using Conv3DTranspose = Convolution<3, true>;

// Of each channel of [height, width, channels] by itself, which gives `multiplier` channels side by
// side. attributes.groups is not looked at. Parameters: "filter" [channels * multiplier, kernel
// height, kernel width, 1], "bias".
class DepthwiseConv2D final : public Layer {
 public:
  DepthwiseConv2D(int64_t multiplier, int64_t kernel_height, int64_t kernel_width,
                  Activation activation = Activation::kIdentity, Conv2dAttributes attributes = {},
                  bool bias = true, Initializer filter_initializer = {})
      : multiplier_(multiplier),
        kernel_height_(kernel_height),
        kernel_width_(kernel_width),
        activation_(activation),
        attributes_(attributes),
        bias_(bias),
        filter_initializer_(filter_initializer) {}

  std::string Kind() const override { return "depthwise_conv2d"; }
  InputTypes TakenTypes() const override { return InputTypes::kFloats; }
  void VisitFields(FieldVisitor& visitor) override;
  std::string Describe() const override;
  Shape OutputShape(const Shape& input) const override;
  std::vector<ParameterSpec> Parameters(const Shape& input) const override;
  NDArray Forward(LayerContext& context, const NDArray& input) const override;
  LayerCost CostOf(absl::Span<const Shape> inputs) const override;
  bool ToFrozen(FrozenOp& op) const override;

 private:
  int64_t multiplier_, kernel_height_, kernel_width_;
  Activation activation_;
  Conv2dAttributes attributes_;
  bool bias_;
  Initializer filter_initializer_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_LAYERS_CONVOLUTION_H_
