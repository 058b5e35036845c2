// Softmax and its cross-entropy.
#include <cmath>
#include <cstdint>

#include "tidepool/backends/cpu/thread_pool.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/registry.h"

namespace tidepool::cpu {
namespace {

// z may be x. Returns log(sum(exp(x - max))), the sum in double: rows may be long, and the loss of a
// sure answer is the logarithm of hardly more than 1.
double SoftmaxRow(const float* x, float* z, int64_t n, float* largest_out) {
  float largest = x[0];
  for (int64_t i = 1; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    z[i] = std::exp(x[i] - largest);
    sum += z[i];
  }
  const float scale = static_cast<float>(1.0 / sum);
  for (int64_t i = 0; i < n; ++i) z[i] *= scale;
  *largest_out = largest;
  return std::log(sum);
}

constexpr int64_t kExpWork = 16;  // an exponential in elementary operations

void RunSoftmax(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  const int64_t n = x.dims[x.rank - 1];
  const int64_t rows = x.NumElements() / n;
  float* z = call.outputs[0].as<float>();
  ParallelFor(call.threads, rows, 64, rows * n * kExpWork, [&](int64_t begin, int64_t end) {
    float largest;
    for (int64_t row = begin; row < end; ++row) {
      SoftmaxRow(x.as<float>() + row * n, z + row * n, n, &largest);
    }
  });
}

void RunSoftmaxCrossEntropy(const KernelCall& call) {
  const TensorRef& logits = call.inputs[0];
  const int64_t rows = logits.dims[0], n = logits.dims[1];
  const int64_t* labels = call.inputs[1].as<int64_t>();
  float* loss = call.outputs[0].as<float>();
  float* probabilities = call.outputs[1].as<float>();
  ParallelFor(call.threads, rows, 64, rows * n * kExpWork, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* x = logits.as<float>() + row * n;
      float largest;
      const double log_sum = SoftmaxRow(x, probabilities + row * n, n, &largest);
      loss[row] = static_cast<float>(log_sum - (static_cast<double>(x[labels[row]]) - largest));
    }
  });
}

void RunSoftmaxCrossEntropyGrad(const KernelCall& call) {
  const TensorRef& probabilities = call.inputs[0];
  const int64_t rows = probabilities.dims[0], n = probabilities.dims[1];
  const int64_t* labels = call.inputs[1].as<int64_t>();
  const float scale = static_cast<float>(call.attrs<CrossEntropyGradAttributes>().scale);
  float* gradient = call.outputs[0].as<float>();
  for (int64_t row = 0; row < rows; ++row) {
    const float* p = probabilities.as<float>() + row * n;
    for (int64_t i = 0; i < n; ++i) {
      gradient[row * n + i] = scale * (p[i] - (i == labels[row] ? 1.0f : 0.0f));
    }
  }
}

constexpr DeviceType kHost = DeviceType::kHost;
constexpr DType kF32 = DType::kFloat32;
constexpr int kPriority = 10;

const KernelRegistrar registrar({
    {OpCode::kSoftmax, kHost, kF32, "cpu", kPriority, &RunSoftmax},
    {OpCode::kSoftmaxCrossEntropy, kHost, kF32, "cpu", kPriority, &RunSoftmaxCrossEntropy},
    {OpCode::kSoftmaxCrossEntropyGrad, kHost, kF32, "cpu", kPriority, &RunSoftmaxCrossEntropyGrad},
});

}  // namespace
}  // namespace tidepool::cpu
