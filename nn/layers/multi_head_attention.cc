#include "tidepool/nn/layers/multi_head_attention.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/attention.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/reduction.h"

namespace tidepool::nn {
namespace {

// [batch, length, width] as [batch * length, width].
NDArray Rows(const NDArray& x) { return x.Reshape({x.dim(0) * x.dim(1), x.dim(2)}); }

// A view [batch, heads, length, head width] of [batch, length, heads, head width].
NDArray ByHeads(const NDArray& x) { return x.Transpose({0, 2, 1, 3}); }

NDArray Projected(const LayerContext& context, int weight, const NDArray& rows) {
  MatMulAttributes attributes;
  attributes.transpose_y = true;
  attributes.y_is_constant = !context.training;
  return MatMul(rows, context.parameters[weight], attributes, &context.parameters[weight + 1]);
}

// Writes the gradients of a weight and its bias, returns that of the rows where it is wanted.
NDArray ProjectedBack(const LayerContext& context, int weight, const NDArray& rows, const NDArray& gradient,
                      bool wanted) {
  MatMulAttributes of_weight;
  of_weight.transpose_x = true;
  MatMulInto(gradient, rows, context.gradients[weight], of_weight);
  SumToLastAxisInto(gradient, context.gradients[weight + 1]);
  return wanted ? MatMul(gradient, context.parameters[weight]) : NDArray();
}

}  // namespace

// Views of queries, keys and values side by side: [batch * length, (heads + 2 key heads) * head width].
struct MultiHeadAttention::Projections {
  NDArray query, key, value;

  Projections(const NDArray& together, const NDArray& input, int64_t heads, int64_t key_heads) {
    const NDArray all =
        together.Reshape({input.dim(0), input.dim(1), heads + 2 * key_heads, input.dim(2) / heads});
    query = ByHeads(all.Slice(2, 0, heads));
    key = ByHeads(all.Slice(2, heads, heads + key_heads));
    value = ByHeads(all.Slice(2, heads + key_heads, heads + 2 * key_heads));
  }
};

std::string MultiHeadAttention::Describe() const {
  std::string text = absl::StrCat("multi_head_attention ", heads_, " heads");
  if (key_heads_ != heads_) absl::StrAppend(&text, " ", key_heads_, " key heads");
  return absl::StrCat(text, causal_ ? " causal" : "");
}

Shape MultiHeadAttention::OutputShape(const Shape& input) const {
  if (input.rank() != 2 || heads_ < 1 || key_heads_ < 1 || heads_ % key_heads_ != 0 || input[1] < 1 ||
      input[1] % heads_ != 0) {
    ThrowInvalidArgument(absl::StrCat(
        "layer [", Describe(), "]: input shape ", input.ToString(),
        ", expected [length, width], a width that is a multiple of the heads, and heads of the key heads"));
  }
  return input;
}

std::vector<ParameterSpec> MultiHeadAttention::Parameters(const Shape& input) const {
  const int64_t width = input[1], together = (heads_ + 2 * key_heads_) * (width / heads_);
  const auto bound = [](int64_t in, int64_t out) { return std::sqrt(6.0 / static_cast<double>(in + out)); };
  return {{"in_weight", {together, width}, bound(width, width)},
          {"in_bias", {together}, 0},
          {"out_weight", {width, width}, bound(width, width)},
          {"out_bias", {width}, 0}};
}

NDArray MultiHeadAttention::Forward(const LayerContext& context, const NDArray& input, LayerCache& cache) const {
  const NDArray together = Projected(context, 0, Rows(input));
  const Projections p(together, input, heads_, key_heads_);
  const int64_t batch = input.dim(0), length = input.dim(1), width = input.dim(2);
  NDArray side_by_side = Empty({batch, length, heads_, width / heads_}, input.dtype(),
                               Place::CurrentOn(input.device()));
  AttentionAttributes attributes;
  attributes.causal = causal_;
  Attended attended{ByHeads(side_by_side),
                    Empty({batch, heads_, length}, DType::kFloat32, Place::CurrentOn(input.device()))};
  AttentionInto(p.query, p.key, p.value, attended, attributes);
  if (context.training) {
    cache.input = input;
    cache.kept[0] = together;
    cache.kept[1] = side_by_side;
    cache.kept[2] = attended.log_sum_exp;
  }
  return Projected(context, 2, side_by_side.Reshape({batch * length, width})).Reshape({batch, length, width});
}

NDArray MultiHeadAttention::Backward(const LayerContext& context, NDArray output_gradient, LayerCache& cache,
                                     bool needs_input_gradient) const {
  const NDArray input = cache.input, together = cache.kept[0], side_by_side = cache.kept[1];
  const int64_t rows = input.dim(0) * input.dim(1), width = input.dim(2);
  const NDArray gradient = ProjectedBack(context, 2, side_by_side.Reshape({rows, width}), Rows(output_gradient),
                                         /*wanted=*/true);
  output_gradient = NDArray();
  NDArray of_together = Empty(together.shape(), together.dtype(), Place::CurrentOn(together.device()));
  {
    const Projections p(together, input, heads_, key_heads_), of(of_together, input, heads_, key_heads_);
    AttentionAttributes attributes;
    attributes.causal = causal_;
    AttentionGradients gradients{of.query, of.key, of.value};
    AttentionGradInto(p.query, p.key, p.value, {ByHeads(side_by_side), cache.kept[2]},
                      ByHeads(gradient.Reshape(side_by_side.shape())), gradients, attributes);
  }
  const Shape shape = input.shape();
  const NDArray of_rows = ProjectedBack(context, 0, Rows(input), of_together, needs_input_gradient);
  cache.Clear();
  return needs_input_gradient ? of_rows.Reshape(shape) : NDArray();
}

}  // namespace tidepool::nn
