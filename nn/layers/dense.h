// Fully connected layer: y = activation(x W^T + b), W [units, inputs].
#ifndef TIDEPOOL_NN_LAYERS_DENSE_H_
#define TIDEPOOL_NN_LAYERS_DENSE_H_

#include <string>
#include <vector>

#include "tidepool/nn/layers/activation.h"
#include "tidepool/nn/layers/layer.h"

namespace tidepool::nn {

// What a Dense may be given beside its size.
struct DenseOptions {
  bool bias = true;  // whether there is one, a number for each unit
  // Of each element of a sequence [length, ..., width] by itself: the last axis alone becomes units. Otherwise inputs of higher
  // rank are flattened.
  bool last_axis = false;
  Initializer weight_initializer;
};

class Dense final : public Layer {
 public:
  explicit Dense(int64_t units, Activation activation = Activation::kIdentity,
                 DenseOptions options = {})
      : units_(units), activation_(activation), options_(options) {}

  std::string Kind() const override { return "dense"; }
  InputTypes TakenTypes() const override { return InputTypes::kFloats; }
  void VisitFields(FieldVisitor& visitor) override;
  std::string Describe() const override;
  Shape OutputShape(const Shape& input) const override;
  std::vector<ParameterSpec> Parameters(const Shape& input) const override;  // "weight", "bias"
  NDArray Forward(LayerContext& context, const NDArray& input) const override;
  LayerCost CostOf(absl::Span<const Shape> inputs) const override;
  bool ToFrozen(FrozenOp& op) const override;

 private:
  int64_t units_;
  Activation activation_;
  DenseOptions options_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_LAYERS_DENSE_H_
