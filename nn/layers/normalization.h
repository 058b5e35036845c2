// Layers of normalisation, with a scale and a shift for each element of the last axis ("scale", "shift"). Steps that a mask leaves out
// are zeros to them, which those over several steps (batch, groups) count.
#ifndef TIDEPOOL_NN_LAYERS_NORMALIZATION_H_
#define TIDEPOOL_NN_LAYERS_NORMALIZATION_H_

#include <string>
#include <vector>

#include "tidepool/ndarray/kernel/attributes_nn.h"
#include "tidepool/nn/layers/layer.h"

namespace tidepool::nn {

// Of each element of the last axis over the batch and all other axes while training; afterwards by the averages of the batches
// seen, "running_mean" and "running_variance", which each step of training moves by `momentum` towards those of its batch.
class BatchNormalization final : public Layer {
 public:
  explicit BatchNormalization(double momentum = 0.1, double epsilon = 1e-5)
      : momentum_(momentum), attributes_{epsilon} {}

  std::string Kind() const override { return "batch_norm"; }
  InputTypes TakenTypes() const override { return InputTypes::kFloats; }
  void VisitFields(FieldVisitor& visitor) override;
  std::string Describe() const override;
  Shape OutputShape(const Shape& input) const override;
  std::vector<ParameterSpec> Parameters(const Shape& input) const override;
  NDArray Forward(LayerContext& context, const NDArray& input) const override;
  bool ToFrozen(FrozenOp& op) const override;

 private:
  double momentum_;
  NormalizationAttributes attributes_;
};

// Over the last axis.
class LayerNormalization final : public Layer {
 public:
  explicit LayerNormalization(double epsilon = 1e-5) : attributes_{epsilon} {}

  std::string Kind() const override { return "layer_norm"; }
  InputTypes TakenTypes() const override { return InputTypes::kFloats; }
  void VisitFields(FieldVisitor& visitor) override;
  std::string Describe() const override;
  Shape OutputShape(const Shape& input) const override;
  std::vector<ParameterSpec> Parameters(const Shape& input) const override;
  NDArray Forward(LayerContext& context, const NDArray& input) const override;

 private:
  NormalizationAttributes attributes_;
};

// Over the last axis, by the root of the mean square; without a shift.
class RmsNormalization final : public Layer {
 public:
  explicit RmsNormalization(double epsilon = 1e-5) : attributes_{epsilon} {}

  std::string Kind() const override { return "rms_norm"; }
  InputTypes TakenTypes() const override { return InputTypes::kFloats; }
  void VisitFields(FieldVisitor& visitor) override;
  std::string Describe() const override;
  Shape OutputShape(const Shape& input) const override;
  std::vector<ParameterSpec> Parameters(const Shape& input) const override;
  NDArray Forward(LayerContext& context, const NDArray& input) const override;

 private:
  NormalizationAttributes attributes_;
};

// Of groups of neighbouring channels (the last axis) of each example.
class GroupNormalization final : public Layer {
 public:
  explicit GroupNormalization(int64_t groups, double epsilon = 1e-5)
      : attributes_{epsilon, groups} {}

  std::string Kind() const override { return "group_norm"; }
  InputTypes TakenTypes() const override { return InputTypes::kFloats; }
  void VisitFields(FieldVisitor& visitor) override;
  std::string Describe() const override;
  Shape OutputShape(const Shape& input) const override;
  std::vector<ParameterSpec> Parameters(const Shape& input) const override;
  NDArray Forward(LayerContext& context, const NDArray& input) const override;

 private:
  GroupNormAttributes attributes_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_LAYERS_NORMALIZATION_H_
