#include "tidepool/nn/layers/conv2d.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tidepool/ndarray/frozen/frozen_graph.h"
#include "tidepool/ndarray/ops/convolution.h"
#include "tidepool/nn/layers/sequence_mask.h"
#include "tidepool/nn/layers/window_fields.h"

namespace tidepool::nn {

Conv2dAttributes Conv2D::SamePadding(int64_t kernel, int64_t stride) {
  Conv2dAttributes attributes;
  attributes.stride_height = attributes.stride_width = stride;
  attributes.pad_top = attributes.pad_bottom = attributes.pad_left = attributes.pad_right =
      kernel / 2;
  return attributes;
}

void Conv2D::VisitFields(FieldVisitor& visitor) {
  visitor.Field("filters", filters_, Presence::kRequired);
  VisitWindow(visitor, "kernel", {&kernel_height_, &kernel_width_}, Presence::kRequired);
  VisitWindow(visitor, "stride", {&attributes_.stride_height, &attributes_.stride_width});
  VisitWindow(visitor, "padding",
              {&attributes_.pad_top, &attributes_.pad_bottom, &attributes_.pad_left,
               &attributes_.pad_right});
  VisitWindow(visitor, "dilation", {&attributes_.dilation_height, &attributes_.dilation_width});
  visitor.Field("groups", attributes_.groups);
  visitor.Choice("activation", activation_, ActivationNames());
  visitor.Field("bias", options_.bias);
  VisitInitializer(visitor, "filter_initializer", options_.filter_initializer);
}

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
  return absl::StrCat(text, options_.bias ? "" : " no bias", ActivationText(activation_));
}

Shape Conv2D::OutputShape(const Shape& input) const {
  if (input.rank() != 3) RefuseInput(input, "[height, width, channels]");
  const Shape output = Conv2dOutputShape({1, input[0], input[1], input[2]},
                                         {filters_, kernel_height_, kernel_width_,
                                          input[2] / std::max<int64_t>(1, attributes_.groups)},
                                         attributes_);
  return {output[1], output[2], output[3]};
}

std::vector<ParameterSpec> Conv2D::Parameters(const Shape& input) const {
  const int64_t channels = input[2] / attributes_.groups;  // that a filter sees
  const int64_t window = kernel_height_ * kernel_width_;
  std::vector<ParameterSpec> specs = {
      {"filter",
       {filters_, kernel_height_, kernel_width_, channels},
       options_.filter_initializer.Or(InitializerBefore(activation_)),
       window * channels,
       window * filters_ / attributes_.groups}};
  if (options_.bias) specs.push_back({.name = "bias", .shape = {filters_}, .decays = false});
  return specs;
}

LayerCost Conv2D::CostOf(absl::Span<const Shape> inputs) const {
  return CostWith(inputs, PlacesOf(OutputShape(inputs[0])));
}

NDArray Conv2D::Forward(LayerContext& context, const NDArray& input) const {
  Conv2dAttributes attributes = attributes_;
  attributes.relu = activation_ == Activation::kRelu;
  attributes.filter_is_constant = context.parameters_stay;
  const NDArray output = Conv2d(WithoutMasked(context.mask, input), context.parameters[0],
                                options_.bias ? &context.parameters[1] : nullptr, attributes);
  return attributes.relu ? output : Activate(activation_, output);
}

bool Conv2D::ToFrozen(FrozenOp& op) const {
  op.kind = FrozenOp::Kind::kConv2d;
  op.convolution = attributes_;
  return FreezeActivation(activation_, op);
}

}  // namespace tidepool::nn
