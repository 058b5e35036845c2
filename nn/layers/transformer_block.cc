#include "tidepool/nn/layers/transformer_block.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/ops/dropout.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/multi_head_attention.h"
#include "tidepool/nn/layers/normalization.h"
#include "tidepool/nn/layers/sequence_mask.h"

namespace tidepool::nn {
namespace {

constexpr size_t kOfNorm = 2, kOfAttention = 4, kOfDense = 2;

DenseOptions OfSteps() {
  DenseOptions options;
  options.last_axis = true;
  return options;
}

}  // namespace

void TransformerBlock::VisitFields(FieldVisitor& visitor) {
  visitor.Field("heads", heads_, Presence::kRequired);
  visitor.Field("hidden", hidden_);
  visitor.Field("causal", options_.causal);
  visitor.Field("dropout", options_.dropout);
  visitor.Choice("activation", options_.activation, ActivationNames());
  visitor.Field("epsilon", options_.epsilon);
}

std::string TransformerBlock::Describe() const {
  return absl::StrCat("transformer_block ", heads_, " heads",
                      hidden_ != 0 ? absl::StrCat(" ", hidden_, " hidden") : "",
                      options_.causal ? " causal" : "", ActivationText(options_.activation));
}

Shape TransformerBlock::OutputShape(const Shape& input) const {
  if (!(options_.dropout >= 0 && options_.dropout < 1) || hidden_ < 0) {
    ThrowInvalidArgument(
        absl::StrCat("layer [", Describe(), "]: dropout ", options_.dropout, " and ", hidden_,
                     " hidden units, expected a rate less than 1, both at least 0"));
  }
  if (input.rank() != 2 || heads_ < 1 || input[1] < 1 || input[1] % heads_ != 0) {
    RefuseInput(input, "[length, width], a width that is a multiple of the heads");
  }
  return LayerNormalization(options_.epsilon).OutputShape(input);
}

std::vector<ParameterSpec> TransformerBlock::Parameters(const Shape& input) const {
  std::vector<ParameterSpec> all;
  const auto add = [&](const char* name, const Layer& layer, const Shape& shape) {
    for (ParameterSpec& spec : layer.Parameters(shape)) {
      spec.name = absl::StrCat(name, ".", spec.name);
      all.push_back(std::move(spec));
    }
  };
  const int64_t width = input[1], hidden = hidden_ == 0 ? 4 * width : hidden_;
  add("attention_norm", LayerNormalization(options_.epsilon), input);
  add("attention", MultiHeadAttention(heads_, options_.causal), input);
  add("hidden_norm", LayerNormalization(options_.epsilon), input);
  add("hidden", Dense(hidden, options_.activation, OfSteps()), input);
  add("out", Dense(width, Activation::kIdentity, OfSteps()), {input[0], hidden});
  return all;
}

LayerCost TransformerBlock::CostOf(absl::Span<const Shape> inputs) const {
  const Shape& input = inputs[0];
  const int64_t hidden = hidden_ == 0 ? 4 * input[1] : hidden_;
  LayerCost cost = CostWith(inputs, 0);  // the two sums
  cost += 2 * LayerNormalization(options_.epsilon).CostOf(inputs);
  cost += MultiHeadAttention(heads_, options_.causal).CostOf(inputs);
  cost += Dense(hidden, options_.activation, OfSteps()).CostOf(inputs);
  const Shape of_hidden{input[0], hidden};
  cost += Dense(input[1], Activation::kIdentity, OfSteps()).CostOf({&of_hidden, 1});
  return cost;
}

NDArray TransformerBlock::Forward(LayerContext& context, const NDArray& input) const {
  const NDArray mask = context.mask;
  absl::Span<const NDArray> parameters = context.parameters;
  const auto call = [&](const Layer& layer, size_t count, const NDArray& x) {
    LayerContext inner{.parameters = parameters.first(count),
                       .training = context.training,
                       .parameters_stay = context.parameters_stay,
                       .mask = mask};
    parameters.remove_prefix(count);
    return layer.Forward(inner, x);
  };
  // Layers of a network have streams of their own in the low bits.
  const auto dropped = [&](NDArray x, uint64_t half) {
    if (!context.training || options_.dropout == 0) return x;
    return Dropout(x, options_.dropout, context.seed, context.stream ^ (half << 60));
  };
  NDArray x = WithoutMasked(mask, input);
  {
    NDArray y = call(LayerNormalization(options_.epsilon), kOfNorm, x);
    y = call(MultiHeadAttention(heads_, options_.causal), kOfAttention, y);
    x = x + dropped(std::move(y), 1);
  }
  const int64_t width = input.dim(2);
  NDArray y = call(LayerNormalization(options_.epsilon), kOfNorm, x);
  const int64_t hidden = parameters[0].dim(0);
  y = call(Dense(hidden, options_.activation, OfSteps()), kOfDense, y);
  y = call(Dense(width, Activation::kIdentity, OfSteps()), kOfDense, y);
  return x + dropped(std::move(y), 2);
}

}  // namespace tidepool::nn
