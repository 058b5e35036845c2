#include "tidepool/nn/training/taped_step.h"

#include <vector>

#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ops/convolution.h"
#include "tidepool/ndarray/ops/loss.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/pooling.h"
#include "tidepool/ndarray/ops/reduction.h"

namespace tidepool::nn {
namespace {

constexpr Pool2dAttributes kHalves{.kernel_height = 2, .kernel_width = 2, .stride_height = 2, .stride_width = 2};

NDArray DenseOf(const NDArray& x, const NDArray& weight, const NDArray& bias, bool relu) {
  const NDArray flat = x.rank() == 2 ? x : x.Reshape({x.dim(0), x.NumElements() / x.dim(0)});
  return MatMul(flat, weight, {.transpose_y = true, .relu = relu}, &bias);
}

}  // namespace

double GradientsByTape(const Network& network, NDArray& gradients, const NDArray& features, const NDArray& labels) {
  const NetworkParameters views = network.ParametersIn(gradients);
  const std::vector<NamedParameter>& p = network.named_parameters();
  GradientTape tape;
  for (size_t i = 0; i < p.size(); ++i) tape.Watch(p[i].value, views.views[i]);
  NDArray h = features;
  size_t next = 0;
  while (p[next].value.rank() == 4) {
    h = Conv2d(h, p[next].value, &p[next + 1].value, {.relu = true});
    h = MaxPool2d(h, kHalves);
    next += 2;
  }
  for (; next < p.size(); next += 2) h = DenseOf(h, p[next].value, p[next + 1].value, next + 2 < p.size());
  NDArray losses = SoftmaxCrossEntropy(h, labels).loss;
  h = NDArray();
  const NDArray loss = Mean(losses);
  losses = NDArray();
  const double value = loss.Item<float>();
  tape.Backward(loss);
  return value;
}

}  // namespace tidepool::nn
