// A block of a transformer, normalised before its two halves (Xiong et al. 2020):
//
//   x = x + Dropout(MultiHeadAttention(LayerNorm(x)))
//   x = x + Dropout(Dense(activation(Dense(LayerNorm(x)))))
//
// of [length, width] sequences. Parameters are those of its layers: "attention_norm.scale",
// "attention.in_weight", "hidden_norm.scale", "hidden.weight", "out.weight" and so on. The mask
// stays; what it leaves out is not seen. A language model is Embedding, PositionEmbedding, blocks
// with `causal`, LayerNormalization, Dense of the last axis.
#ifndef TIDEPOOL_NN_LAYERS_TRANSFORMER_BLOCK_H_
#define TIDEPOOL_NN_LAYERS_TRANSFORMER_BLOCK_H_

#include <string>
#include <vector>

#include "tidepool/nn/layers/activation.h"
#include "tidepool/nn/layers/layer.h"

namespace tidepool::nn {

// What a block may be given beside its sizes.
struct TransformerBlockOptions {
  bool causal = false;  // a position sees none behind it
  double dropout = 0;   // share of the outputs of both halves that is left out in training, below 1
  Activation activation = Activation::kGelu;  // between the two Dense layers
  double epsilon = 1e-5;                      // of both normalisations: added to the variance
};

class TransformerBlock final : public Layer {
 public:
  // hidden: units between the two Dense layers, 0: four times the width.
  explicit TransformerBlock(int64_t heads, int64_t hidden = 0, TransformerBlockOptions options = {})
      : heads_(heads), hidden_(hidden), options_(options) {}

  std::string Kind() const override { return "transformer_block"; }
  InputTypes TakenTypes() const override { return InputTypes::kFloats; }
  void VisitFields(FieldVisitor& visitor) override;
  std::string Describe() const override;
  Shape OutputShape(const Shape& input) const override;
  std::vector<ParameterSpec> Parameters(const Shape& input) const override;
  NDArray Forward(LayerContext& context, const NDArray& input) const override;
  LayerCost CostOf(absl::Span<const Shape> inputs) const override;
  bool IsRandom() const override { return options_.dropout > 0; }

 private:
  int64_t heads_, hidden_;
  TransformerBlockOptions options_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_LAYERS_TRANSFORMER_BLOCK_H_
