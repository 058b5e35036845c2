// Fully connected layer: y = activation(x W^T + b), W [units, inputs]. Inputs of higher rank are
// flattened.
#ifndef TIDEPOOL_NN_LAYERS_DENSE_H_
#define TIDEPOOL_NN_LAYERS_DENSE_H_

#include "tidepool/nn/layers/layer.h"

namespace tidepool::nn {

class Dense final : public Layer {
 public:
  explicit Dense(int64_t units, Activation activation = Activation::kIdentity)
      : units_(units), activation_(activation) {}

  std::string Describe() const override;
  std::string Kind() const override { return "dense"; }
  Shape OutputShape(const Shape& input) const override;
  std::vector<ParameterSpec> Parameters(const Shape& input) const override;
  NDArray Forward(const LayerContext& context, const NDArray& input,
                  LayerCache& cache) const override;
  NDArray Backward(const LayerContext& context, NDArray output_gradient, LayerCache& cache,
                   bool needs_input_gradient) const override;
  bool ToFrozen(FrozenOp& op) const override;
  bool EndsWithRelu() const override { return activation_ == Activation::kRelu; }
  void LeaveReluGradientToNext() override { relu_gradient_elsewhere_ = true; }

 private:
  int64_t units_;
  Activation activation_;
  bool relu_gradient_elsewhere_ = false;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_LAYERS_DENSE_H_
