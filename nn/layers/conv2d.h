// 2-D convolution of [batch, height, width, channels] images, then an activation.
#ifndef TIDEPOOL_NN_LAYERS_CONV2D_H_
#define TIDEPOOL_NN_LAYERS_CONV2D_H_

#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/nn/layers/layer.h"

namespace tidepool::nn {

class Conv2D final : public Layer {
 public:
  Conv2D(int64_t filters, int64_t kernel_height, int64_t kernel_width,
         Activation activation = Activation::kIdentity, Conv2dAttributes attributes = {})
      : filters_(filters),
        kernel_height_(kernel_height),
        kernel_width_(kernel_width),
        activation_(activation),
        attributes_(attributes) {}

  std::string Describe() const override;
  std::string Kind() const override { return "conv2d"; }
  Shape OutputShape(const Shape& input) const override;
  std::vector<ParameterSpec> Parameters(const Shape& input) const override;
  NDArray Forward(const LayerContext& context, const NDArray& input,
                  LayerCache& cache) const override;
  NDArray Backward(const LayerContext& context, NDArray output_gradient, LayerCache& cache,
                   bool needs_input_gradient) const override;
  bool ToFrozen(FrozenOp& op) const override;
  bool EndsWithRelu() const override { return activation_ == Activation::kRelu; }
  void LeaveReluGradientToNext() override { relu_gradient_elsewhere_ = true; }

 private:
  int64_t filters_, kernel_height_, kernel_width_;
  Activation activation_;
  Conv2dAttributes attributes_;
  bool relu_gradient_elsewhere_ = false;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_LAYERS_CONV2D_H_
