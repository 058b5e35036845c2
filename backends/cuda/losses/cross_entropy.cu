// Cross-entropy of softmax, by label or by target distribution, with gradients. Rows of dense
// [rows, classes]; a gradient may lie over the probabilities.
#include "tidepool/backends/cuda/common/cuda_kernel.h"
#include "tidepool/backends/cuda/common/element.h"
#include "tidepool/backends/cuda/common/lines.h"
#include "tidepool/backends/cuda/common/moments.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/attributes_nn.h"

namespace tidepool::cuda {
namespace {

// `labels` is null with `targets`, of which a zero adds nothing, whatever the logit.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    CrossEntropyKernel(Lines lines, const T* logits, const int64_t* labels, const T* targets,
                       T* loss, T* probabilities) {
  using W = Compute<T>;
  using Sum = ExponentialSum<W>;
  __shared__ Sum shared[kBlockThreads];
  __shared__ double shared_loss[kBlockThreads];
  for (LineWalk w(lines); w.More(); w.Next()) {
    Sum sum = EmptyExponentialSum<W>();
    w.Each([&](int64_t offset, int64_t) { AddExponential(Wide(logits[offset]), &sum); });
    sum = MergeLanes(w.at, sum, shared,
                     [](const Sum& a, const Sum& b) { return MergeExponentials(a, b); });
    const W largest = IsFinite(sum.largest) ? sum.largest : NaN<W>();
    const double log_sum = IsFinite(sum.largest) ? log(sum.sum) : NaN<double>();
    const W inverse = static_cast<W>(1 / sum.sum);
    double part = 0;
    w.Each([&](int64_t offset, int64_t i) {
      const W below = Wide(logits[offset]) - largest;
      const W target = labels != nullptr ? static_cast<W>(labels[w.line] == i ? 1 : 0)
                                         : Wide(targets[offset]);
      if (target != 0) {
        part += static_cast<double>(target) * (log_sum - static_cast<double>(below));
      }
      if (w.real) probabilities[offset] = Narrow<T>(Exp(below) * inverse);
    });
    part = MergeLanes(w.at, part, shared_loss, AddValues());
    if (w.real && w.at.lane == 0) loss[w.line] = Narrow<T>(part);
  }
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    LabelGradKernel(int64_t count, int64_t classes, const T* probabilities, const int64_t* labels,
                    T* gradient, Compute<T> scale) {
  for (int64_t i = GlobalThread(); i < count; i += GlobalThreads()) {
    const int64_t row = Quotient(i, classes);
    const Compute<T> p = Wide(probabilities[i]);
    gradient[i] = Narrow<T>(scale * (labels[row] == i - row * classes ? p - 1 : p));
  }
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    TargetGradKernel(Lines lines, const T* probabilities, const T* targets, T* gradient,
                     Compute<T> scale) {
  using W = Compute<T>;
  __shared__ double shared[kBlockThreads];
  for (LineWalk w(lines); w.More(); w.Next()) {
    double sum = 0;
    w.Each([&](int64_t offset, int64_t) { sum += static_cast<double>(Wide(targets[offset])); });
    const W total = static_cast<W>(MergeLanes(w.at, sum, shared, AddValues()));
    if (!w.real) continue;
    w.Each([&](int64_t offset, int64_t) {
      gradient[offset] =
          Narrow<T>(scale * (Wide(probabilities[offset]) * total - Wide(targets[offset])));
    });
  }
}

Lines RowsOf(const TensorRef& x) { return Lines::Of(x.dims[0], x.dims[1], 1); }

template <typename T>
void SoftmaxCrossEntropy(const KernelCall& call) {
  const Lines rows = RowsOf(call.inputs[0]);
  if (rows.count == 0) return;
  Launch(CrossEntropyKernel<T>, rows.Blocks(), kBlockThreads, 0, StreamOf(call), rows,
         call.inputs[0].as<T>(), call.inputs[1].as<int64_t>(), nullptr, call.outputs[0].as<T>(),
         call.outputs[1].as<T>());
}

template <typename T>
void DenseCrossEntropy(const KernelCall& call) {
  const Lines rows = RowsOf(call.inputs[0]);
  if (rows.count == 0) return;
  Launch(CrossEntropyKernel<T>, rows.Blocks(), kBlockThreads, 0, StreamOf(call), rows,
         call.inputs[0].as<T>(), nullptr, call.inputs[1].as<T>(), call.outputs[0].as<T>(),
         call.outputs[1].as<T>());
}

template <typename T>
void SoftmaxCrossEntropyGrad(const KernelCall& call) {
  const TensorRef& gradient = call.outputs[0];
  const int64_t count = gradient.NumElements();
  if (count == 0) return;
  Launch(LabelGradKernel<T>, BlocksFor(count, kBlockThreads), kBlockThreads, 0, StreamOf(call),
         count, gradient.dims[1], call.inputs[0].as<T>(), call.inputs[1].as<int64_t>(),
         gradient.as<T>(), static_cast<Compute<T>>(call.attrs<CrossEntropyGradAttributes>().scale));
}

template <typename T>
void DenseCrossEntropyGrad(const KernelCall& call) {
  const Lines rows = RowsOf(call.outputs[0]);
  if (rows.count == 0) return;
  Launch(TargetGradKernel<T>, rows.Blocks(), kBlockThreads, 0, StreamOf(call), rows,
         call.inputs[0].as<T>(), call.inputs[1].as<T>(), call.outputs[0].as<T>(),
         static_cast<Compute<T>>(call.attrs<LossGradAttributes>().scale));
}

const KernelRegistrar registrar({
    TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kSoftmaxCrossEntropy, SoftmaxCrossEntropy),
    TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kSoftmaxCrossEntropyGrad, SoftmaxCrossEntropyGrad),
    TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kDenseCrossEntropy, DenseCrossEntropy),
    TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kDenseCrossEntropyGrad, DenseCrossEntropyGrad),
});

}  // namespace
}  // namespace tidepool::cuda
