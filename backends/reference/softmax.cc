// Softmax and its logarithm over any axis, their gradients, and the cross-entropies of it, in the
// wide type. A NaN anywhere in a line makes the line NaN.
#include <cmath>

#include "tidepool/backends/reference/float_kernels.h"
#include "tidepool/backends/reference/strided_access.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/attributes_nn.h"

namespace tidepool {
namespace {

template <typename T>
Wide<T> LargestOf(const Line<T>& x, int64_t count) {
  Wide<T> largest = x.wide(0);
  for (int64_t i = 1; i < count; ++i) {
    const Wide<T> value = x.wide(i);
    if (value > largest || value != value) largest = value;
  }
  return largest;
}

template <typename T>
Wide<T> SumOfExponentials(const Line<T>& x, int64_t count, Wide<T> largest) {
  Wide<T> sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += std::exp(x.wide(i) - largest);
  return sum;
}

// Returns the sum of exp(x - largest). z may be x.
template <typename T>
Wide<T> SoftmaxLine(const Line<T>& x, const Line<T>& z, int64_t count, Wide<T> largest) {
  const Wide<T> sum = SumOfExponentials(x, count, largest);
  for (int64_t i = 0; i < count; ++i) z.Set(i, std::exp(x.wide(i) - largest) / sum);
  return sum;
}

template <typename T>
void Softmax(const KernelCall& call) {
  const int axis = call.attrs<SoftmaxAttributes>().axis;
  const int64_t count = call.inputs[0].dims[axis];
  ForEachLine<T, 2>(
      {&call.inputs[0], &call.outputs[0]}, axis,
      [&](const Line<T>& x, const Line<T>& z) { SoftmaxLine(x, z, count, LargestOf(x, count)); });
}

template <typename T>
void LogSoftmax(const KernelCall& call) {
  const int axis = call.attrs<SoftmaxAttributes>().axis;
  const int64_t count = call.inputs[0].dims[axis];
  ForEachLine<T, 2>({&call.inputs[0], &call.outputs[0]}, axis,
                    [&](const Line<T>& x, const Line<T>& z) {
                      const Wide<T> largest = LargestOf(x, count);
                      const Wide<T> log_sum = std::log(SumOfExponentials(x, count, largest));
                      for (int64_t i = 0; i < count; ++i) {
                        z.Set(i, x.wide(i) - largest - log_sum);
                      }
                    });
}

template <typename T>
void SoftmaxGrad(const KernelCall& call) {
  const int axis = call.attrs<SoftmaxAttributes>().axis;
  const int64_t count = call.inputs[0].dims[axis];
  ForEachLine<T, 3>({&call.inputs[0], &call.inputs[1], &call.outputs[0]}, axis,
                    [&](const Line<T>& z, const Line<T>& dz, const Line<T>& dx) {
                      Wide<T> sum = 0;
                      for (int64_t i = 0; i < count; ++i) sum += z.wide(i) * dz.wide(i);
                      for (int64_t i = 0; i < count; ++i) {
                        dx.Set(i, z.wide(i) * (dz.wide(i) - sum));
                      }
                    });
}

template <typename T>
void LogSoftmaxGrad(const KernelCall& call) {
  const int axis = call.attrs<SoftmaxAttributes>().axis;
  const int64_t count = call.inputs[0].dims[axis];
  ForEachLine<T, 3>({&call.inputs[0], &call.inputs[1], &call.outputs[0]}, axis,
                    [&](const Line<T>& z, const Line<T>& dz, const Line<T>& dx) {
                      Wide<T> sum = 0;
                      for (int64_t i = 0; i < count; ++i) sum += dz.wide(i);
                      for (int64_t i = 0; i < count; ++i) {
                        dx.Set(i, dz.wide(i) - std::exp(z.wide(i)) * sum);
                      }
                    });
}

template <typename T>
Line<T> Row(const TensorRef& ref, int64_t row) {
  return Line<T>(ref.as<T>() + row * ref.strides[0], ref.strides[1]);
}

template <typename T>
void SoftmaxCrossEntropy(const KernelCall& call) {
  const TensorRef& logits = call.inputs[0];
  const TensorRef& labels = call.inputs[1];
  for (int64_t i = 0; i < logits.dims[0]; ++i) {
    const Line<T> x = Row<T>(logits, i);
    const Wide<T> largest = LargestOf(x, logits.dims[1]);
    const Wide<T> labelled = x.wide(At<int64_t>(labels, i));
    const Wide<T> sum = SoftmaxLine(x, Row<T>(call.outputs[1], i), logits.dims[1], largest);
    At<T>(call.outputs[0], i) = Narrow<T>(std::log(sum) - (labelled - largest));
  }
}

template <typename T>
void SoftmaxCrossEntropyGrad(const KernelCall& call) {
  const Wide<T> scale = call.attrs<CrossEntropyGradAttributes>().scale;
  const TensorRef& gradient = call.outputs[0];
  for (int64_t i = 0; i < gradient.dims[0]; ++i) {
    const int64_t label = At<int64_t>(call.inputs[1], i);
    const Line<T> p = Row<T>(call.inputs[0], i), g = Row<T>(gradient, i);
    for (int64_t k = 0; k < gradient.dims[1]; ++k) {
      g.Set(k, scale * (k == label ? p.wide(k) - 1 : p.wide(k)));
    }
  }
}

// A target of zero adds nothing, whatever the logit.
template <typename T>
void DenseCrossEntropy(const KernelCall& call) {
  const TensorRef& logits = call.inputs[0];
  const int64_t count = logits.dims[1];
  for (int64_t i = 0; i < logits.dims[0]; ++i) {
    const Line<T> x = Row<T>(logits, i), target = Row<T>(call.inputs[1], i);
    const Wide<T> largest = LargestOf(x, count);
    const Wide<T> log_sum = std::log(SoftmaxLine(x, Row<T>(call.outputs[1], i), count, largest));
    Wide<T> loss = 0;
    for (int64_t k = 0; k < count; ++k) {
      if (target.wide(k) != 0) loss += target.wide(k) * (log_sum - (x.wide(k) - largest));
    }
    At<T>(call.outputs[0], i) = Narrow<T>(loss);
  }
}

template <typename T>
void DenseCrossEntropyGrad(const KernelCall& call) {
  const Wide<T> scale = call.attrs<LossGradAttributes>().scale;
  const TensorRef& gradient = call.outputs[0];
  for (int64_t i = 0; i < gradient.dims[0]; ++i) {
    const Line<T> p = Row<T>(call.inputs[0], i), target = Row<T>(call.inputs[1], i);
    Wide<T> sum = 0;
    for (int64_t k = 0; k < gradient.dims[1]; ++k) sum += target.wide(k);
    for (int64_t k = 0; k < gradient.dims[1]; ++k) {
      Row<T>(gradient, i).Set(k, scale * (p.wide(k) * sum - target.wide(k)));
    }
  }
}

const KernelRegistrar registrar({
    TIDEPOOL_FLOAT_KERNELS(OpCode::kSoftmax, Softmax),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kLogSoftmax, LogSoftmax),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kSoftmaxGrad, SoftmaxGrad),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kLogSoftmaxGrad, LogSoftmaxGrad),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kSoftmaxCrossEntropy, SoftmaxCrossEntropy),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kSoftmaxCrossEntropyGrad, SoftmaxCrossEntropyGrad),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kDenseCrossEntropy, DenseCrossEntropy),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kDenseCrossEntropyGrad, DenseCrossEntropyGrad),
});

}  // namespace
}  // namespace tidepool
