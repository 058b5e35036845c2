#include "tidepool/nn/layers/cross_attention.h"

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/attention.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/normalization.h"
#include "tidepool/nn/layers/sequence_mask.h"

namespace tidepool::nn {

void CrossAttention::VisitFields(FieldVisitor& visitor) {
  visitor.Field("heads", heads_, Presence::kRequired);
  visitor.Field("width", options_.width);
  visitor.Field("causal", options_.causal);
  visitor.Field("key_mask", options_.key_mask);
}

std::string CrossAttention::Describe() const {
  return absl::StrCat("cross_attention ", heads_, " heads",
                      options_.width != 0 ? absl::StrCat(" of ", options_.width) : "",
                      options_.causal ? " causal" : "",
                      options_.key_mask ? " with a mask of keys" : "");
}

Shape CrossAttention::OutputShapeOf(absl::Span<const Shape> inputs) const {
  const size_t sequences = inputs.size() - (options_.key_mask && !inputs.empty() ? 1 : 0);
  if (sequences != 2 && sequences != 3) {
    ThrowInvalidArgument(absl::StrCat("layer [", Describe(), "]: ", inputs.size(),
                                      " inputs, expected queries, keys and perhaps values",
                                      options_.key_mask ? ", and the mask of keys" : ""));
  }
  for (const Shape& shape : inputs.first(sequences)) {
    if (shape.rank() != 2 || shape.NumElements() < 1) RefuseInput(shape, "[length, width]");
  }
  const int64_t keys = inputs[1][0], width = WidthOf(inputs[0]);
  if (sequences == 3 && inputs[2][0] != keys)
    RefuseInput(inputs[2], absl::StrCat("values for ", keys, " keys"));
  if (options_.key_mask && !(inputs.back() == Shape{keys}))
    RefuseInput(inputs.back(), absl::StrCat("a mask of ", keys, " keys"));
  if (heads_ < 1 || width < 1 || width % heads_ != 0) {
    RefuseInput(inputs[0], absl::StrCat("a width that is a multiple of the heads, found ", width));
  }
  return {inputs[0][0], width};
}

std::vector<ParameterSpec> CrossAttention::ParametersOf(absl::Span<const Shape> inputs) const {
  const int64_t width = WidthOf(inputs[0]);
  const size_t sequences = inputs.size() - (options_.key_mask ? 1 : 0);
  std::vector<ParameterSpec> specs;
  const auto add = [&](const char* name, int64_t in) {
    specs.push_back(
        {absl::StrCat(name, "_weight"), {width, in}, Initializer::GlorotUniform(), in, width});
    specs.push_back({.name = absl::StrCat(name, "_bias"), .shape = {width}, .decays = false});
  };
  add("query", inputs[0][1]);
  add("key", inputs[1][1]);
  add("value", inputs[sequences - 1][1]);
  add("out", width);
  return specs;
}

LayerCost CrossAttention::CostOf(absl::Span<const Shape> inputs) const {
  const auto queries = static_cast<double>(inputs[0][0]), keys = static_cast<double>(inputs[1][0]);
  const auto width = static_cast<double>(WidthOf(inputs[0])), heads = static_cast<double>(heads_);
  LayerCost cost = CostWith(inputs, std::max(queries, keys));
  cost.operations += queries * keys * (2 * width + kOperationsOfScore * heads);
  cost.elements += 2 * queries * width + 2 * keys * width + queries * heads;
  return cost;
}

NDArray CrossAttention::ForwardOf(LayerContext& context, absl::Span<const NDArray> inputs) const {
  const size_t sequences = inputs.size() - (options_.key_mask ? 1 : 0);
  const int64_t batch = inputs[0].dim(0), queries = inputs[0].dim(1), keys = inputs[1].dim(1);
  const int64_t width = context.parameters[0].dim(0);
  NDArray seen;  // bool [batch, keys]
  if (options_.key_mask) seen = NotEqual(inputs.back(), 0.0);
  for (size_t i = 1; i < sequences; ++i) {
    const NDArray own = MaskOfInput(context, i);
    if (!IsMaskOf(own, inputs[i])) continue;
    const NDArray there = Cast(own, DType::kBool);
    seen = seen.is_defined() ? LogicalAnd(seen, there) : there;
  }
  context.mask = MaskOfInput(context, 0);
  const auto projected = [&](int weight, const NDArray& x) {
    MatMulAttributes attributes;
    attributes.transpose_y = true;
    attributes.y_is_constant = context.parameters_stay;
    return MatMul(x.ReshapeOrCopy({batch * x.dim(1), x.dim(2)}), context.parameters[weight],
                  attributes, &context.parameters[weight + 1]);
  };
  // Views [batch, heads, length, width / heads].
  const auto by_heads = [&](const NDArray& x, int64_t length) {
    return x.Reshape({batch, length, heads_, width / heads_}).Transpose({0, 2, 1, 3});
  };
  const auto keys_of = [&](int weight, const NDArray& x) {
    return by_heads(projected(weight, WithoutMasked(seen, x)), keys);
  };
  NDArray side_by_side =
      Empty({batch, queries, width}, inputs[0].dtype(), Place::CurrentOn(inputs[0].device()));
  {
    // What no output depends on is not read: the queries' own mask.
    const NDArray query = by_heads(projected(0, WithoutMasked(context.mask, inputs[0])), queries);
    const NDArray key = keys_of(2, inputs[1]), value = keys_of(4, inputs[sequences - 1]);
    AttentionAttributes attributes;
    attributes.causal = options_.causal;
    NDArray mask;
    if (seen.is_defined()) mask = seen.Reshape({batch, 1, 1, keys});
    Attended attended{by_heads(side_by_side, queries),
                      Empty({batch, heads_, queries}, StatisticsType(inputs[0].dtype()),
                            Place::CurrentOn(inputs[0].device()))};
    AttentionInto(query, key, value, attended, attributes, mask.is_defined() ? &mask : nullptr);
  }
  return projected(6, side_by_side).Reshape({batch, queries, width});
}

}  // namespace tidepool::nn
