#include "tidepool/examples/networks/lstm_classifier.h"

#include <utility>
#include <vector>

#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/softmax.h"

namespace tidepool::examples {

LstmClassifier::LstmClassifier(int64_t inputs, int64_t units, int64_t classes, uint64_t seed,
                               Device device)
    : parameters_(seed, device), units_(units) {
  for (Layer& layer : layers_) {
    const Parameter& input = parameters_.Weights({4 * units, inputs}, 2 * inputs);
    const Parameter& recurrent = parameters_.Weights({4 * units, units}, 2 * units);
    const Parameter& bias = parameters_.Constant({4 * units}, 0);
    layer = {{input.value, recurrent.value, bias.value},
             {input.gradient, recurrent.gradient, bias.gradient}};
    inputs = units;
  }
  weights_ = &parameters_.Weights({classes, units}, units);
  bias_ = &parameters_.Constant({classes}, 0);
}

double LstmClassifier::Step(const NDArray& sequences, const NDArray& labels, double learning_rate) {
  const int64_t steps = sequences.dim(0), batch = sequences.dim(1);
  const NDArray start =
      Zeros({batch, units_}, DType::kFloat32, Place::CurrentOn(sequences.device()));
  const auto at = [&](int64_t t) {
    return sequences.Slice(0, t, t + 1).Reshape({batch, sequences.dim(2)});
  };
  std::vector<LstmStepResult> made[kLayers];
  const auto output = [&](int layer, int64_t t) { return t < 0 ? start : made[layer][t].output; };
  const auto cell = [&](int layer, int64_t t) { return t < 0 ? start : made[layer][t].cell; };
  for (int64_t t = 0; t < steps; ++t) {
    for (int l = 0; l < kLayers; ++l) {
      made[l].push_back(LstmStep(l == 0 ? at(t) : output(l - 1, t), output(l, t - 1),
                                 cell(l, t - 1), layers_[l].weights));
    }
  }
  const NDArray last = output(kLayers - 1, steps - 1);
  CrossEntropy loss = SoftmaxCrossEntropy(
      MatMul(last, weights_->value, {.transpose_y = true}, &bias_->value), labels);
  const double mean_loss = Mean(loss.loss).At<float>({});

  parameters_.ZeroGradients();
  NDArray gradient = std::move(loss.probabilities);
  SoftmaxCrossEntropyGradInto(gradient, labels, 1.0 / static_cast<double>(batch), gradient);
  MatMulInto(gradient, last, weights_->gradient, {.transpose_x = true});
  CopyInto(Sum(gradient, {0}), bias_->gradient);
  // Of each layer's results at the step under way, by way of the step that follows.
  NDArray output_gradient[kLayers], cell_gradient[kLayers];
  output_gradient[kLayers - 1] = MatMul(gradient, weights_->value);
  gradient = {};
  for (int64_t t = steps - 1; t >= 0; --t) {
    NDArray from_above;
    for (int l = kLayers - 1; l >= 0; --l) {
      NDArray of_output = std::move(output_gradient[l]);
      if (from_above.is_defined()) {
        if (of_output.is_defined()) {
          AddInto(of_output, from_above, of_output);
        } else {
          of_output = std::move(from_above);
        }
      }
      const NDArray of_cell = std::move(cell_gradient[l]);
      LstmStepGradients step = LstmStepGrad(
          l == 0 ? at(t) : output(l - 1, t), output(l, t - 1), cell(l, t - 1), layers_[l].weights,
          made[l][t], of_output, of_cell.is_defined() ? &of_cell : nullptr, layers_[l].gradients);
      made[l][t].activations = made[l][t].cell = {};
      if (l == kLayers - 1) made[l][t].output = {};
      output_gradient[l] = std::move(step.output);
      cell_gradient[l] = std::move(step.cell);
      from_above = std::move(step.input);
    }
    for (int l = 0; l < kLayers - 1; ++l) made[l][t].output = {};
  }
  parameters_.Update(learning_rate);
  return mean_loss;
}

}  // namespace tidepool::examples
