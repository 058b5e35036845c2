// Max pooling of [batch, height, width, channels] images.
#ifndef TIDEPOOL_NN_LAYERS_MAX_POOL2D_H_
#define TIDEPOOL_NN_LAYERS_MAX_POOL2D_H_

#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/nn/layers/layer.h"

namespace tidepool::nn {

class MaxPool2D final : public Layer {
 public:
  explicit MaxPool2D(Pool2dAttributes attributes = {}) : attributes_(attributes) {
    attributes_.relu_grad = false;
  }

  std::string Describe() const override;
  std::string Kind() const override { return "max_pool2d"; }
  Shape OutputShape(const Shape& input) const override;
  NDArray Forward(const LayerContext& context, const NDArray& input,
                  LayerCache& cache) const override;
  NDArray Backward(const LayerContext& context, NDArray output_gradient, LayerCache& cache,
                   bool needs_input_gradient) const override;
  bool ToFrozen(FrozenOp& op) const override;
  bool CanApplyReluGradient() const override { return true; }
  void ApplyReluGradientOfPrevious() override { attributes_.relu_grad = true; }

 private:
  Pool2dAttributes attributes_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_LAYERS_MAX_POOL2D_H_
