// Softmax and cross-entropy in double. A NaN anywhere in a row makes the row NaN.
#include <cmath>

#include "tidepool/backends/reference/strided_access.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/strided_loop.h"

namespace tidepool {
namespace {

double LargestOf(const float* x, int64_t count, int64_t stride) {
  float largest = x[0];
  for (int64_t i = 1; i < count; ++i) {
    const float value = x[i * stride];
    if (value > largest || value != value) largest = value;
  }
  return largest;
}

// Returns the sum of exp(x - largest).
double SoftmaxRow(const float* x, int64_t x_stride, float* z, int64_t z_stride, int64_t count,
                  double largest) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += std::exp(x[i * x_stride] - largest);
  for (int64_t i = 0; i < count; ++i) {
    z[i * z_stride] = static_cast<float>(std::exp(x[i * x_stride] - largest) / sum);
  }
  return sum;
}

void Softmax(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  const TensorRef& z = call.outputs[0];
  const int last = x.rank - 1;
  int64_t strides[2][kMaxRank];
  BroadcastStrides(x.rank, x.dims, x.strides, last + 1, strides[0]);
  BroadcastStrides(z.rank, z.dims, z.strides, last + 1, strides[1]);
  const int64_t count = x.dims[last];
  ForEachRun<2>(last, x.dims, strides,
                [&](const int64_t* offset, int64_t rows, const int64_t* stride) {
                  for (int64_t row = 0; row < rows; ++row) {
                    const float* in = x.as<float>() + offset[0] + row * stride[0];
                    float* out = z.as<float>() + offset[1] + row * stride[1];
                    SoftmaxRow(in, x.strides[last], out, z.strides[last], count,
                               LargestOf(in, count, x.strides[last]));
                  }
                });
}

void SoftmaxCrossEntropy(const KernelCall& call) {
  const TensorRef& logits = call.inputs[0];
  const TensorRef& labels = call.inputs[1];
  const TensorRef& loss = call.outputs[0];
  const TensorRef& probabilities = call.outputs[1];
  for (int64_t i = 0; i < logits.dims[0]; ++i) {
    const float* in = &At<float>(logits, i, 0);
    const double largest = LargestOf(in, logits.dims[1], logits.strides[1]);
    const double labelled = At<float>(logits, i, At<int64_t>(labels, i));
    const double sum = SoftmaxRow(in, logits.strides[1], &At<float>(probabilities, i, 0),
                                  probabilities.strides[1], logits.dims[1], largest);
    At<float>(loss, i) = static_cast<float>(std::log(sum) - (labelled - largest));
  }
}

void SoftmaxCrossEntropyGrad(const KernelCall& call) {
  const double scale = call.attrs<CrossEntropyGradAttributes>().scale;
  const TensorRef& probabilities = call.inputs[0];
  const TensorRef& labels = call.inputs[1];
  const TensorRef& gradient = call.outputs[0];
  for (int64_t i = 0; i < gradient.dims[0]; ++i) {
    const int64_t label = At<int64_t>(labels, i);
    for (int64_t k = 0; k < gradient.dims[1]; ++k) {
      const double p = At<float>(probabilities, i, k);
      At<float>(gradient, i, k) = static_cast<float>(scale * (k == label ? p - 1 : p));
    }
  }
}

constexpr Kernel Strided(OpCode op, void (*run)(const KernelCall&)) {
  return {op, DeviceType::kHost, DType::kFloat32, "reference", 0, run, nullptr, nullptr, true};
}

const KernelRegistrar registrar({
    Strided(OpCode::kSoftmax, &Softmax),
    Strided(OpCode::kSoftmaxCrossEntropy, &SoftmaxCrossEntropy),
    Strided(OpCode::kSoftmaxCrossEntropyGrad, &SoftmaxCrossEntropyGrad),
});

}  // namespace
}  // namespace tidepool
