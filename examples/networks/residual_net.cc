#include "tidepool/examples/networks/residual_net.h"

#include <utility>

#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/elementwise_chain.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/normalization.h"
#include "tidepool/ndarray/ops/pooling.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/softmax.h"

namespace tidepool::examples {

ResidualNet::Unit ResidualNet::MakeUnit(int64_t inputs, int64_t outputs, int64_t kernel,
                                        int64_t stride, bool relu) {
  Unit unit{};
  unit.filter = &parameters_.Weights({outputs, kernel, kernel, inputs}, kernel * kernel * inputs);
  unit.scale = &parameters_.Constant({outputs}, 1);
  unit.shift = &parameters_.Constant({outputs}, 0);
  unit.attributes.stride_height = unit.attributes.stride_width = stride;
  unit.attributes.pad_top = unit.attributes.pad_left = kernel / 2;
  unit.attributes.pad_bottom = unit.attributes.pad_right = kernel / 2;
  unit.relu = relu;
  return unit;
}

ResidualNet::ResidualNet(int64_t image_channels, const std::vector<int64_t>& channels,
                         int64_t classes, uint64_t seed, Device device)
    : parameters_(seed, device), stem_(MakeUnit(image_channels, channels[0], 3, 1, true)) {
  int64_t inputs = channels[0];
  for (size_t stage = 0; stage < channels.size(); ++stage) {
    for (int number = 0; number < 2; ++number) {
      const int64_t outputs = channels[stage], stride = stage > 0 && number == 0 ? 2 : 1;
      Block block{MakeUnit(inputs, outputs, 3, stride, true),
                  MakeUnit(outputs, outputs, 3, 1, false),
                  stride != 1 || inputs != outputs,
                  {},
                  {}};
      if (block.projects) block.shortcut = MakeUnit(inputs, outputs, 1, stride, false);
      blocks_.push_back(std::move(block));
      inputs = outputs;
    }
  }
  weights_ = &parameters_.Weights({classes, inputs}, inputs);
  bias_ = &parameters_.Constant({classes}, 0);
}

NDArray ResidualNet::Unit::Forward(const NDArray& x) {
  input = x;
  convolved = Conv2d(x, filter->value, nullptr, attributes);
  Normalized normal = BatchNorm(convolved, scale->value, shift->value);
  mean = std::move(normal.mean);
  inverse_deviation = std::move(normal.inverse_deviation);
  if (!relu) return std::move(normal.output);
  output = std::move(normal.output);
  ReluInto(output, output);
  return output;
}

NDArray ResidualNet::Unit::Backward(NDArray gradient, bool wants_input_gradient) {
  if (relu) {
    ReluGradInto(output, gradient, gradient);
    output = {};
  }
  NormalizationGradients normal =
      BatchNormGrad(convolved, scale->value, mean, inverse_deviation, gradient);
  gradient = {};
  convolved = mean = inverse_deviation = {};
  CopyInto(normal.scale, scale->gradient);
  CopyInto(normal.shift, shift->gradient);
  Conv2dGradFilterInto(input, normal.input, filter->gradient, attributes);
  const Shape shape = input.shape();
  input = {};
  return wants_input_gradient ? Conv2dGradInput(normal.input, filter->value, shape, attributes)
                              : NDArray();
}

double ResidualNet::Step(const NDArray& images, const NDArray& labels, double learning_rate) {
  static const ElementwiseChain join = ElementwiseChain().Add(kChainY).Relu();
  NDArray x = stem_.Forward(images);
  for (Block& block : blocks_) {
    NDArray sum = block.second.Forward(block.first.Forward(x));
    {
      const NDArray around = block.projects ? block.shortcut.Forward(x) : x;
      join.ApplyInto(sum, &around, nullptr, sum);
    }
    block.output = x = std::move(sum);
  }
  const Shape pooled_from = x.shape();
  NDArray rows = GlobalAveragePool2d(x);  // [batch, channels]
  x = {};
  CrossEntropy loss = SoftmaxCrossEntropy(
      MatMul(rows, weights_->value, {.transpose_y = true}, &bias_->value), labels);
  const double mean_loss = Mean(loss.loss).At<float>({});

  NDArray gradient = std::move(loss.probabilities);
  SoftmaxCrossEntropyGradInto(gradient, labels, 1.0 / static_cast<double>(labels.dim(0)), gradient);
  MatMulInto(gradient, rows, weights_->gradient, {.transpose_x = true});
  CopyInto(Sum(gradient, {0}), bias_->gradient);
  gradient = GlobalAveragePool2dGrad(MatMul(gradient, weights_->value), pooled_from);
  rows = {};
  for (size_t i = blocks_.size(); i-- > 0;) {
    Block& block = blocks_[i];
    ReluGradInto(block.output, gradient, gradient);
    block.output = {};
    // Both ways use the gradient; the one that has it to itself may overwrite it.
    NDArray around = block.projects ? block.shortcut.Backward(gradient, true) : gradient;
    NDArray through = block.second.Backward(std::move(gradient), true);
    through = block.first.Backward(std::move(through), true);
    AddInto(through, around, through);
    gradient = std::move(through);
  }
  stem_.Backward(std::move(gradient), false);
  parameters_.Update(learning_rate);
  return mean_loss;
}

}  // namespace tidepool::examples
