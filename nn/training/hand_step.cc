#include "tidepool/nn/training/hand_step.h"

#include <utility>
#include <vector>

#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/convolution.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/loss.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/pooling.h"
#include "tidepool/ndarray/ops/reduction.h"

namespace tidepool::nn {
namespace {

// The ReLU's gradient of the convolution in front is applied in the pass of the pooling's.
constexpr Pool2dAttributes kHalves{.kernel_height = 2,
                                   .kernel_width = 2,
                                   .stride_height = 2,
                                   .stride_width = 2,
                                   .relu_grad = true};

NDArray Flat(const NDArray& x) {
  return x.rank() == 2 ? x : x.Reshape({x.dim(0), x.NumElements() / x.dim(0)});
}

// A network's arrays, and where the gradients of each are written.
struct Parameters {
  std::vector<NDArray> values, into;

  Parameters(const Network& network, const NDArray& gradients) {
    int64_t offset = 0;
    for (const NamedParameter& parameter : network.named_parameters()) {
      const int64_t count = parameter.value.NumElements();
      values.push_back(parameter.value);
      into.push_back(gradients.Slice(0, offset, offset + count).Reshape(parameter.value.shape()));
      offset += (count + 15) / 16 * 16;
    }
  }
  size_t layers() const { return values.size() / 2; }
  const NDArray& weight(size_t layer) const { return values[2 * layer]; }
  const NDArray& bias(size_t layer) const { return values[2 * layer + 1]; }
  bool IsConvolution(size_t layer) const { return weight(layer).rank() == 4; }
};

// What a layer keeps for its gradients.
struct Kept {
  NDArray input, output;
};

}  // namespace

double GradientsByHand(const Network& network, NDArray& gradients, const NDArray& features,
                       const NDArray& labels) {
  CheckSoftmaxLabels(labels, network.output_shapes()[0].NumElements());
  double loss = 0;
  QueueGradientsByHand(network, gradients, features, labels,
                       [&](const NDArray& losses) { loss = Network::MeanLoss(losses); });
  return loss;
}

void QueueGradientsByHand(const Network& network, NDArray& gradients, const NDArray& features,
                          const NDArray& labels, absl::FunctionRef<void(const NDArray&)> use_losses,
                          const NDArray* share) {
  Parameters parameters(network, gradients);
  std::vector<Kept> kept(parameters.layers()), pooled(parameters.layers());

  NDArray gradient;
  {
    NDArray h = features;
    for (size_t layer = 0; layer < kept.size(); ++layer) {
      kept[layer].input = h;
      const NDArray &weight = parameters.weight(layer), &bias = parameters.bias(layer);
      if (parameters.IsConvolution(layer)) {
        h = Conv2d(h, weight, &bias, {.relu = true});
        pooled[layer].input = h;
        h = MaxPool2d(h, kHalves);
        pooled[layer].output = h;
      } else {
        const bool relu = layer + 1 < kept.size();
        h = MatMul(Flat(h), weight, {.transpose_y = true, .relu = relu}, &bias);
        if (relu) kept[layer].output = h;
      }
    }
    CrossEntropy result = SoftmaxCrossEntropy(h, labels, Labels::kChecked);
    use_losses(result.loss);
    const double batch = static_cast<double>(result.loss.NumElements());
    gradient = std::move(result.probabilities);
    SoftmaxCrossEntropyGradInto(gradient, labels, share != nullptr ? 1 : 1.0 / batch, gradient,
                                Labels::kChecked);
    if (share != nullptr) gradient *= *share;
  }
  for (size_t layer = kept.size(); layer-- > 0;) {
    const bool is_convolution = parameters.IsConvolution(layer);
    NDArray& of_weight = parameters.into[2 * layer];
    const NDArray& weight = parameters.weight(layer);
    if (is_convolution) {
      gradient = MaxPool2dGrad(pooled[layer].input, pooled[layer].output, gradient, kHalves);
      pooled[layer] = Kept();
      Conv2dGradFilterInto(kept[layer].input, gradient, of_weight, {});
    } else {
      if (kept[layer].output.is_defined()) ReluGradInto(kept[layer].output, gradient, gradient);
      MatMulInto(gradient, Flat(kept[layer].input), of_weight, {.transpose_x = true});
    }
    const Shape input_shape = kept[layer].input.shape();
    kept[layer] = Kept();
    // Of convolutions example by example first, as tapes do.
    SumToLastAxisInto(is_convolution ? Sum(gradient, Axes({1, 2})) : gradient,
                      parameters.into[2 * layer + 1]);
    if (layer == 0) break;
    gradient = is_convolution ? Conv2dGradInput(gradient, weight, input_shape, {})
                              : MatMul(gradient, weight).Reshape(input_shape);
  }
}

double GradientsByTape(GradientTape& tape, const Network& network, NDArray& gradients,
                       const NDArray& features, const NDArray& labels) {
  CheckSoftmaxLabels(labels, network.output_shapes()[0].NumElements());
  const Parameters parameters(network, gradients);
  tape.Restart();
  for (size_t i = 0; i < parameters.values.size(); ++i)
    tape.Watch(parameters.values[i], parameters.into[i]);
  NDArray losses;
  {
    NDArray h = features;
    for (size_t layer = 0; layer < parameters.layers(); ++layer) {
      const NDArray &weight = parameters.weight(layer), &bias = parameters.bias(layer);
      if (parameters.IsConvolution(layer)) {
        h = Conv2d(h, weight, &bias, {.relu = true});
        h = MaxPool2d(
            h, {.kernel_height = 2, .kernel_width = 2, .stride_height = 2, .stride_width = 2});
      } else {
        const bool relu = layer + 1 < parameters.layers();
        h = MatMul(Flat(h), weight, {.transpose_y = true, .relu = relu}, &bias);
      }
    }
    losses = SoftmaxCrossEntropy(h, labels, Labels::kChecked).loss;
  }
  const double loss = Network::MeanLoss(losses);
  const double batch = static_cast<double>(losses.NumElements());
  NDArray share = Full({}, 1 / batch, losses.dtype(), Place::CurrentOn(losses.device()))
                      .BroadcastTo(losses.shape());
  tape.BackwardFrom(std::move(losses), std::move(share));
  tape.Clear();
  return loss;
}

}  // namespace tidepool::nn
