// Attention of one sequence to another (Vaswani et al. 2017).
#ifndef TIDEPOOL_NN_LAYERS_CROSS_ATTENTION_H_
#define TIDEPOOL_NN_LAYERS_CROSS_ATTENTION_H_

#include <string>
#include <vector>

#include "tidepool/nn/layers/layer.h"

namespace tidepool::nn {

struct CrossAttentionOptions {
  int64_t width = 0;  // of queries and keys, all heads together, and of the output; 0: the queries'
  bool causal = false;  // query i sees the keys up to i
  bool key_mask =
      false;  // one input more, the last: [keys] of floats by example, 0 where there is no key
};

// Inputs: queries [queries, width], keys [keys, ...] and values [keys, ...], or two of them where
// keys are the values; then the mask of keys, if there is one. Output [queries, width]. Parameters:
// "query_weight" [width, query width], "key_weight", "value_weight", "out_weight" [width, width],
// with "..._bias" each. Keys and values behind their ends (LayerContext::masks) are not seen.
// LayerContext::mask is that of the queries, whose outputs it does not change; a query that sees no
// key gives the output's bias.
class CrossAttention final : public Layer {
 public:
  explicit CrossAttention(int64_t heads, CrossAttentionOptions options = {})
      : heads_(heads), options_(options) {}

  std::string Kind() const override { return "cross_attention"; }
  InputTypes TakenTypes() const override { return InputTypes::kFloats; }
  void VisitFields(FieldVisitor& visitor) override;
  std::string Describe() const override;
  Shape OutputShapeOf(absl::Span<const Shape> inputs) const override;
  std::vector<ParameterSpec> ParametersOf(absl::Span<const Shape> inputs) const override;
  NDArray ForwardOf(LayerContext& context, absl::Span<const NDArray> inputs) const override;
  LayerCost CostOf(absl::Span<const Shape> inputs) const override;

 private:
  int64_t WidthOf(const Shape& queries) const {
    return options_.width == 0 ? queries[1] : options_.width;
  }

  int64_t heads_;
  CrossAttentionOptions options_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_LAYERS_CROSS_ATTENTION_H_
