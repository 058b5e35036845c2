// Self-attention of [length, width] sequences by several heads (Vaswani et al. 2017).
#ifndef TIDEPOOL_NN_LAYERS_MULTI_HEAD_ATTENTION_H_
#define TIDEPOOL_NN_LAYERS_MULTI_HEAD_ATTENTION_H_

#include <string>
#include <vector>

#include "tidepool/nn/layers/layer.h"

namespace tidepool::nn {

// Queries, keys and values are one product with the input, the heads' outputs side by side another:
// parameters "in_weight" [(heads + 2 key_heads) * width / heads, width], "in_bias", "out_weight" [width,
// width], "out_bias". The width is a multiple of the heads. What the mask leaves out is not seen.
class MultiHeadAttention final : public Layer {
 public:
  // key_heads: how many keys and values there are, of which heads is a multiple; 0: as many as heads.
  // causal: an element of the sequence sees itself and those before it.
  explicit MultiHeadAttention(int64_t heads, bool causal = false, int64_t key_heads = 0)
      : heads_(heads), key_heads_(key_heads), causal_(causal) {}

  std::string Kind() const override { return "multi_head_attention"; }
  InputTypes TakenTypes() const override { return InputTypes::kFloats; }
  void VisitFields(FieldVisitor& visitor) override;
  std::string Describe() const override;
  Shape OutputShape(const Shape& input) const override;
  std::vector<ParameterSpec> Parameters(const Shape& input) const override;
  NDArray Forward(LayerContext& context, const NDArray& input) const override;
  LayerCost CostOf(absl::Span<const Shape> inputs) const override;

 private:
  int64_t KeyHeads() const { return key_heads_ == 0 ? heads_ : key_heads_; }

  int64_t heads_, key_heads_;
  bool causal_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_LAYERS_MULTI_HEAD_ATTENTION_H_
