#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/nn/layers/conv2d.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/ops/convolution.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/reduction.h"

namespace tidepool::nn {

std::string Conv2D::Describe() const {
  std::string text = absl::StrCat("conv2d ", filters_, " of ", kernel_height_, "x", kernel_width_);
  const Conv2dAttributes& a = attributes_;
  if (a.stride_height != 1 || a.stride_width != 1) {
    absl::StrAppend(&text, " stride ", a.stride_height, "x", a.stride_width);
  }
  if (a.pad_top + a.pad_bottom + a.pad_left + a.pad_right > 0) {
    absl::StrAppend(&text, " pad ", a.pad_top, ",", a.pad_bottom, ",", a.pad_left, ",",
                    a.pad_right);
  }
  if (a.dilation_height != 1 || a.dilation_width != 1) {
    absl::StrAppend(&text, " dilation ", a.dilation_height, "x", a.dilation_width);
  }
  if (a.groups != 1) absl::StrAppend(&text, " groups ", a.groups);
  return absl::StrCat(text, activation_ == Activation::kRelu ? " relu" : "");
}

Shape Conv2D::OutputShape(const Shape& input) const {
  if (input.rank() != 3) {
    ThrowInvalidArgument(absl::StrCat("layer [", Describe(), "]: input shape ", input.ToString(),
                                      ", expected [height, width, channels]"));
  }
  const Shape output = Conv2dOutputShape({1, input[0], input[1], input[2]},
                                         {filters_, kernel_height_, kernel_width_,
                                          input[2] / std::max<int64_t>(1, attributes_.groups)},
                                         attributes_);
  return {output[1], output[2], output[3]};
}

std::vector<ParameterSpec> Conv2D::Parameters(const Shape& input) const {
  const int64_t channels = input[2] / attributes_.groups;  // that a filter sees
  const int64_t inputs = kernel_height_ * kernel_width_ * channels;
  const int64_t outputs = kernel_height_ * kernel_width_ * filters_;
  const double bound = activation_ == Activation::kRelu
                           ? std::sqrt(6.0 / static_cast<double>(inputs))
                           : std::sqrt(6.0 / static_cast<double>(inputs + outputs));
  return {{"filter", {filters_, kernel_height_, kernel_width_, channels}, bound},
          {"bias", {filters_}, 0}};
}

NDArray Conv2D::Forward(const LayerContext& context, const NDArray& input,
                        LayerCache& cache) const {
  Conv2dAttributes attributes = attributes_;
  attributes.relu = activation_ == Activation::kRelu;
  attributes.filter_is_constant = !context.training;
  NDArray output = Conv2d(input, context.parameters[0], &context.parameters[1], attributes);
  if (context.training) {
    cache.input = input;
    if (attributes.relu && !relu_gradient_elsewhere_) cache.output = output;
  }
  return output;
}

NDArray Conv2D::Backward(const LayerContext& context, NDArray output_gradient, LayerCache& cache,
                         bool needs_input_gradient) const {
  if (cache.output.is_defined()) {
    ReluGradInto(cache.output, output_gradient, output_gradient);
    cache.output = NDArray();
  }
  Conv2dGradFilterInto(cache.input, output_gradient, context.gradients[0], attributes_);
  const Shape input_shape = cache.input.shape();
  cache.Clear();
  SumToLastAxisInto(output_gradient, context.gradients[1]);
  if (!needs_input_gradient) return NDArray();
  return Conv2dGradInput(output_gradient, context.parameters[0], input_shape, attributes_);
}

bool Conv2D::ToFrozen(FrozenOp& op) const {
  op.kind = FrozenOp::Kind::kConv2d;
  op.relu = activation_ == Activation::kRelu;
  op.convolution = attributes_;
  return true;
}

}  // namespace tidepool::nn
