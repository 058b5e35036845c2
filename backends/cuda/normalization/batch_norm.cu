// Batch normalisation of dense [.., channels]: statistics of each channel by a reduction of columns,
// then one pass over the elements.
#include "tidepool/backends/cuda/common/cuda_kernel.h"
#include "tidepool/backends/cuda/common/element.h"
#include "tidepool/backends/cuda/common/moments.h"
#include "tidepool/backends/cuda/reduction/reduce_kernel.h"
#include "tidepool/ndarray/kernel/attributes_nn.h"

namespace tidepool::cuda {
namespace {

// Around the channel's first element.
template <typename T>
struct StatisticsOp {
  using State = Moments;
  using Value = T;
  using Context = double;
  const T* x;
  Statistic<T>* mean;
  Statistic<T>* inverse;
  double epsilon;
  bool empty;  // no rows: NaN
  __device__ Context Begin(int64_t, int64_t at) const {
    return empty ? 0 : static_cast<double>(Wide(x[at]));
  }
  __device__ State Init() const { return State{}; }
  __device__ T Load(const Context&, int64_t at, int64_t) const { return x[at]; }
  __device__ void Add(const Context& first, T value, int64_t, State* state) const {
    AddDeviation(static_cast<double>(Wide(value)) - first, state);
  }
  __device__ State Merge(const State& a, const State& b) const { return MergeMoments(a, b); }
  __device__ void Finish(const Context& first, int64_t channel, int64_t, const State& m) const {
    mean[channel] = static_cast<Statistic<T>>(first + m.sum / m.count);
    inverse[channel] =
        static_cast<Statistic<T>>(1 / sqrt(SquaresAroundMean(m) / m.count + epsilon));
  }
};

// Z = (X - mean) * inverse * scale + shift; with `variance` instead of `inverse` in inference.
template <typename T, bool kInference>
__global__ void __launch_bounds__(kBlockThreads)
    NormalizeKernel(int64_t count, int64_t channels, const T* x, const T* scale, const T* shift,
                    const Statistic<T>* mean, const Statistic<T>* spread, double epsilon, T* z) {
  using S = Statistic<T>;
  for (int64_t i = GlobalThread(); i < count; i += GlobalThreads()) {
    const int64_t c = i - Quotient(i, channels) * channels;
    const S inverse =
        kInference ? S{1} / Sqrt(spread[c] + static_cast<S>(epsilon)) : spread[c];
    z[i] = Narrow<T>((static_cast<S>(Wide(x[i])) - mean[c]) *
                         (inverse * static_cast<S>(Wide(scale[c]))) +
                     static_cast<S>(Wide(shift[c])));
  }
}

struct GradientSums {
  double dscale, dshift;
};

template <typename T>
struct GradientOp {
  using State = GradientSums;
  struct Value {
    T x, dz;
  };
  struct Context {
    double mean, inverse;
  };
  const T* x;
  const T* dz;
  const Statistic<T>* mean;
  const Statistic<T>* inverse;
  T* dscale;
  T* dshift;
  double* sums;  // of each channel, for the pass over the elements
  __device__ Context Begin(int64_t channel, int64_t) const {
    return {static_cast<double>(mean[channel]), static_cast<double>(inverse[channel])};
  }
  __device__ State Init() const { return State{}; }
  __device__ Value Load(const Context&, int64_t at, int64_t) const { return {x[at], dz[at]}; }
  __device__ void Add(const Context& c, const Value& value, int64_t, State* state) const {
    const double slope = static_cast<double>(Wide(value.dz));
    state->dshift += slope;
    state->dscale += slope * (static_cast<double>(Wide(value.x)) - c.mean) * c.inverse;
  }
  __device__ State Merge(const State& a, const State& b) const {
    return {a.dscale + b.dscale, a.dshift + b.dshift};
  }
  __device__ void Finish(const Context&, int64_t channel, int64_t, const State& state) const {
    dscale[channel] = Narrow<T>(state.dscale);
    dshift[channel] = Narrow<T>(state.dshift);
    sums[2 * channel] = state.dscale;
    sums[2 * channel + 1] = state.dshift;
  }
};

template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    BatchNormGradKernel(int64_t count, int64_t channels, const T* x, const T* scale,
                        const Statistic<T>* mean, const Statistic<T>* inverse, const T* dz,
                        const double* sums, double share, T* dx) {
  using S = Statistic<T>;
  for (int64_t i = GlobalThread(); i < count; i += GlobalThreads()) {
    const int64_t c = i - Quotient(i, channels) * channels;
    const S normal = (static_cast<S>(Wide(x[i])) - mean[c]) * inverse[c];
    const S mean_dscale = static_cast<S>(sums[2 * c] * share);
    const S mean_dshift = static_cast<S>(sums[2 * c + 1] * share);
    dx[i] = Narrow<T>(static_cast<S>(Wide(scale[c])) * inverse[c] *
                      (static_cast<S>(Wide(dz[i])) - mean_dshift - normal * mean_dscale));
  }
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    RunningKernel(int64_t channels, const T* mean, const T* inverse, T* running_mean,
                  T* running_variance, RunningAverageAttributes a, double correction) {
  for (int64_t c = GlobalThread(); c < channels; c += GlobalThreads()) {
    const double keep = 1 - a.momentum, i = static_cast<double>(inverse[c]);
    const double spread = 1 / (i * i) - a.epsilon;
    const double variance = spread < 0 ? 0 : spread;  // rounding of a variance of zero
    running_mean[c] =
        static_cast<T>(keep * static_cast<double>(running_mean[c]) +
                       a.momentum * static_cast<double>(mean[c]));
    running_variance[c] =
        static_cast<T>(keep * static_cast<double>(running_variance[c]) +
                       a.momentum * variance * correction);
  }
}

int64_t ChannelsOf(const TensorRef& x) { return x.dims[x.rank - 1]; }

int64_t RowsOf(const TensorRef& x) {
  int64_t rows = 1;
  for (int i = 0; i + 1 < x.rank; ++i) rows *= x.dims[i];
  return rows;
}

ReducePlan PlanOf(const KernelCall& call) {
  return PlanOfColumns(RowsOf(call.inputs[0]), ChannelsOf(call.inputs[0]));
}

size_t BatchNormScratch(const KernelCall& call) {
  return ReduceScratchBytes<StatisticsOp<float>>(PlanOf(call));
}

template <typename T>
void BatchNorm(const KernelCall& call) {
  using S = Statistic<T>;
  const TensorRef& x = call.inputs[0];
  const ReducePlan plan = PlanOf(call);
  if (plan.outputs == 0) return;
  const double epsilon = call.attrs<NormalizationAttributes>().epsilon;
  S* const mean = call.outputs[1].as<S>();
  S* const inverse = call.outputs[2].as<S>();
  Reduce(StatisticsOp<T>{x.as<T>(), mean, inverse, epsilon, plan.count == 0}, plan,
         call.scratch, StreamOf(call));
  const int64_t count = plan.outputs * plan.count;
  if (count == 0) return;
  Launch(NormalizeKernel<T, false>, BlocksFor(count, kBlockThreads), kBlockThreads, 0,
         StreamOf(call), count, plan.outputs, x.as<T>(), call.inputs[1].as<T>(),
         call.inputs[2].as<T>(), mean, inverse, epsilon, call.outputs[0].as<T>());
}

template <typename T>
void BatchNormInference(const KernelCall& call) {
  using S = Statistic<T>;
  const TensorRef& x = call.inputs[0];
  const int64_t count = x.NumElements();
  if (count == 0) return;
  Launch(NormalizeKernel<T, true>, BlocksFor(count, kBlockThreads), kBlockThreads, 0,
         StreamOf(call), count, ChannelsOf(x), x.as<T>(), call.inputs[1].as<T>(),
         call.inputs[2].as<T>(), call.inputs[3].as<S>(), call.inputs[4].as<S>(),
         call.attrs<NormalizationAttributes>().epsilon, call.outputs[0].as<T>());
}

// The sums of the channels, then the reduction's.
size_t BatchNormGradScratch(const KernelCall& call) {
  return Aligned(2 * sizeof(double) * ChannelsOf(call.inputs[0])) +
         ReduceScratchBytes<GradientOp<float>>(PlanOf(call));
}

template <typename T>
void BatchNormGrad(const KernelCall& call) {
  using S = Statistic<T>;
  const TensorRef& x = call.inputs[0];
  const ReducePlan plan = PlanOf(call);
  if (plan.outputs == 0) return;
  auto* const sums = static_cast<double*>(call.scratch);
  auto* const partials =
      static_cast<std::byte*>(call.scratch) + Aligned(2 * sizeof(double) * plan.outputs);
  const S* const mean = call.inputs[2].as<S>();
  const S* const inverse = call.inputs[3].as<S>();
  Reduce(GradientOp<T>{x.as<T>(), call.inputs[4].as<T>(), mean, inverse, call.outputs[1].as<T>(),
                       call.outputs[2].as<T>(), sums},
         plan, partials, StreamOf(call));
  const int64_t count = plan.outputs * plan.count;
  if (count == 0) return;
  Launch(BatchNormGradKernel<T>, BlocksFor(count, kBlockThreads), kBlockThreads, 0, StreamOf(call),
         count, plan.outputs, x.as<T>(), call.inputs[1].as<T>(), mean, inverse,
         call.inputs[4].as<T>(), sums, 1 / static_cast<double>(plan.count), call.outputs[0].as<T>());
}

template <typename T>
void BatchNormRunning(const KernelCall& call) {
  const auto& a = call.attrs<RunningAverageAttributes>();
  const int64_t channels = call.outputs[0].dims[0];
  if (channels == 0) return;
  const double correction =
      a.count > 1 ? static_cast<double>(a.count) / static_cast<double>(a.count - 1) : 1;
  Launch(RunningKernel<T>, BlocksFor(channels, kBlockThreads), kBlockThreads, 0, StreamOf(call),
         channels, call.inputs[0].as<T>(), call.inputs[1].as<T>(), call.outputs[0].as<T>(),
         call.outputs[1].as<T>(), a, correction);
}

const KernelRegistrar registrar({
    TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kBatchNorm, BatchNorm, &BatchNormScratch),
    TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kBatchNormInference, BatchNormInference),
    TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kBatchNormGrad, BatchNormGrad, &BatchNormGradScratch),
    CudaKernel(OpCode::kBatchNormRunning, DType::kFloat32, &BatchNormRunning<float>),
    CudaKernel(OpCode::kBatchNormRunning, DType::kFloat64, &BatchNormRunning<double>),
});

}  // namespace
}  // namespace tidepool::cuda
