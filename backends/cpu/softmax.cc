// Softmax and its logarithm over any axis, their gradients, and losses of rows.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "tidepool/backends/cpu/network_kernels.h"
#include "tidepool/backends/cpu/nn_loops.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/attributes_nn.h"
#include "tidepool/ndarray/kernel/thread_pool.h"

namespace tidepool::cpu {
namespace {

constexpr int64_t kExpWork = 16;  // an exponential in elementary operations
// Rows, or strips of columns, of one task.
constexpr int64_t kRowGrain = 64;
constexpr int64_t kColumnGrain = 256;

// rows(offset, n, number of rows) where the axis is the last, else
// body(offset, n, stride, width): n elements `stride` apart in each of `width` columns.
template <typename Rows, typename Body>
void ForEachColumns(const KernelCall& call, Rows rows, Body body) {
  const TensorRef& z = call.outputs[0];
  const int axis = call.attrs<SoftmaxAttributes>().axis;
  int64_t outer = 1, inner = 1;
  for (int i = 0; i < axis; ++i) outer *= z.dims[i];
  for (int i = axis + 1; i < z.rank; ++i) inner *= z.dims[i];
  const int64_t n = z.dims[axis];
  if (inner == 1) {
    ParallelFor(call.threads, outer, kRowGrain, outer * n * kExpWork,
                [&](int64_t begin, int64_t end) { rows(begin * n, n, end - begin); });
    return;
  }
  const int64_t pieces = (inner + kColumnGrain - 1) / kColumnGrain;
  ParallelFor(call.threads, outer * pieces, 1, outer * n * inner * kExpWork,
              [&](int64_t begin, int64_t end) {
                for (int64_t task = begin; task < end; ++task) {
                  const int64_t column = task % pieces * kColumnGrain;
                  const int64_t width = std::min(kColumnGrain, inner - column);
                  body(task / pieces * n * inner + column, n, inner, width);
                }
              });
}

template <typename Body>
void ForEachColumns(const KernelCall& call, Body body) {
  ForEachColumns(
      call,
      [&](int64_t offset, int64_t n, int64_t rows) {
        for (int64_t row = 0; row < rows; ++row) body(offset + row * n, n, 1, 1);
      },
      body);
}

void RunSoftmax(const KernelCall& call) {
  const float* x = call.inputs[0].as<float>();
  float* z = call.outputs[0].as<float>();
  const NnLoops& loops = NetworkLoops();
  ForEachColumns(
      call,
      [&](int64_t offset, int64_t n, int64_t rows) {
        loops.softmax_rows(x + offset, z + offset, n, rows);
      },
      [&](int64_t offset, int64_t n, int64_t stride, int64_t width) {
        loops.softmax(x + offset, z + offset, n, stride, width);
      });
}

void RunLogSoftmax(const KernelCall& call) {
  const float* x = call.inputs[0].as<float>();
  float* z = call.outputs[0].as<float>();
  ForEachColumns(call, [&](int64_t offset, int64_t n, int64_t stride, int64_t width) {
    NetworkLoops().log_softmax(x + offset, z + offset, n, stride, width);
  });
}

void RunSoftmaxGrad(const KernelCall& call) {
  const float* z = call.inputs[0].as<float>();
  const float* dz = call.inputs[1].as<float>();
  float* dx = call.outputs[0].as<float>();
  const NnLoops& loops = NetworkLoops();
  ForEachColumns(
      call,
      [&](int64_t offset, int64_t n, int64_t rows) {
        loops.softmax_grad_rows(z + offset, dz + offset, dx + offset, n, rows);
      },
      [&](int64_t offset, int64_t n, int64_t stride, int64_t width) {
        loops.softmax_grad(z + offset, dz + offset, dx + offset, n, stride, width);
      });
}

void RunLogSoftmaxGrad(const KernelCall& call) {
  const float* z = call.inputs[0].as<float>();
  const float* dz = call.inputs[1].as<float>();
  float* dx = call.outputs[0].as<float>();
  ForEachColumns(call, [&](int64_t offset, int64_t n, int64_t stride, int64_t width) {
    NetworkLoops().log_softmax_grad(z + offset, dz + offset, dx + offset, n, stride, width);
  });
}

// Rows of few classes: what vectors gain is less than they cost.
constexpr int64_t kShortRow = 32;

// As NnLoops::probabilities.
double ProbabilitiesOfShortRow(const float* x, float* z, int64_t n, float* largest_out) {
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

void RunSoftmaxCrossEntropy(const KernelCall& call) {
  const TensorRef& logits = call.inputs[0];
  const int64_t rows = logits.dims[0], n = logits.dims[1];
  const int64_t* labels = call.inputs[1].as<int64_t>();
  float* loss = call.outputs[0].as<float>();
  float* probabilities = call.outputs[1].as<float>();
  const NnLoops& loops = NetworkLoops();
  ParallelFor(call.threads, rows, kRowGrain, rows * n * kExpWork, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* x = logits.as<float>() + row * n;
      float largest;
      float* const z = probabilities + row * n;
      const double log_sum = n < kShortRow ? ProbabilitiesOfShortRow(x, z, n, &largest)
                                           : loops.probabilities(x, z, n, &largest);
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
  const NnLoops& loops = NetworkLoops();
  ParallelFor(call.threads, rows, kRowGrain, rows * n, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      loops.cross_entropy_grad(probabilities.as<float>() + row * n, labels[row], scale,
                               gradient + row * n, n);
    }
  });
}

// body(row, x, target, n) for each row of two operands; all axes but the first are one.
template <typename Body>
void ForEachRow(const KernelCall& call, Body body) {
  const TensorRef& x = call.inputs[0];
  const float* target = call.inputs[1].as<float>();
  const int64_t rows = x.dims[0], n = rows == 0 ? 0 : x.NumElements() / rows;
  ParallelFor(call.threads, rows, kRowGrain, rows * n * kExpWork, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      body(row, x.as<float>() + row * n, target + row * n, n);
    }
  });
}

void RunDenseCrossEntropy(const KernelCall& call) {
  ForEachRow(call, [&](int64_t row, const float* x, const float* target, int64_t n) {
    call.outputs[0].as<float>()[row] = NetworkLoops().dense_cross_entropy(
        x, target, call.outputs[1].as<float>() + row * n, n);
  });
}

template <auto kLoop>
void RunMeanLoss(const KernelCall& call) {
  ForEachRow(call, [&](int64_t row, const float* x, const float* target, int64_t n) {
    call.outputs[0].as<float>()[row] = static_cast<float>(
        (NetworkLoops().*kLoop)(x, target, n) / static_cast<double>(n));
  });
}

// scale * factor, divided by the length of the row for losses that are means.
template <auto kLoop, int kFactor, bool kMean>
void RunLossGrad(const KernelCall& call) {
  const double scale = kFactor * call.attrs<LossGradAttributes>().scale;
  float* gradient = call.outputs[0].as<float>();
  ForEachRow(call, [&](int64_t row, const float* x, const float* target, int64_t n) {
    const double of_element = kMean ? scale / static_cast<double>(n) : scale;
    (NetworkLoops().*kLoop)(x, target, static_cast<float>(of_element), gradient + row * n, n);
  });
}

void RunHuberError(const KernelCall& call) {
  const auto delta = static_cast<float>(call.attrs<HuberAttributes>().delta);
  ForEachRow(call, [&](int64_t row, const float* x, const float* target, int64_t n) {
    call.outputs[0].as<float>()[row] =
        static_cast<float>(NetworkLoops().huber_error(x, target, delta, n) / static_cast<double>(n));
  });
}

// body(x, target, scale, gradient, n), by the gradient of each row's loss.
template <typename Body>
void ForEachRowOfGrad(const KernelCall& call, Body body) {
  const float* dloss = call.inputs[2].as<float>();
  ForEachRow(call, [&](int64_t row, const float* x, const float* target, int64_t n) {
    const auto scale = static_cast<float>(static_cast<double>(dloss[row]) / static_cast<double>(n));
    body(x, target, scale, call.outputs[0].as<float>() + row * n, n);
  });
}

void RunAbsoluteErrorGrad(const KernelCall& call) { ForEachRowOfGrad(call, NetworkLoops().absolute_error_grad); }

void RunHuberErrorGrad(const KernelCall& call) {
  const auto delta = static_cast<float>(call.attrs<HuberAttributes>().delta);
  ForEachRowOfGrad(call, [=](const float* x, const float* target, float scale, float* gradient, int64_t n) {
    NetworkLoops().huber_error_grad(x, target, delta, scale, gradient, n);
  });
}

const NetworkKernels registrar({
    {OpCode::kSoftmax, &RunSoftmax},
    {OpCode::kLogSoftmax, &RunLogSoftmax},
    {OpCode::kSoftmaxGrad, &RunSoftmaxGrad},
    {OpCode::kLogSoftmaxGrad, &RunLogSoftmaxGrad},
    {OpCode::kSoftmaxCrossEntropy, &RunSoftmaxCrossEntropy},
    {OpCode::kSoftmaxCrossEntropyGrad, &RunSoftmaxCrossEntropyGrad},
    {OpCode::kDenseCrossEntropy, &RunDenseCrossEntropy},
    {OpCode::kDenseCrossEntropyGrad, &RunLossGrad<&NnLoops::dense_cross_entropy_grad, 1, false>},
    {OpCode::kSquaredError, &RunMeanLoss<&NnLoops::squared_error>},
    {OpCode::kSquaredErrorGrad, &RunLossGrad<&NnLoops::squared_error_grad, 2, true>},
    {OpCode::kBinaryCrossEntropy, &RunMeanLoss<&NnLoops::binary_cross_entropy>},
    {OpCode::kBinaryCrossEntropyGrad, &RunLossGrad<&NnLoops::binary_cross_entropy_grad, 1, true>},
    {OpCode::kAbsoluteError, &RunMeanLoss<&NnLoops::absolute_error>},
    {OpCode::kAbsoluteErrorGrad, &RunAbsoluteErrorGrad},
    {OpCode::kHuberError, &RunHuberError},
    {OpCode::kHuberErrorGrad, &RunHuberErrorGrad},
});

}  // namespace
}  // namespace tidepool::cpu
