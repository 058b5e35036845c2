// Softmax and its logarithm over any axis, their gradients, and losses of rows, of f32 and f64.
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

template <typename T>
void RunSoftmax(const KernelCall& call) {
  const T* x = call.inputs[0].as<T>();
  T* z = call.outputs[0].as<T>();
  const LayerLoops<T>& loops = LayerLoopsOf<T>();
  ForEachColumns(
      call,
      [&](int64_t offset, int64_t n, int64_t rows) {
        loops.softmax_rows(x + offset, z + offset, n, rows);
      },
      [&](int64_t offset, int64_t n, int64_t stride, int64_t width) {
        loops.softmax(x + offset, z + offset, n, stride, width);
      });
}

template <typename T>
void RunLogSoftmax(const KernelCall& call) {
  const T* x = call.inputs[0].as<T>();
  T* z = call.outputs[0].as<T>();
  ForEachColumns(call, [&](int64_t offset, int64_t n, int64_t stride, int64_t width) {
    LayerLoopsOf<T>().log_softmax(x + offset, z + offset, n, stride, width);
  });
}

template <typename T>
void RunSoftmaxGrad(const KernelCall& call) {
  const T* z = call.inputs[0].as<T>();
  const T* dz = call.inputs[1].as<T>();
  T* dx = call.outputs[0].as<T>();
  const LayerLoops<T>& loops = LayerLoopsOf<T>();
  ForEachColumns(
      call,
      [&](int64_t offset, int64_t n, int64_t rows) {
        loops.softmax_grad_rows(z + offset, dz + offset, dx + offset, n, rows);
      },
      [&](int64_t offset, int64_t n, int64_t stride, int64_t width) {
        loops.softmax_grad(z + offset, dz + offset, dx + offset, n, stride, width);
      });
}

template <typename T>
void RunLogSoftmaxGrad(const KernelCall& call) {
  const T* z = call.inputs[0].as<T>();
  const T* dz = call.inputs[1].as<T>();
  T* dx = call.outputs[0].as<T>();
  ForEachColumns(call, [&](int64_t offset, int64_t n, int64_t stride, int64_t width) {
    LayerLoopsOf<T>().log_softmax_grad(z + offset, dz + offset, dx + offset, n, stride, width);
  });
}

// Rows of few classes: what vectors gain is less than they cost.
constexpr int64_t kShortRow = 32;

// As LayerLoops::probabilities.
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
double ProbabilitiesOf(const float* x, float* z, int64_t n, float* largest) {
  return n < kShortRow ? ProbabilitiesOfShortRow(x, z, n, largest)
                       : LayerLoopsOf<float>().probabilities(x, z, n, largest);
}
long double ProbabilitiesOf(const double* x, double* z, int64_t n, double* largest) {
  return LayerLoopsOf<double>().probabilities(x, z, n, largest);
}

template <typename T>
void RunSoftmaxCrossEntropy(const KernelCall& call) {
  using Sum = typename Wider<T>::Sum;
  const TensorRef& logits = call.inputs[0];
  const int64_t rows = logits.dims[0], n = logits.dims[1];
  const int64_t* labels = call.inputs[1].as<int64_t>();
  T* loss = call.outputs[0].as<T>();
  T* probabilities = call.outputs[1].as<T>();
  ParallelFor(call.threads, rows, kRowGrain, rows * n * kExpWork, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* x = logits.as<T>() + row * n;
      T largest;
      const Sum log_sum = ProbabilitiesOf(x, probabilities + row * n, n, &largest);
      loss[row] = static_cast<T>(log_sum - (static_cast<Sum>(x[labels[row]]) - largest));
    }
  });
}

template <typename T>
void RunSoftmaxCrossEntropyGrad(const KernelCall& call) {
  const TensorRef& probabilities = call.inputs[0];
  const int64_t rows = probabilities.dims[0], n = probabilities.dims[1];
  const int64_t* labels = call.inputs[1].as<int64_t>();
  const T scale = static_cast<T>(call.attrs<CrossEntropyGradAttributes>().scale);
  T* gradient = call.outputs[0].as<T>();
  const LayerLoops<T>& loops = LayerLoopsOf<T>();
  ParallelFor(call.threads, rows, kRowGrain, rows * n, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      loops.cross_entropy_grad(probabilities.as<T>() + row * n, labels[row], scale,
                               gradient + row * n, n);
    }
  });
}

// body(row, x, target, n) for each row of two operands; all axes but the first are one.
template <typename T, typename Body>
void ForEachRow(const KernelCall& call, Body body) {
  const TensorRef& x = call.inputs[0];
  const T* target = call.inputs[1].as<T>();
  const int64_t rows = x.dims[0], n = rows == 0 ? 0 : x.NumElements() / rows;
  ParallelFor(call.threads, rows, kRowGrain, rows * n * kExpWork, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      body(row, x.as<T>() + row * n, target + row * n, n);
    }
  });
}

template <typename T>
void RunDenseCrossEntropy(const KernelCall& call) {
  ForEachRow<T>(call, [&](int64_t row, const T* x, const T* target, int64_t n) {
    call.outputs[0].as<T>()[row] =
        LayerLoopsOf<T>().dense_cross_entropy(x, target, call.outputs[1].as<T>() + row * n, n);
  });
}

// A loss of each row: loss(x, target, n), divided by n.
template <typename T, typename Loss>
void MeanOfEachRow(const KernelCall& call, Loss loss) {
  ForEachRow<T>(call, [&](int64_t row, const T* x, const T* target, int64_t n) {
    call.outputs[0].as<T>()[row] =
        static_cast<T>(loss(x, target, n) / static_cast<typename Wider<T>::Sum>(n));
  });
}

// body(x, target, scale, gradient, n) for each row; scale(row, n).
template <typename T, typename Scale, typename Body>
void GradOfEachRow(const KernelCall& call, Scale scale, Body body) {
  ForEachRow<T>(call, [&](int64_t row, const T* x, const T* target, int64_t n) {
    body(x, target, static_cast<T>(scale(row, static_cast<double>(n))),
         call.outputs[0].as<T>() + row * n, n);
  });
}
// By the gradient of each row's mean.
template <typename T, typename Body>
void GradOfEachMean(const KernelCall& call, Body body) {
  const T* dloss = call.inputs[2].as<T>();
  GradOfEachRow<T>(
      call, [=](int64_t row, double n) { return static_cast<double>(dloss[row]) / n; }, body);
}

template <typename T, auto kLoop>
void RunMeanLoss(const KernelCall& call) {
  MeanOfEachRow<T>(call, LayerLoopsOf<T>().*kLoop);
}

// scale * factor, divided by the length of the row for losses that are means.
template <typename T, auto kLoop, int kFactor, bool kMean>
void RunLossGrad(const KernelCall& call) {
  const double scale = kFactor * call.attrs<LossGradAttributes>().scale;
  GradOfEachRow<T>(
      call, [=](int64_t, double n) { return kMean ? scale / n : scale; }, LayerLoopsOf<T>().*kLoop);
}

template <typename T>
void RunAbsoluteErrorGrad(const KernelCall& call) {
  GradOfEachMean<T>(call, LayerLoopsOf<T>().absolute_error_grad);
}

template <typename T>
void RunHuberError(const KernelCall& call) {
  const auto delta = static_cast<T>(call.attrs<HuberAttributes>().delta);
  MeanOfEachRow<T>(call, [=](const T* x, const T* target, int64_t n) {
    return LayerLoopsOf<T>().huber_error(x, target, delta, n);
  });
}

template <typename T>
void RunHuberErrorGrad(const KernelCall& call) {
  const auto delta = static_cast<T>(call.attrs<HuberAttributes>().delta);
  GradOfEachMean<T>(call, [=](const T* x, const T* target, T scale, T* gradient, int64_t n) {
    LayerLoopsOf<T>().huber_error_grad(x, target, delta, scale, gradient, n);
  });
}

template <typename T>
constexpr NetworkKernel kKernels[] = {
    {OpCode::kSoftmax, &RunSoftmax<T>},
    {OpCode::kLogSoftmax, &RunLogSoftmax<T>},
    {OpCode::kSoftmaxGrad, &RunSoftmaxGrad<T>},
    {OpCode::kLogSoftmaxGrad, &RunLogSoftmaxGrad<T>},
    {OpCode::kSoftmaxCrossEntropy, &RunSoftmaxCrossEntropy<T>},
    {OpCode::kSoftmaxCrossEntropyGrad, &RunSoftmaxCrossEntropyGrad<T>},
    {OpCode::kDenseCrossEntropy, &RunDenseCrossEntropy<T>},
    {OpCode::kDenseCrossEntropyGrad,
     &RunLossGrad<T, &LayerLoops<T>::dense_cross_entropy_grad, 1, false>},
    {OpCode::kSquaredError, &RunMeanLoss<T, &LayerLoops<T>::squared_error>},
    {OpCode::kSquaredErrorGrad, &RunLossGrad<T, &LayerLoops<T>::squared_error_grad, 2, true>},
    {OpCode::kBinaryCrossEntropy, &RunMeanLoss<T, &LayerLoops<T>::binary_cross_entropy>},
    {OpCode::kBinaryCrossEntropyGrad,
     &RunLossGrad<T, &LayerLoops<T>::binary_cross_entropy_grad, 1, true>},
    {OpCode::kAbsoluteError, &RunMeanLoss<T, &LayerLoops<T>::absolute_error>},
    {OpCode::kAbsoluteErrorGrad, &RunAbsoluteErrorGrad<T>},
    {OpCode::kHuberError, &RunHuberError<T>},
    {OpCode::kHuberErrorGrad, &RunHuberErrorGrad<T>},
};

const NetworkKernels registrar(kKernels<float>, kKernels<double>);

}  // namespace
}  // namespace tidepool::cpu
