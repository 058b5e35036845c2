#include "tidepool/nn/layers/normalization.h"

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/normalization.h"

namespace tidepool::nn {
namespace {

int64_t LastOf(const Shape& input) { return input[input.rank() - 1]; }

Shape CheckInput(const Layer& layer, const Shape& input, int64_t multiple = 1) {
  if (input.rank() >= 1 && multiple >= 1 && LastOf(input) >= 1 && LastOf(input) % multiple == 0) return input;
  ThrowInvalidArgument(absl::StrCat("layer [", layer.Describe(), "]: input shape ", input.ToString(),
                                    ", expected a last axis of at least one element, a multiple of the groups"));
}

ParameterSpec Scale(const Shape& input) { return {"scale", {LastOf(input)}, 0, 1}; }
ParameterSpec Shift(const Shape& input) { return {"shift", {LastOf(input)}, 0, 0}; }

NDArray Keep(const LayerContext& context, const NDArray& input, Normalized result, LayerCache& cache) {
  if (context.training) {
    cache.input = input;
    cache.kept[0] = std::move(result.mean);
    cache.kept[1] = std::move(result.inverse_deviation);
  }
  return std::move(result.output);
}

NDArray Give(const LayerContext& context, NormalizationGradients gradients, LayerCache& cache) {
  cache.Clear();
  CopyInto(gradients.scale, context.gradients[0]);
  CopyInto(gradients.shift, context.gradients[1]);
  return std::move(gradients.input);
}

}  // namespace

std::string LayerNormalization::Describe() const { return absl::StrCat("layer_norm ", attributes_.epsilon); }
Shape LayerNormalization::OutputShape(const Shape& input) const { return CheckInput(*this, input); }
std::vector<ParameterSpec> LayerNormalization::Parameters(const Shape& input) const {
  return {Scale(input), Shift(input)};
}

NDArray LayerNormalization::Forward(const LayerContext& context, const NDArray& input, LayerCache& cache) const {
  return Keep(context, input, LayerNorm(input, context.parameters[0], context.parameters[1], attributes_), cache);
}

NDArray LayerNormalization::Backward(const LayerContext& context, NDArray output_gradient, LayerCache& cache,
                                     bool /*needs_input_gradient*/) const {
  return Give(context,
              LayerNormGrad(cache.input, context.parameters[0], cache.kept[0], cache.kept[1], output_gradient), cache);
}

std::string RmsNormalization::Describe() const { return absl::StrCat("rms_norm ", attributes_.epsilon); }
Shape RmsNormalization::OutputShape(const Shape& input) const { return CheckInput(*this, input); }
std::vector<ParameterSpec> RmsNormalization::Parameters(const Shape& input) const { return {Scale(input)}; }

NDArray RmsNormalization::Forward(const LayerContext& context, const NDArray& input, LayerCache& cache) const {
  RmsNormalized result = RmsNorm(input, context.parameters[0], attributes_);
  if (context.training) {
    cache.input = input;
    cache.kept[0] = std::move(result.inverse_rms);
  }
  return std::move(result.output);
}

NDArray RmsNormalization::Backward(const LayerContext& context, NDArray output_gradient, LayerCache& cache,
                                   bool /*needs_input_gradient*/) const {
  RmsNormGradients gradients = RmsNormGrad(cache.input, context.parameters[0], cache.kept[0], output_gradient);
  cache.Clear();
  CopyInto(gradients.scale, context.gradients[0]);
  return std::move(gradients.input);
}

std::string GroupNormalization::Describe() const {
  return absl::StrCat("group_norm ", attributes_.groups, " groups ", attributes_.epsilon);
}
Shape GroupNormalization::OutputShape(const Shape& input) const { return CheckInput(*this, input, attributes_.groups); }
std::vector<ParameterSpec> GroupNormalization::Parameters(const Shape& input) const {
  return {Scale(input), Shift(input)};
}

NDArray GroupNormalization::Forward(const LayerContext& context, const NDArray& input, LayerCache& cache) const {
  return Keep(context, input, GroupNorm(input, context.parameters[0], context.parameters[1], attributes_), cache);
}

NDArray GroupNormalization::Backward(const LayerContext& context, NDArray output_gradient, LayerCache& cache,
                                     bool /*needs_input_gradient*/) const {
  return Give(context,
              GroupNormGrad(cache.input, context.parameters[0], cache.kept[0], cache.kept[1], output_gradient), cache);
}

}  // namespace tidepool::nn
