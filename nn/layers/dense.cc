#include "tidepool/nn/layers/dense.h"

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "tidepool/ndarray/frozen/frozen_graph.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/nn/layers/sequence_mask.h"

namespace tidepool::nn {
namespace {

// As rows of what one output is the sum of.
NDArray Rows(const NDArray& x, int64_t width) {
  if (x.rank() == 2 && x.dim(1) == width) return x;
  return x.ReshapeOrCopy({width == 0 ? x.dim(0) : x.NumElements() / width, width});
}

}  // namespace

void Dense::VisitFields(FieldVisitor& visitor) {
  visitor.Field("units", units_, Presence::kRequired);
  visitor.Choice("activation", activation_, ActivationNames());
  visitor.Field("bias", options_.bias);
  visitor.Field("last_axis", options_.last_axis);
  VisitInitializer(visitor, "weight_initializer", options_.weight_initializer);
}

std::string Dense::Describe() const {
  return absl::StrCat("dense ", units_, options_.last_axis ? " of the last axis" : "",
                      options_.bias ? "" : " no bias", ActivationText(activation_));
}

Shape Dense::OutputShape(const Shape& input) const {
  if (units_ < 1 || input.NumElements() < 1) RefuseInput(input, "at least one unit and one input");
  if (!options_.last_axis) return {units_};
  if (input.rank() < 1) RefuseInput(input, "at least one axis");
  std::vector<int64_t> dims(input.span().begin(), input.span().end());
  dims.back() = units_;
  return Shape(dims);
}

std::vector<ParameterSpec> Dense::Parameters(const Shape& input) const {
  const int64_t inputs = options_.last_axis ? input[input.rank() - 1] : input.NumElements();
  std::vector<ParameterSpec> specs = {
      {"weight",
       {units_, inputs},
       options_.weight_initializer.Or(InitializerBefore(activation_)),
       inputs,
       units_}};
  if (options_.bias) specs.push_back({.name = "bias", .shape = {units_}, .decays = false});
  return specs;
}

LayerCost Dense::CostOf(absl::Span<const Shape> inputs) const {
  return CostWith(inputs, options_.last_axis ? PlacesOf(inputs[0]) : 1);
}

NDArray Dense::Forward(LayerContext& context, const NDArray& input) const {
  MatMulAttributes attributes;
  attributes.transpose_y = true;
  attributes.relu = activation_ == Activation::kRelu;
  attributes.y_is_constant = context.parameters_stay;
  const NDArray& weight = context.parameters[0];
  NDArray output = MatMul(Rows(WithoutMasked(context.mask, input), weight.dim(1)), weight,
                          attributes, options_.bias ? &context.parameters[1] : nullptr);
  if (!attributes.relu) output = Activate(activation_, output);
  if (!options_.last_axis) {
    context.mask = NDArray();
    return output;
  }
  if (input.rank() == 2) return output;
  absl::InlinedVector<int64_t, kMaxRank> dims(input.shape().span().begin(),
                                              input.shape().span().end());
  dims.back() = units_;
  return output.Reshape(Shape(absl::MakeConstSpan(dims)));
}

bool Dense::ToFrozen(FrozenOp& op) const {
  if (options_.last_axis && op.input_shape.rank() != 1) {
    op.why_not = "a dense layer of each step of a sequence";
    return false;
  }
  op.kind = FrozenOp::Kind::kDense;
  return FreezeActivation(activation_, op);
}

}  // namespace tidepool::nn
