// Layers of normalisation, with a scale and a shift for each element of the last axis.
#ifndef TIDEPOOL_NN_LAYERS_NORMALIZATION_H_
#define TIDEPOOL_NN_LAYERS_NORMALIZATION_H_

#include <string>
#include <vector>

#include "tidepool/ndarray/kernel/attributes_nn.h"
#include "tidepool/nn/layers/layer.h"

namespace tidepool::nn {

// Over the last axis.
class LayerNormalization final : public Layer {
 public:
  explicit LayerNormalization(double epsilon = 1e-5) : attributes_{epsilon} {}

  std::string Describe() const override;
  std::string Kind() const override { return "layer_norm"; }
  Shape OutputShape(const Shape& input) const override;
  std::vector<ParameterSpec> Parameters(const Shape& input) const override;
  NDArray Forward(const LayerContext& context, const NDArray& input, LayerCache& cache) const override;
  NDArray Backward(const LayerContext& context, NDArray output_gradient, LayerCache& cache,
                   bool needs_input_gradient) const override;

 private:
  NormalizationAttributes attributes_;
};

// Over the last axis, by the root of the mean square; without a shift.
class RmsNormalization final : public Layer {
 public:
  explicit RmsNormalization(double epsilon = 1e-5) : attributes_{epsilon} {}

  std::string Describe() const override;
  std::string Kind() const override { return "rms_norm"; }
  Shape OutputShape(const Shape& input) const override;
  std::vector<ParameterSpec> Parameters(const Shape& input) const override;
  NDArray Forward(const LayerContext& context, const NDArray& input, LayerCache& cache) const override;
  NDArray Backward(const LayerContext& context, NDArray output_gradient, LayerCache& cache,
                   bool needs_input_gradient) const override;

 private:
  NormalizationAttributes attributes_;
};

// Of groups of neighbouring channels (the last axis) of each example.
class GroupNormalization final : public Layer {
 public:
  explicit GroupNormalization(int64_t groups, double epsilon = 1e-5) : attributes_{epsilon, groups} {}

  std::string Describe() const override;
  std::string Kind() const override { return "group_norm"; }
  Shape OutputShape(const Shape& input) const override;
  std::vector<ParameterSpec> Parameters(const Shape& input) const override;
  NDArray Forward(const LayerContext& context, const NDArray& input, LayerCache& cache) const override;
  NDArray Backward(const LayerContext& context, NDArray output_gradient, LayerCache& cache,
                   bool needs_input_gradient) const override;

 private:
  GroupNormAttributes attributes_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_LAYERS_NORMALIZATION_H_
