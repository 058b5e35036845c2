// Softmax, its logarithm, their gradients and losses of f64. Sums are of long doubles: what they round is
// less than what the results do. A NaN anywhere in a line makes the line NaN.
#include <cmath>
#include <cstdint>

#include "tidepool/ndarray/kernel/thread_pool.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/attributes_nn.h"
#include "tidepool/ndarray/kernel/registry.h"

namespace tidepool::cpu {
namespace {

constexpr int64_t kExpWork = 16;  // an exponential in elementary operations
constexpr int64_t kLineGrain = 16;

// body(offset, n, stride) for each line along the axis.
template <typename Body>
void ForEachLine(const KernelCall& call, Body body) {
  const TensorRef& z = call.outputs[0];
  const int axis = call.attrs<SoftmaxAttributes>().axis;
  int64_t outer = 1, inner = 1;
  for (int i = 0; i < axis; ++i) outer *= z.dims[i];
  for (int i = axis + 1; i < z.rank; ++i) inner *= z.dims[i];
  const int64_t n = z.dims[axis];
  ParallelFor(call.threads, outer * inner, kLineGrain, outer * inner * n * kExpWork,
              [&](int64_t begin, int64_t end) {
                for (int64_t line = begin; line < end; ++line) {
                  body(line / inner * n * inner + line % inner, n, inner);
                }
              });
}

double LargestOf(const double* x, int64_t n, int64_t stride) {
  double largest = x[0];
  for (int64_t i = 1; i < n; ++i) largest = x[i * stride] > largest ? x[i * stride] : largest;
  return largest;
}

// Returns the sum of exp(x - largest); z may be x.
long double SoftmaxLine(const double* x, double* z, int64_t n, int64_t stride, double largest) {
  long double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double value = std::exp(x[i * stride] - largest);
    z[i * stride] = value;
    sum += value;
  }
  const auto scale = static_cast<double>(1 / sum);
  for (int64_t i = 0; i < n; ++i) z[i * stride] *= scale;
  return sum;
}

void RunSoftmax(const KernelCall& call) {
  const double* x = call.inputs[0].as<double>();
  double* z = call.outputs[0].as<double>();
  ForEachLine(call, [&](int64_t at, int64_t n, int64_t stride) {
    SoftmaxLine(x + at, z + at, n, stride, LargestOf(x + at, n, stride));
  });
}

void RunLogSoftmax(const KernelCall& call) {
  const double* const xs = call.inputs[0].as<double>();
  double* const zs = call.outputs[0].as<double>();
  ForEachLine(call, [&](int64_t at, int64_t n, int64_t stride) {
    const double* x = xs + at;
    double* z = zs + at;
    const double largest = LargestOf(x, n, stride);
    long double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += std::exp(x[i * stride] - largest);
    const long double log_sum = std::log(sum);
    for (int64_t i = 0; i < n; ++i) {
      z[i * stride] = static_cast<double>(static_cast<long double>(x[i * stride]) - largest - log_sum);
    }
  });
}

// body(z, dz, dx, end, stride) for each line: elements 0, stride, ... below end.
template <typename Body>
void ForEachGradLine(const KernelCall& call, Body body) {
  ForEachLine(call, [&](int64_t at, int64_t n, int64_t stride) {
    body(call.inputs[0].as<double>() + at, call.inputs[1].as<double>() + at,
         call.outputs[0].as<double>() + at, n * stride, stride);
  });
}

void RunSoftmaxGrad(const KernelCall& call) {
  ForEachGradLine(call, [](const double* z, const double* dz, double* dx, int64_t end, int64_t stride) {
    long double sum = 0;
    for (int64_t i = 0; i < end; i += stride) {
      sum += static_cast<long double>(z[i]) * dz[i];
    }
    for (int64_t i = 0; i < end; i += stride) {
      dx[i] = static_cast<double>(z[i] * (dz[i] - sum));
    }
  });
}

void RunLogSoftmaxGrad(const KernelCall& call) {
  ForEachGradLine(call, [](const double* z, const double* dz, double* dx, int64_t end, int64_t stride) {
    long double sum = 0;
    for (int64_t i = 0; i < end; i += stride) sum += dz[i];
    for (int64_t i = 0; i < end; i += stride) {
      dx[i] = static_cast<double>(dz[i] - std::exp(z[i]) * sum);
    }
  });
}

// body(row, elements of a row) for each row: all axes but the first.
template <typename Body>
void ForEachRow(const KernelCall& call, const TensorRef& x, Body body) {
  const int64_t rows = x.dims[0], n = rows == 0 ? 0 : x.NumElements() / rows;
  ParallelFor(call.threads, rows, kLineGrain, rows * n * kExpWork, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) body(row, n);
  });
}

void RunSoftmaxCrossEntropy(const KernelCall& call) {
  const int64_t* labels = call.inputs[1].as<int64_t>();
  ForEachRow(call, call.inputs[0], [&](int64_t row, int64_t n) {
    const double* x = call.inputs[0].as<double>() + row * n;
    const double largest = LargestOf(x, n, 1), labelled = x[labels[row]];
    const long double sum = SoftmaxLine(x, call.outputs[1].as<double>() + row * n, n, 1, largest);
    call.outputs[0].as<double>()[row] =
        static_cast<double>(std::log(sum) - (static_cast<long double>(labelled) - largest));
  });
}

void RunSoftmaxCrossEntropyGrad(const KernelCall& call) {
  const double scale = call.attrs<CrossEntropyGradAttributes>().scale;
  const int64_t* labels = call.inputs[1].as<int64_t>();
  ForEachRow(call, call.outputs[0], [&](int64_t row, int64_t n) {
    const double* p = call.inputs[0].as<double>() + row * n;
    double* gradient = call.outputs[0].as<double>() + row * n;
    const double labelled = scale * (p[labels[row]] - 1);
    for (int64_t i = 0; i < n; ++i) gradient[i] = scale * p[i];
    gradient[labels[row]] = labelled;
  });
}

// A target of zero adds nothing, whatever the logit.
void RunDenseCrossEntropy(const KernelCall& call) {
  ForEachRow(call, call.inputs[0], [&](int64_t row, int64_t n) {
    const double* x = call.inputs[0].as<double>() + row * n;
    const double* target = call.inputs[1].as<double>() + row * n;
    const double largest = LargestOf(x, n, 1);
    const long double log_sum =
        std::log(SoftmaxLine(x, call.outputs[1].as<double>() + row * n, n, 1, largest));
    long double loss = 0;
    for (int64_t i = 0; i < n; ++i) {
      if (target[i] == 0) continue;
      loss += target[i] * (log_sum - (static_cast<long double>(x[i]) - largest));
    }
    call.outputs[0].as<double>()[row] = static_cast<double>(loss);
  });
}

void RunDenseCrossEntropyGrad(const KernelCall& call) {
  const double scale = call.attrs<LossGradAttributes>().scale;
  ForEachRow(call, call.outputs[0], [&](int64_t row, int64_t n) {
    const double* p = call.inputs[0].as<double>() + row * n;
    const double* target = call.inputs[1].as<double>() + row * n;
    double* gradient = call.outputs[0].as<double>() + row * n;
    long double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += target[i];
    for (int64_t i = 0; i < n; ++i) {
      gradient[i] = static_cast<double>(scale * (p[i] * sum - target[i]));
    }
  });
}

// Means of term(x, target) over each row.
template <long double (*kTerm)(double x, double target)>
void RunMeanLoss(const KernelCall& call) {
  ForEachRow(call, call.inputs[0], [&](int64_t row, int64_t n) {
    const double* x = call.inputs[0].as<double>() + row * n;
    const double* target = call.inputs[1].as<double>() + row * n;
    long double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += kTerm(x[i], target[i]);
    call.outputs[0].as<double>()[row] = static_cast<double>(sum / static_cast<long double>(n));
  });
}

template <double (*kSlope)(double x, double target)>
void RunLossGrad(const KernelCall& call) {
  ForEachRow(call, call.outputs[0], [&](int64_t row, int64_t n) {
    const double scale = call.attrs<LossGradAttributes>().scale / static_cast<double>(n);
    const double* x = call.inputs[0].as<double>() + row * n;
    const double* target = call.inputs[1].as<double>() + row * n;
    double* gradient = call.outputs[0].as<double>() + row * n;
    for (int64_t i = 0; i < n; ++i) gradient[i] = scale * kSlope(x[i], target[i]);
  });
}

long double SquaredErrorTerm(double x, double target) {
  const long double d = static_cast<long double>(x) - target;
  return d * d;
}
double SquaredErrorSlope(double x, double target) { return 2 * (x - target); }

// log(1 + exp(x)) - x * target without overflow.
long double BinaryCrossEntropyTerm(double x, double target) {
  const double positive = x < 0 ? 0 : x;  // NaN stays
  return positive - static_cast<long double>(x) * target + std::log1p(std::exp(-std::abs(x)));
}
// By the exponential that does not overflow and leaves no 1 to take away.
double BinaryCrossEntropySlope(double x, double target) {
  const long double e = std::exp(-std::abs(x));
  return static_cast<double>((x < 0 ? e / (1 + e) : 1 / (1 + e)) - target);
}

long double AbsoluteErrorTerm(double x, double target) { return std::abs(static_cast<long double>(x) - target); }

void RunHuberError(const KernelCall& call) {
  const double delta = call.attrs<HuberAttributes>().delta;
  ForEachRow(call, call.inputs[0], [&](int64_t row, int64_t n) {
    const double* x = call.inputs[0].as<double>() + row * n;
    const double* target = call.inputs[1].as<double>() + row * n;
    long double sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      const double d = std::abs(x[i] - target[i]);
      sum += d > delta ? delta * (d - delta / 2) : d * d / 2;
    }
    call.outputs[0].as<double>()[row] = static_cast<double>(sum / static_cast<long double>(n));
  });
}

// By the gradient of each row's loss; slope(x - target).
template <typename Slope>
void GradByRows(const KernelCall& call, Slope slope) {
  ForEachRow(call, call.outputs[0], [&](int64_t row, int64_t n) {
    const double scale = call.inputs[2].as<double>()[row] / static_cast<double>(n);
    const double* x = call.inputs[0].as<double>() + row * n;
    const double* target = call.inputs[1].as<double>() + row * n;
    double* gradient = call.outputs[0].as<double>() + row * n;
    for (int64_t i = 0; i < n; ++i) gradient[i] = scale * slope(x[i] - target[i]);
  });
}

void RunAbsoluteErrorGrad(const KernelCall& call) {
  GradByRows(call, [](double d) { return d > 0 ? 1 : d < 0 ? -1 : d; });  // NaN stays
}

void RunHuberErrorGrad(const KernelCall& call) {
  const double delta = call.attrs<HuberAttributes>().delta;
  GradByRows(call, [=](double d) { return d > delta ? delta : d < -delta ? -delta : d; });
}

constexpr Kernel Cpu(OpCode op, void (*run)(const KernelCall&)) {
  return {op, DeviceType::kHost, DType::kFloat64, "cpu", 10, run};
}

const KernelRegistrar registrar({
    Cpu(OpCode::kSoftmax, &RunSoftmax),
    Cpu(OpCode::kLogSoftmax, &RunLogSoftmax),
    Cpu(OpCode::kSoftmaxGrad, &RunSoftmaxGrad),
    Cpu(OpCode::kLogSoftmaxGrad, &RunLogSoftmaxGrad),
    Cpu(OpCode::kSoftmaxCrossEntropy, &RunSoftmaxCrossEntropy),
    Cpu(OpCode::kSoftmaxCrossEntropyGrad, &RunSoftmaxCrossEntropyGrad),
    Cpu(OpCode::kDenseCrossEntropy, &RunDenseCrossEntropy),
    Cpu(OpCode::kDenseCrossEntropyGrad, &RunDenseCrossEntropyGrad),
    Cpu(OpCode::kSquaredError, &RunMeanLoss<&SquaredErrorTerm>),
    Cpu(OpCode::kSquaredErrorGrad, &RunLossGrad<&SquaredErrorSlope>),
    Cpu(OpCode::kBinaryCrossEntropy, &RunMeanLoss<&BinaryCrossEntropyTerm>),
    Cpu(OpCode::kBinaryCrossEntropyGrad, &RunLossGrad<&BinaryCrossEntropySlope>),
    Cpu(OpCode::kAbsoluteError, &RunMeanLoss<&AbsoluteErrorTerm>),
    Cpu(OpCode::kAbsoluteErrorGrad, &RunAbsoluteErrorGrad),
    Cpu(OpCode::kHuberError, &RunHuberError),
    Cpu(OpCode::kHuberErrorGrad, &RunHuberErrorGrad),
});

}  // namespace
}  // namespace tidepool::cpu
