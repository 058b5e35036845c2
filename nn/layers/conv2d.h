// 2-D convolution of [height, width, channels] images, then an activation.
#ifndef TIDEPOOL_NN_LAYERS_CONV2D_H_
#define TIDEPOOL_NN_LAYERS_CONV2D_H_

#include <string>
#include <vector>

#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/nn/layers/activation.h"
#include "tidepool/nn/layers/layer.h"

namespace tidepool::nn {

// What a Conv2D may be given beside its sizes.
struct Conv2DOptions {
  bool bias = true;                // whether there is one, a number for each filter
  Initializer filter_initializer;  // of "filter"
};

class Conv2D final : public Layer {
 public:
  Conv2D(int64_t filters, int64_t kernel_height, int64_t kernel_width,
         Activation activation = Activation::kIdentity, Conv2dAttributes attributes = {},
         Conv2DOptions options = {})
      : filters_(filters),
        kernel_height_(kernel_height),
        kernel_width_(kernel_width),
        activation_(activation),
        attributes_(attributes),
        options_(options) {}

  // Padding so that the output has the size of the input divided by the stride, rounded up; odd kernels.
  static Conv2dAttributes SamePadding(int64_t kernel, int64_t stride = 1);

  std::string Kind() const override { return "conv2d"; }
  InputTypes TakenTypes() const override { return InputTypes::kFloats; }
  void VisitFields(FieldVisitor& visitor) override;
  std::string Describe() const override;
  Shape OutputShape(const Shape& input) const override;
  std::vector<ParameterSpec> Parameters(const Shape& input) const override;  // "filter", "bias"
  NDArray Forward(LayerContext& context, const NDArray& input) const override;
  LayerCost CostOf(absl::Span<const Shape> inputs) const override;
  bool ToFrozen(FrozenOp& op) const override;

  // As constructed.
  const Conv2dAttributes& attributes() const { return attributes_; }
  Activation activation() const { return activation_; }
  bool has_bias() const { return options_.bias; }

 private:
  int64_t filters_, kernel_height_, kernel_width_;
  Activation activation_;
  Conv2dAttributes attributes_;
  Conv2DOptions options_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_LAYERS_CONV2D_H_
