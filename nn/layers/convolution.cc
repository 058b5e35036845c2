#include "tidepool/nn/layers/convolution.h"

#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/frozen/frozen_graph.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ops/convolution.h"
#include "tidepool/ndarray/ops/convolution1d.h"
#include "tidepool/ndarray/ops/convolution3d.h"
#include "tidepool/ndarray/ops/convolution_transpose.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/nn/layers/kept_for_gradient.h"
#include "tidepool/nn/layers/recycler.h"
#include "tidepool/nn/layers/sequence_mask.h"
#include "tidepool/nn/layers/sizes_by_axis.h"
#include "tidepool/nn/layers/window_fields.h"

namespace tidepool::nn {
namespace {

template <int kAxes, bool kTransposed>
constexpr const char* kName = kAxes == 1   ? (kTransposed ? "conv1d_transpose" : "conv1d")
                              : kAxes == 2 ? (kTransposed ? "conv2d_transpose" : "conv2d")
                                           : (kTransposed ? "conv3d_transpose" : "conv3d");

template <int kAxes>
Conv1dAttributes As1d(const ConvolutionOptions<kAxes>& o) {
  Conv1dAttributes a;
  a.stride = o.stride[0];
  a.pad_before = o.before[0];
  a.pad_behind = o.behind[0];
  a.dilation = o.dilation[0];
  a.groups = o.groups;
  return a;
}
template <int kAxes>
Conv2dAttributes As2d(const ConvolutionOptions<kAxes>& o) {
  Conv2dAttributes a;
  a.stride_height = o.stride[0];
  a.stride_width = o.stride[1];
  a.pad_top = o.before[0];
  a.pad_bottom = o.behind[0];
  a.pad_left = o.before[1];
  a.pad_right = o.behind[1];
  a.dilation_height = o.dilation[0];
  a.dilation_width = o.dilation[1];
  a.groups = o.groups;
  return a;
}
template <int kAxes>
Conv3dAttributes As3d(const ConvolutionOptions<kAxes>& o) {
  Conv3dAttributes a;
  std::copy_n(o.stride.begin(), 3, a.stride);
  std::copy_n(o.before.begin(), 3, a.pad_before);
  std::copy_n(o.behind.begin(), 3, a.pad_behind);
  std::copy_n(o.dilation.begin(), 3, a.dilation);
  a.groups = o.groups;
  return a;
}

// Of a transposed convolution: input, filter and, where there is one, bias.
template <int kAxes>
struct TransposedGradient final : HandGradient {
  ConvolutionOptions<kAxes> options;
  const char* kind = "";
  KeptForGradient x;  // where the filter is trained
  NDArray filter;

  static Recycler<TransposedGradient>& Free() {
    static Recycler<TransposedGradient>& free = Recycler<TransposedGradient>::New();
    return free;
  }
  void Done() noexcept override {
    x = KeptForGradient();
    filter = NDArray();
    Free().Give(this);
  }
  void VisitKept(KeptVisit visit) override { visit("input", x.array, /*can_be_made_again=*/false); }

  void Run(absl::Span<const NDArray> dz, absl::Span<NDArray> found, bool /*is_last*/) override {
    x.Check(kind, "input");
    const Place place = Place::CurrentOn(filter.device());
    if (options.bias && IsGradientUsed(2)) {
      found[2] = Empty({dz[0].dim(kAxes + 1)}, filter.dtype(), place);
      SumToLastAxisInto(dz[0], found[2]);
    }
    const bool has_dx = IsGradientUsed(0);
    if (IsGradientUsed(1)) found[1] = Empty(filter.shape(), filter.dtype(), place);
    if constexpr (kAxes == 1) {
      if (found[1].is_defined())
        Conv1dTransposeGradFilterInto(x.array, dz[0], found[1], As1d(options));
      if (has_dx) found[0] = Conv1dTransposeGradInput(dz[0], filter, As1d(options));
    } else if constexpr (kAxes == 2) {
      if (found[1].is_defined())
        Conv2dTransposeGradFilterInto(x.array, dz[0], found[1], As2d(options));
      if (has_dx) found[0] = Conv2dTransposeGradInput(dz[0], filter, As2d(options));
    } else {
      if (found[1].is_defined())
        Conv3dTransposeGradFilterInto(x.array, dz[0], found[1], As3d(options));
      if (has_dx) found[0] = Conv3dTransposeGradInput(dz[0], filter, As3d(options));
    }
  }
};

}  // namespace

template <int kAxes, bool kTransposed>
auto Convolution<kAxes, kTransposed>::Same(Sizes kernel, Sizes stride) -> Options {
  Options options;
  options.stride = stride;
  for (int i = 0; i < kAxes; ++i) options.before[i] = options.behind[i] = kernel[i] / 2;
  return options;
}

template <int kAxes, bool kTransposed>
auto Convolution<kAxes, kTransposed>::Causal(int64_t kernel, int64_t dilation) -> Options
    requires(kAxes == 1 && !kTransposed) {
  Options options;
  options.before[0] = dilation * (kernel - 1);
  options.dilation[0] = dilation;
  return options;
}

template <int kAxes, bool kTransposed>
std::string Convolution<kAxes, kTransposed>::Kind() const {
  return kName<kAxes, kTransposed>;
}

template <int kAxes, bool kTransposed>
void Convolution<kAxes, kTransposed>::VisitFields(FieldVisitor& visitor) {
  visitor.Field("filters", filters_, Presence::kRequired);
  VisitSizes(visitor, "kernel", kernel_, Presence::kRequired);
  VisitSizes(visitor, "stride", options_.stride);
  VisitPadding(visitor, "padding", options_.before, options_.behind);
  VisitSizes(visitor, "dilation", options_.dilation);
  if (kTransposed) VisitSizes(visitor, "output_padding", options_.output_padding);
  visitor.Field("groups", options_.groups);
  visitor.Choice("activation", activation_, ActivationNames());
  visitor.Field("bias", options_.bias);
  VisitInitializer(visitor, "filter_initializer", options_.filter_initializer);
}

template <int kAxes, bool kTransposed>
std::string Convolution<kAxes, kTransposed>::Describe() const {
  std::string text = absl::StrCat(Kind(), " ", filters_, " of ", absl::StrJoin(kernel_, "x"));
  if (options_.stride != AllSizes<kAxes>(1))
    absl::StrAppend(&text, " stride ", absl::StrJoin(options_.stride, "x"));
  if (options_.before != AllSizes<kAxes>(0) || options_.behind != AllSizes<kAxes>(0)) {
    absl::StrAppend(&text, " pad ", absl::StrJoin(options_.before, ","), " and ",
                    absl::StrJoin(options_.behind, ","));
  }
  if (options_.dilation != AllSizes<kAxes>(1))
    absl::StrAppend(&text, " dilation ", absl::StrJoin(options_.dilation, "x"));
  if (options_.groups != 1) absl::StrAppend(&text, " groups ", options_.groups);
  return absl::StrCat(text, options_.bias ? "" : " no bias", ActivationText(activation_));
}

template <int kAxes, bool kTransposed>
Shape Convolution<kAxes, kTransposed>::OutputShape(const Shape& input) const {
  const ConvolutionOptions<kAxes>& o = options_;
  // Numbers may come from a file: sizes that are made of them must not overflow.
  const auto has = [](const Sizes& sizes, int64_t least) {
    return std::all_of(sizes.begin(), sizes.end(),
                       [least](int64_t size) { return size >= least && size <= int64_t{1} << 30; });
  };
  if (filters_ < 1 || o.groups < 1 || !has(kernel_, 1) || !has(o.stride, 1) ||
      !has(o.dilation, 1) || !has(o.before, 0) || !has(o.behind, 0) || !has(o.output_padding, 0)) {
    RefuseInput(input,
                "filters, groups, kernel, stride and dilation of at least 1, paddings of at least "
                "0, and none of them above 2^30");
  }
  if (input.rank() != kAxes + 1) {
    RefuseInput(input, kAxes == 1   ? "[length, channels]"
                       : kAxes == 2 ? "[height, width, channels]"
                                    : "[depth, height, width, channels]");
  }
  if (input[kAxes] < 1 || input[kAxes] % o.groups != 0 || filters_ % o.groups != 0) {
    RefuseInput(input, "channels and filters that are multiples of the groups");
  }
  std::vector<int64_t> dims;
  for (int i = 0; i < kAxes; ++i) {
    const int64_t pads = o.before[i] + o.behind[i], window = o.dilation[i] * (kernel_[i] - 1) + 1;
    const int64_t size = kTransposed
                             ? (input[i] - 1) * o.stride[i] - pads + window + o.output_padding[i]
                             : (input[i] + pads - window) / o.stride[i] + 1;
    if (input[i] < 1 || size < 1 || (!kTransposed && input[i] + pads < window)) {
      RefuseInput(input, "axes that hold the kernel, and an output of at least one element");
    }
    if (kTransposed && o.output_padding[i] >= o.stride[i])
      RefuseInput(input, "an output padding less than the stride");
    dims.push_back(size);
  }
  dims.push_back(filters_);
  return Shape(absl::MakeConstSpan(dims));
}

template <int kAxes, bool kTransposed>
std::vector<ParameterSpec> Convolution<kAxes, kTransposed>::Parameters(const Shape& input) const {
  const int64_t channels = input[kAxes];
  std::vector<int64_t> dims = {kTransposed ? channels : filters_};
  dims.insert(dims.end(), kernel_.begin(), kernel_.end());
  dims.push_back((kTransposed ? filters_ : channels) / options_.groups);
  const Shape shape(absl::MakeConstSpan(dims));  // throws where there are too many elements
  int64_t window = 1;
  for (int64_t size : kernel_) window *= size;
  std::vector<ParameterSpec> specs = {
      {"filter", shape, options_.filter_initializer.Or(InitializerBefore(activation_)),
       window * channels / options_.groups, window * filters_ / options_.groups}};
  if (options_.bias) specs.push_back({.name = "bias", .shape = {filters_}, .decays = false});
  return specs;
}

template <int kAxes, bool kTransposed>
NDArray Convolution<kAxes, kTransposed>::Convolve(const LayerContext& context, const NDArray& input,
                                                  bool relu) const {
  const NDArray& filter = context.parameters[0];
  const NDArray* const bias = options_.bias ? &context.parameters[1] : nullptr;
  const auto with = [&](auto attributes) {
    attributes.relu = relu;
    if constexpr (requires { attributes.filter_is_constant; })
      attributes.filter_is_constant = context.parameters_stay;
    return attributes;
  };
  const Sizes& padding = options_.output_padding;
  if constexpr (kAxes == 1) {
    return kTransposed ? Conv1dTranspose(input, filter, bias, with(As1d(options_)), padding[0])
                       : Conv1d(input, filter, bias, with(As1d(options_)));
  } else if constexpr (kAxes == 2) {
    return kTransposed ? Conv2dTranspose(input, filter, bias, with(As2d(options_)),
                                         {padding[0], padding[1]})
                       : Conv2d(input, filter, bias, with(As2d(options_)));
  } else {
    return kTransposed ? Conv3dTranspose(input, filter, bias, with(As3d(options_)), padding)
                       : Conv3d(input, filter, bias, with(As3d(options_)));
  }
}

// Transposed convolutions are gradient operators used forwards, which have no gradients of their
// own to a tape.
template <int kAxes, bool kTransposed>
NDArray Convolution<kAxes, kTransposed>::ConvolveOnTape(const LayerContext& context,
                                                        const NDArray& input) const {
  auto* const gradient = TransposedGradient<kAxes>::Free().Take();
  HandGradientHandle handle(gradient);
  gradient->options = options_;
  gradient->kind = kName<kAxes, kTransposed>;
  gradient->filter = context.parameters[0];
  if (IsRecorded({&context.parameters[0], 1})) gradient->x = KeptForGradient(input);
  NDArray output;
  {
    const NoGradientScope by_hand;
    output = Convolve(context, input, /*relu=*/false);
  }
  absl::InlinedVector<NDArray, 3> inputs = {input};
  inputs.insert(inputs.end(), context.parameters.begin(), context.parameters.end());
  SetGradient(gradient->kind, inputs, {&output, 1}, std::move(handle));
  return output;
}

// The sum of the mask over each window, by a convolution with ones.
template <int kAxes, bool kTransposed>
NDArray Convolution<kAxes, kTransposed>::OutputMask(const NDArray& mask) const {
  if constexpr (kAxes != 1) {
    return NDArray();
  } else {
    const NoGradientScope constants;
    ConvolutionOptions<1> window = options_;
    window.groups = 1;
    const NDArray steps = Cast(mask, DType::kFloat32).ExpandDims(-1);
    const NDArray ones = Ones({1, kernel_[0], 1}, DType::kFloat32, Place::CurrentOn(mask.device()));
    const NDArray seen = kTransposed ? Conv1dTranspose(steps, ones, nullptr, As1d(window),
                                                       options_.output_padding[0])
                                     : Conv1d(steps, ones, nullptr, As1d(window));
    return Cast(seen, DType::kBool).Squeeze(2);
  }
}

// Of transposed ones kernels go over the larger side.
template <int kAxes, bool kTransposed>
LayerCost Convolution<kAxes, kTransposed>::CostOf(absl::Span<const Shape> inputs) const {
  const double places = PlacesOf(OutputShape(inputs[0]));
  return CostWith(inputs, kTransposed ? std::max(places, PlacesOf(inputs[0])) : places);
}

template <int kAxes, bool kTransposed>
NDArray Convolution<kAxes, kTransposed>::Forward(LayerContext& context,
                                                 const NDArray& input) const {
  const bool is_masked = kAxes == 1 && IsMaskOf(context.mask, input);
  const NDArray x = WithoutMasked(context.mask, input);
  const bool on_tape = kTransposed && (IsRecorded({&x, 1}) || IsRecorded(context.parameters));
  const bool relu = activation_ == Activation::kRelu && !on_tape;
  const NDArray output = on_tape ? ConvolveOnTape(context, x) : Convolve(context, x, relu);
  context.mask = is_masked ? OutputMask(context.mask) : NDArray();
  return relu ? output : Activate(activation_, output);
}

template <int kAxes, bool kTransposed>
bool Convolution<kAxes, kTransposed>::ToFrozen(FrozenOp& op) const {
  if constexpr (kAxes != 2) {
    op.why_not = "convolution of other axes than two";
    return false;
  } else {
    op.kind = kTransposed ? FrozenOp::Kind::kConv2dTranspose : FrozenOp::Kind::kConv2d;
    op.convolution = As2d(options_);
    std::copy_n(options_.output_padding.begin(), 2, op.output_padding);
    return FreezeActivation(activation_, op);
  }
}

template class Convolution<1, false>;
template class Convolution<3, false>;
template class Convolution<1, true>;
template class Convolution<2, true>;
template class Convolution<3, true>;

// ---- Depthwise ----

void DepthwiseConv2D::VisitFields(FieldVisitor& visitor) {
  visitor.Field("multiplier", multiplier_);
  VisitWindow(visitor, "kernel", {&kernel_height_, &kernel_width_}, Presence::kRequired);
  VisitWindow(visitor, "stride", {&attributes_.stride_height, &attributes_.stride_width});
  VisitWindow(visitor, "padding",
              {&attributes_.pad_top, &attributes_.pad_bottom, &attributes_.pad_left,
               &attributes_.pad_right});
  VisitWindow(visitor, "dilation", {&attributes_.dilation_height, &attributes_.dilation_width});
  visitor.Choice("activation", activation_, ActivationNames());
  visitor.Field("bias", bias_);
  VisitInitializer(visitor, "filter_initializer", filter_initializer_);
}

std::string DepthwiseConv2D::Describe() const {
  return absl::StrCat("depthwise_conv2d ", multiplier_, " of ", kernel_height_, "x", kernel_width_,
                      bias_ ? "" : " no bias", ActivationText(activation_));
}

Shape DepthwiseConv2D::OutputShape(const Shape& input) const {
  if (input.rank() != 3 || input[2] < 1 || multiplier_ < 1) {
    RefuseInput(input, "[height, width, channels], and a multiplier of at least 1");
  }
  Conv2dAttributes attributes = attributes_;
  attributes.groups = input[2];
  const Shape output =
      Conv2dOutputShape({1, input[0], input[1], input[2]},
                        {input[2] * multiplier_, kernel_height_, kernel_width_, 1}, attributes);
  return {output[1], output[2], output[3]};
}

std::vector<ParameterSpec> DepthwiseConv2D::Parameters(const Shape& input) const {
  const int64_t filters = input[2] * multiplier_, window = kernel_height_ * kernel_width_;
  std::vector<ParameterSpec> specs = {{"filter",
                                       {filters, kernel_height_, kernel_width_, 1},
                                       filter_initializer_.Or(InitializerBefore(activation_)),
                                       window,
                                       window * multiplier_}};
  if (bias_) specs.push_back({.name = "bias", .shape = {filters}, .decays = false});
  return specs;
}

LayerCost DepthwiseConv2D::CostOf(absl::Span<const Shape> inputs) const {
  return CostWith(inputs, PlacesOf(OutputShape(inputs[0])));
}

NDArray DepthwiseConv2D::Forward(LayerContext& context, const NDArray& input) const {
  Conv2dAttributes attributes = attributes_;
  attributes.groups = input.dim(3);
  attributes.relu = activation_ == Activation::kRelu;
  attributes.filter_is_constant = context.parameters_stay;
  const NDArray output = Conv2d(WithoutMasked(context.mask, input), context.parameters[0],
                                bias_ ? &context.parameters[1] : nullptr, attributes);
  return attributes.relu ? output : Activate(activation_, output);
}

bool DepthwiseConv2D::ToFrozen(FrozenOp& op) const {
  op.kind = FrozenOp::Kind::kConv2d;
  op.convolution = attributes_;
  op.convolution.groups = op.input_shape[2];
  return FreezeActivation(activation_, op);
}

}  // namespace tidepool::nn
