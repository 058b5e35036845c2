// Softmax and its logarithm over any axis, with gradients. Dense operands; results may lie over
// inputs: a thread writes only what it alone has read, after all of the line has been summed up.
#include "tidepool/backends/cuda/common/cuda_kernel.h"
#include "tidepool/backends/cuda/common/element.h"
#include "tidepool/backends/cuda/common/lines.h"
#include "tidepool/backends/cuda/common/moments.h"
#include "tidepool/ndarray/kernel/attributes_nn.h"
#include "tidepool/ndarray/kernel/axis_split.h"

namespace tidepool::cuda {
namespace {

// Elements of a line that a lane keeps in registers between the passes.
constexpr int kHeld = 4;

template <typename T, bool kLog, bool kIsHeld>
__global__ void __launch_bounds__(kBlockThreads) SoftmaxKernel(Lines lines, const T* x, T* z) {
  using W = Compute<T>;
  using Sum = ExponentialSum<W>;
  __shared__ Sum shared[kBlockThreads];
  for (LineWalk w(lines); w.More(); w.Next()) {
    Sum sum = EmptyExponentialSum<W>();
    W held[kHeld];
    if constexpr (kIsHeld) {
      for (int u = 0; u < kHeld; ++u) {
        const int64_t i = w.at.lane + u * w.at.lanes;
        held[u] = i < w.size ? Wide(x[w.first + i * w.inner]) : -Infinity<W>();
      }
      for (int u = 0; u < kHeld; ++u) AddExponential(held[u], &sum);
    } else {
      w.Each([&](int64_t offset, int64_t) { AddExponential(Wide(x[offset]), &sum); });
    }
    sum = MergeLanes(w.at, sum, shared,
                     [](const Sum& a, const Sum& b) { return MergeExponentials(a, b); });
    // A line of an infinity is NaN throughout, as its differences are.
    const W largest = IsFinite(sum.largest) ? sum.largest : NaN<W>();
    const W last = kLog ? static_cast<W>(log(sum.sum)) : static_cast<W>(1 / sum.sum);
    auto result = [&](W value) {
      const W below = value - largest;
      return Narrow<T>(kLog ? below - last : Exp(below) * last);
    };
    if (!w.real) continue;
    if constexpr (kIsHeld) {
      for (int u = 0; u < kHeld; ++u) {
        const int64_t i = w.at.lane + u * w.at.lanes;
        if (i < w.size) z[w.first + i * w.inner] = result(held[u]);
      }
    } else {
      w.Each([&](int64_t offset, int64_t) { z[offset] = result(Wide(x[offset])); });
    }
  }
}

// Of softmax dX = Z (dZ - sum(Z dZ)); of its logarithm dX = dZ - exp(Z) sum(dZ).
template <typename T, bool kLog>
__global__ void __launch_bounds__(kBlockThreads)
    SoftmaxGradKernel(Lines lines, const T* z, const T* dz, T* dx) {
  using W = Compute<T>;
  __shared__ double shared[kBlockThreads];
  for (LineWalk w(lines); w.More(); w.Next()) {
    double sum = 0;
    w.Each([&](int64_t offset, int64_t) {
      const double slope = static_cast<double>(Wide(dz[offset]));
      sum += kLog ? slope : static_cast<double>(Wide(z[offset])) * slope;
    });
    const W total = static_cast<W>(MergeLanes(w.at, sum, shared, AddValues()));
    if (!w.real) continue;
    w.Each([&](int64_t offset, int64_t) {
      const W value = Wide(z[offset]), slope = Wide(dz[offset]);
      dx[offset] = Narrow<T>(kLog ? slope - Exp(value) * total : value * (slope - total));
    });
  }
}

Lines LinesOf(const KernelCall& call) {
  const AxisSplit split(call.outputs[0], call.attrs<SoftmaxAttributes>().axis);
  return Lines::Of(split.outer, split.size, split.inner);
}

template <typename T, bool kLog>
void RunSoftmax(const KernelCall& call) {
  const Lines lines = LinesOf(call);
  if (lines.count == 0 || lines.size == 0) return;
  const bool held = lines.size <= lines.slots.lanes * kHeld;
  Launch(held ? SoftmaxKernel<T, kLog, true> : SoftmaxKernel<T, kLog, false>, lines.Blocks(),
         kBlockThreads, 0, StreamOf(call), lines, call.inputs[0].as<T>(), call.outputs[0].as<T>());
}

template <typename T, bool kLog>
void RunSoftmaxGrad(const KernelCall& call) {
  const Lines lines = LinesOf(call);
  if (lines.count == 0 || lines.size == 0) return;
  Launch(SoftmaxGradKernel<T, kLog>, lines.Blocks(), kBlockThreads, 0, StreamOf(call), lines,
         call.inputs[0].as<T>(), call.inputs[1].as<T>(), call.outputs[0].as<T>());
}

template <typename T>
void Softmax(const KernelCall& call) {
  RunSoftmax<T, false>(call);
}
template <typename T>
void LogSoftmax(const KernelCall& call) {
  RunSoftmax<T, true>(call);
}
template <typename T>
void SoftmaxGrad(const KernelCall& call) {
  RunSoftmaxGrad<T, false>(call);
}
template <typename T>
void LogSoftmaxGrad(const KernelCall& call) {
  RunSoftmaxGrad<T, true>(call);
}

const KernelRegistrar registrar({
    TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kSoftmax, Softmax),
    TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kLogSoftmax, LogSoftmax),
    TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kSoftmaxGrad, SoftmaxGrad),
    TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kLogSoftmaxGrad, LogSoftmaxGrad),
});

}  // namespace
}  // namespace tidepool::cuda
