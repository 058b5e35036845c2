#include "tidepool/nn/layers/multi_head_attention.h"

#include "absl/strings/str_cat.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/attention.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/nn/layers/sequence_mask.h"

namespace tidepool::nn {
namespace {

// A view [batch, heads, length, head width] of [batch, length, heads, head width].
NDArray ByHeads(const NDArray& x) { return x.Transpose({0, 2, 1, 3}); }

NDArray Projected(const LayerContext& context, int weight, const NDArray& rows) {
  MatMulAttributes attributes;
  attributes.transpose_y = true;
  attributes.y_is_constant = context.parameters_stay;
  return MatMul(rows, context.parameters[weight], attributes, &context.parameters[weight + 1]);
}

}  // namespace

void MultiHeadAttention::VisitFields(FieldVisitor& visitor) {
  visitor.Field("heads", heads_, Presence::kRequired);
  visitor.Field("key_heads", key_heads_);
  visitor.Field("causal", causal_);
}

std::string MultiHeadAttention::Describe() const {
  std::string text = absl::StrCat("multi_head_attention ", heads_, " heads");
  if (KeyHeads() != heads_) absl::StrAppend(&text, " ", key_heads_, " key heads");
  return absl::StrCat(text, causal_ ? " causal" : "");
}

Shape MultiHeadAttention::OutputShape(const Shape& input) const {
  if (input.rank() != 2 || heads_ < 1 || KeyHeads() < 1 || heads_ % KeyHeads() != 0 ||
      input[1] < 1 || input[1] % heads_ != 0) {
    RefuseInput(
        input,
        "[length, width], a width that is a multiple of the heads, and heads of the key heads");
  }
  return input;
}

std::vector<ParameterSpec> MultiHeadAttention::Parameters(const Shape& input) const {
  const int64_t width = input[1], together = (heads_ + 2 * KeyHeads()) * (width / heads_);
  const auto weight = [&](const char* name, int64_t out) {
    return ParameterSpec{name, {out, width}, Initializer::GlorotUniform(), width, width};
  };
  const auto bias = [](const char* name, int64_t out) {
    return ParameterSpec{.name = name, .shape = {out}, .decays = false};
  };
  return {weight("in_weight", together), bias("in_bias", together), weight("out_weight", width),
          bias("out_bias", width)};
}

LayerCost MultiHeadAttention::CostOf(absl::Span<const Shape> inputs) const {
  const Shape& input = inputs[0];
  const auto length = static_cast<double>(input[0]), width = static_cast<double>(input[1]);
  LayerCost cost = CostWith(inputs, length);
  cost.operations +=
      length * length * (2 * width + kOperationsOfScore * static_cast<double>(heads_));
  const double together =
      static_cast<double>(heads_ + 2 * KeyHeads()) / static_cast<double>(heads_);
  cost.elements += length * (width * (together + 1) + static_cast<double>(heads_));
  return cost;
}

NDArray MultiHeadAttention::Forward(LayerContext& context, const NDArray& input) const {
  const int64_t batch = input.dim(0), length = input.dim(1), width = input.dim(2),
                key_heads = KeyHeads();
  NDArray together =
      Projected(context, 0,
                WithoutMasked(context.mask, input).ReshapeOrCopy({batch * length, width}))
          .Reshape({batch, length, heads_ + 2 * key_heads, width / heads_});
  const Place place = Place::CurrentOn(input.device());
  NDArray side_by_side = Empty({batch, length, heads_, width / heads_}, input.dtype(), place);
  {
    AttentionAttributes attributes;
    attributes.causal = causal_;
    NDArray seen;  // [batch, 1, 1, keys]
    if (context.mask.is_defined())
      seen = Cast(context.mask, DType::kBool).Reshape({batch, 1, 1, length});
    const DType statistics = input.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
    Attended attended{ByHeads(side_by_side), Empty({batch, heads_, length}, statistics, place)};
    AttentionInto(ByHeads(together.Slice(2, 0, heads_)),
                  ByHeads(together.Slice(2, heads_, heads_ + key_heads)),
                  ByHeads(together.Slice(2, heads_ + key_heads, heads_ + 2 * key_heads)), attended,
                  attributes, seen.is_defined() ? &seen : nullptr);
    together = NDArray();
  }
  return Projected(context, 2, side_by_side.Reshape({batch * length, width}))
      .Reshape({batch, length, width});
}

}  // namespace tidepool::nn
