#include "tidepool/nn/layers/normalization.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/frozen/frozen_graph.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/normalization.h"
#include "tidepool/nn/layers/sequence_mask.h"

namespace tidepool::nn {
namespace {

int64_t LastOf(const Shape& input) { return input[input.rank() - 1]; }

Shape CheckInput(const Layer& layer, const Shape& input, double epsilon, int64_t multiple = 1) {
  if (!(epsilon >= 0)) {
    ThrowInvalidArgument(
        absl::StrCat("layer [", layer.Describe(), "]: epsilon ", epsilon, ", expected 0 or more"));
  }
  if (input.rank() >= 1 && multiple >= 1 && LastOf(input) >= 1 && LastOf(input) % multiple == 0)
    return input;
  ThrowInvalidArgument(
      absl::StrCat("layer [", layer.Describe(), "]: input shape ", input.ToString(),
                   ", expected a last axis of at least one element, a multiple of the groups"));
}

ParameterSpec Filled(const char* name, const Shape& input, double value) {
  return {.name = name,
          .shape = {LastOf(input)},
          .initializer = Initializer::Constant(value),
          .decays = false};
}
ParameterSpec Scale(const Shape& input) { return Filled("scale", input, 1); }
ParameterSpec Shift(const Shape& input) { return Filled("shift", input, 0); }
ParameterSpec State(const char* name, const Shape& input, double value) {
  ParameterSpec spec = Filled(name, input, value);
  spec.is_trained = false;
  return spec;
}

}  // namespace

void BatchNormalization::VisitFields(FieldVisitor& visitor) {
  visitor.Field("momentum", momentum_);
  visitor.Field("epsilon", attributes_.epsilon);
}
std::string BatchNormalization::Describe() const {
  return absl::StrCat("batch_norm ", momentum_, " ", attributes_.epsilon);
}
Shape BatchNormalization::OutputShape(const Shape& input) const {
  if (!(momentum_ >= 0 && momentum_ <= 1)) {
    ThrowInvalidArgument(
        absl::StrCat("layer [", Describe(), "]: momentum ", momentum_, ", expected 0 to 1"));
  }
  return CheckInput(*this, input, attributes_.epsilon);
}
std::vector<ParameterSpec> BatchNormalization::Parameters(const Shape& input) const {
  return {Scale(input), Shift(input), State("running_mean", input, 0),
          State("running_variance", input, 1)};
}

NDArray BatchNormalization::Forward(LayerContext& context, const NDArray& input) const {
  const NDArray &scale = context.parameters[0], &shift = context.parameters[1];
  // The averages are of the network's type, what is averaged is of that in which statistics of `x` are: another one where
  // the network computes in another type.
  const NDArray x = WithoutMasked(context.mask, input);
  const DType type = x.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  const bool is_other = context.parameters[2].dtype() != type;
  NDArray mean = context.parameters[2], variance = context.parameters[3];
  if (is_other) {
    const NoGradientScope constants;
    mean = Cast(mean, type);
    variance = Cast(variance, type);
  }
  if (!context.training) return BatchNormInference(x, scale, shift, mean, variance, attributes_);
  const Normalized result = BatchNorm(x, scale, shift, attributes_);
  UpdateRunningAverages(
      result.mean, result.inverse_deviation,
      {momentum_, attributes_.epsilon, input.NumElements() / LastOf(input.shape())}, mean,
      variance);
  if (is_other) {
    const NoGradientScope constants;
    NDArray averages[] = {context.parameters[2], context.parameters[3]};
    std::move(averages[0]) = mean;
    std::move(averages[1]) = variance;
  }
  return result.output;
}

void LayerNormalization::VisitFields(FieldVisitor& visitor) {
  visitor.Field("epsilon", attributes_.epsilon);
}
std::string LayerNormalization::Describe() const {
  return absl::StrCat("layer_norm ", attributes_.epsilon);
}
Shape LayerNormalization::OutputShape(const Shape& input) const {
  return CheckInput(*this, input, attributes_.epsilon);
}
std::vector<ParameterSpec> LayerNormalization::Parameters(const Shape& input) const {
  return {Scale(input), Shift(input)};
}
NDArray LayerNormalization::Forward(LayerContext& context, const NDArray& input) const {
  return LayerNorm(WithoutMasked(context.mask, input), context.parameters[0], context.parameters[1],
                   attributes_)
      .output;
}

void RmsNormalization::VisitFields(FieldVisitor& visitor) {
  visitor.Field("epsilon", attributes_.epsilon);
}
std::string RmsNormalization::Describe() const {
  return absl::StrCat("rms_norm ", attributes_.epsilon);
}
Shape RmsNormalization::OutputShape(const Shape& input) const {
  return CheckInput(*this, input, attributes_.epsilon);
}
std::vector<ParameterSpec> RmsNormalization::Parameters(const Shape& input) const {
  return {Scale(input)};
}
NDArray RmsNormalization::Forward(LayerContext& context, const NDArray& input) const {
  return RmsNorm(WithoutMasked(context.mask, input), context.parameters[0], attributes_).output;
}

void GroupNormalization::VisitFields(FieldVisitor& visitor) {
  visitor.Field("groups", attributes_.groups, Presence::kRequired);
  visitor.Field("epsilon", attributes_.epsilon);
}
std::string GroupNormalization::Describe() const {
  return absl::StrCat("group_norm ", attributes_.groups, " groups ", attributes_.epsilon);
}
Shape GroupNormalization::OutputShape(const Shape& input) const {
  return CheckInput(*this, input, attributes_.epsilon, attributes_.groups);
}
std::vector<ParameterSpec> GroupNormalization::Parameters(const Shape& input) const {
  return {Scale(input), Shift(input)};
}
NDArray GroupNormalization::Forward(LayerContext& context, const NDArray& input) const {
  return GroupNorm(WithoutMasked(context.mask, input), context.parameters[0], context.parameters[1],
                   attributes_)
      .output;
}

bool BatchNormalization::ToFrozen(FrozenOp& op) const {
  op.kind = FrozenOp::Kind::kNormalisation;
  op.epsilon = attributes_.epsilon;
  return true;
}

}  // namespace tidepool::nn
