// Max pooling of [height, width, channels] images.
#ifndef TIDEPOOL_NN_LAYERS_MAX_POOL2D_H_
#define TIDEPOOL_NN_LAYERS_MAX_POOL2D_H_

#include <string>

#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/nn/layers/layer.h"

namespace tidepool::nn {

class MaxPool2D final : public Layer {
 public:
  explicit MaxPool2D(Pool2dAttributes attributes = {}) : attributes_(attributes) {
    attributes_.relu_grad = false;
  }

  std::string Kind() const override { return "max_pool2d"; }
  InputTypes TakenTypes() const override { return InputTypes::kFloats; }
  void VisitFields(FieldVisitor& visitor) override;
  std::string Describe() const override;
  Shape OutputShape(const Shape& input) const override;
  NDArray Forward(LayerContext& context, const NDArray& input) const override;
  LayerCost CostOf(absl::Span<const Shape> inputs) const override;
  bool ToFrozen(FrozenOp& op) const override;

  // As constructed.
  const Pool2dAttributes& attributes() const { return attributes_; }

 private:
  Pool2dAttributes attributes_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_LAYERS_MAX_POOL2D_H_
