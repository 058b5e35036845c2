// Vectors of words and of places.
#ifndef TIDEPOOL_NN_LAYERS_EMBEDDING_H_
#define TIDEPOOL_NN_LAYERS_EMBEDDING_H_

#include <string>
#include <vector>

#include "tidepool/nn/layers/layer.h"

namespace tidepool::nn {

// What an Embedding may be given beside its sizes.
struct EmbeddingOptions {
  // The index that stands for no step: the mask of the output leaves it out, and it gives zeros
  // without a gradient. -1: none. Inputs are sequences [length, ...] then.
  int64_t mask_index = -1;
  Initializer initializer = Initializer::Normal(1);
};

// Integers [...], i64 or i32 from 0 to entries - 1, become rows of "table" [entries, width]: [...,
// width]. What a mask leaves out may be any number; it gives zeros. Others outside are errors when
// they come. A Dense of as many inputs as `width` and as many units as `entries` can share the
// table: {"weight": "embedding.table"} (NodeConfig::tied).
class Embedding final : public Layer {
 public:
  Embedding(int64_t entries, int64_t width, EmbeddingOptions options = {})
      : entries_(entries), width_(width), options_(options) {}

  std::string Kind() const override { return "embedding"; }
  InputTypes TakenTypes() const override { return InputTypes::kIntegers; }
  void VisitFields(FieldVisitor& visitor) override;
  std::string Describe() const override;
  Shape OutputShape(const Shape& input) const override;
  std::vector<ParameterSpec> Parameters(const Shape& input) const override;
  NDArray Forward(LayerContext& context, const NDArray& input) const override;
  LayerCost CostOf(absl::Span<const Shape> inputs) const override;

 private:
  int64_t entries_, width_;
  EmbeddingOptions options_;
};

// Adds to each step of [length, width] a vector of its place, learned: "table" [length, width].
class PositionEmbedding final : public Layer {
 public:
  explicit PositionEmbedding(Initializer initializer = Initializer::Normal(0.02))
      : initializer_(initializer) {}

  std::string Kind() const override { return "position_embedding"; }
  InputTypes TakenTypes() const override { return InputTypes::kFloats; }
  void VisitFields(FieldVisitor& visitor) override;
  Shape OutputShape(const Shape& input) const override;
  std::vector<ParameterSpec> Parameters(const Shape& input) const override;
  NDArray Forward(LayerContext& context, const NDArray& input) const override;
  LayerCost CostOf(absl::Span<const Shape> inputs) const override;

 private:
  Initializer initializer_;
};

// Likewise without parameters: sin(place / period^(2 i / width)) at element 2 i, cos of the same at
// 2 i + 1 (Vaswani et al. 2017).
class SinusoidalPositions final : public Layer {
 public:
  explicit SinusoidalPositions(double period = 10000) : period_(period) {}

  std::string Kind() const override { return "sinusoidal_positions"; }
  InputTypes TakenTypes() const override { return InputTypes::kFloats; }
  void VisitFields(FieldVisitor& visitor) override;
  Shape OutputShape(const Shape& input) const override;
  NDArray Forward(LayerContext& context, const NDArray& input) const override;
  LayerCost CostOf(absl::Span<const Shape> inputs) const override;

 private:
  double period_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_LAYERS_EMBEDDING_H_
