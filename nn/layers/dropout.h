// Dropout (Srivastava et al. 2014): while training each element is 0 with probability `rate`, and
// what is kept is scaled by 1 / (1 - rate), so that nothing is to be done afterwards. Nothing is
// stored for the gradient: the numbers are drawn again. The mask of sequences stays.
#ifndef TIDEPOOL_NN_LAYERS_DROPOUT_H_
#define TIDEPOOL_NN_LAYERS_DROPOUT_H_

#include <string>

#include "tidepool/nn/layers/layer.h"

namespace tidepool::nn {

class DropoutLayer final : public Layer {
 public:
  // spatial: whole channels (the last axis) of an example at once (Tompson et al. 2015).
  explicit DropoutLayer(double rate = 0.5, bool spatial = false) : rate_(rate), spatial_(spatial) {}

  std::string Kind() const override { return "dropout"; }
  InputTypes TakenTypes() const override { return InputTypes::kFloats; }
  void VisitFields(FieldVisitor& visitor) override;
  std::string Describe() const override;
  Shape OutputShape(const Shape& input) const override;
  NDArray Forward(LayerContext& context, const NDArray& input) const override;
  bool ToFrozen(FrozenOp& op) const override;
  bool IsRandom() const override { return rate_ > 0; }

 private:
  double rate_;
  bool spatial_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_LAYERS_DROPOUT_H_
