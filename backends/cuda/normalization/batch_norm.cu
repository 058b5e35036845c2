// Batch normalisation of dense [.., channels]: statistics of each channel by a reduction of columns,
// then one pass over the elements that keeps the channels' numbers in registers.
#include "tidepool/backends/cuda/common/columns_pass.h"
#include "tidepool/backends/cuda/common/cuda_kernel.h"
#include "tidepool/backends/cuda/common/element.h"
#include "tidepool/backends/cuda/common/moments.h"
#include "tidepool/backends/cuda/reduction/reduce_kernel.h"
#include "tidepool/ndarray/kernel/attributes_nn.h"

namespace tidepool::cuda {
namespace {

// Around the channel's first element. The mean is kept as two numbers, so that one that is large beside the
// deviation costs nothing.
template <typename T>
struct StatisticsOp {
  static constexpr bool kColumns = true;
  using State = Moments;
  using Element = T;
  using Value = T;
  using Context = double;
  const T* x;
  Statistic<T>* mean;
  Statistic<T>* rest;  // what rounding the mean left out
  Statistic<T>* inverse;
  double epsilon;
  double count;  // none: NaN
  __device__ Context Begin(int64_t, int64_t at) const {
    return count > 0 ? static_cast<double>(Wide(x[at])) : 0;
  }
  __device__ State Init() const { return State{}; }
  __device__ T Load(const Context&, int64_t at, int64_t) const { return x[at]; }
  __device__ void Add(const Context& first, T value, int64_t, State* state) const {
    AddDeviation(static_cast<double>(Wide(value)) - first, state);
  }
  __device__ State Merge(const State& a, const State& b) const { return MergeMoments(a, b); }
  __device__ void Finish(const Context& first, int64_t channel, int64_t, const State& m) const {
    using S = Statistic<T>;
    const double deviation = m.sum / count;
    const S rounded = static_cast<S>(first + deviation);
    mean[channel] = rounded;
    rest[channel] = static_cast<S>(deviation - (static_cast<double>(rounded) - first));
    inverse[channel] = static_cast<S>(1 / sqrt(SquaresAroundMean(m, count) / count + epsilon));
  }
};

// Z = (X - mean) * inverse * scale + shift; with `variance` instead of `inverse` in inference.
template <typename T, bool kInference>
struct NormalizePass {
  using S = Statistic<T>;
  using Element = T;
  static constexpr int kInputs = 1;
  const T* in[kInputs];
  T* out;
  const T* scale;
  const T* shift;
  const S* mean;
  const S* rest;
  const S* spread;
  double epsilon;
  struct Column {
    S mean, factor, offset;
  };
  __device__ Column Begin(int64_t c) const {
    const S inverse = kInference ? S{1} / Sqrt(spread[c] + static_cast<S>(epsilon)) : spread[c];
    const S factor = inverse * static_cast<S>(Wide(scale[c]));
    const S offset = static_cast<S>(Wide(shift[c]));
    return {mean[c], factor, kInference ? offset : Fma(-rest[c], factor, offset)};
  }
  __device__ T Apply(const Column& c, T x) const {
    return Narrow<T>((static_cast<S>(Wide(x)) - c.mean) * c.factor + c.offset);
  }
};

struct GradientSums {
  double dscale, dshift;
};

template <typename T>
struct GradientOp {
  static constexpr bool kColumns = true;
  static constexpr int kRunWidth = kAccessWidth<T>;
  using S = Statistic<T>;
  using State = GradientSums;
  struct Value {
    T x, dz;
  };
  struct Context {
    S mean, inverse;
  };
  const T* x;
  const T* dz;
  const Statistic<T>* mean;
  const Statistic<T>* inverse;
  T* dscale;
  T* dshift;
  double* sums;  // of each channel, for the pass over the elements
  __device__ Context Begin(int64_t channel, int64_t) const {
    return {mean[channel], inverse[channel]};
  }
  __device__ State Init() const { return State{}; }
  __device__ Value Load(const Context&, int64_t at, int64_t) const { return {x[at], dz[at]}; }
  __device__ bool IsAligned(int64_t at) const {
    return cuda::IsAligned(x + at) && cuda::IsAligned(dz + at);
  }
  __device__ void LoadRun(int64_t at, int64_t, bool aligned, Value (&values)[kRunWidth]) const {
    const auto xs = LoadAccess<kRunWidth>(x + at, aligned);
    const auto slopes = LoadAccess<kRunWidth>(dz + at, aligned);
#pragma unroll
    for (int u = 0; u < kRunWidth; ++u) values[u] = {xs.lane[u], slopes.lane[u]};
  }
  // A product is rounded once as the elements are; the sums are of doubles.
  __device__ void Add(const Context& c, const Value& value, int64_t, State* state) const {
    const S slope = static_cast<S>(Wide(value.dz));
    state->dshift += static_cast<double>(slope);
    state->dscale +=
        static_cast<double>(slope * ((static_cast<S>(Wide(value.x)) - c.mean) * c.inverse));
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
struct GradientPass {
  using S = Statistic<T>;
  using Element = T;
  static constexpr int kInputs = 2;
  const T* in[kInputs];  // X, dZ
  T* out;
  const T* scale;
  const S* mean;
  const S* inverse;
  const double* sums;
  double share;
  struct Column {
    S mean, inverse, factor, mean_dscale, mean_dshift;
  };
  __device__ Column Begin(int64_t c) const {
    return {mean[c], inverse[c], static_cast<S>(Wide(scale[c])) * inverse[c],
            static_cast<S>(sums[2 * c] * share), static_cast<S>(sums[2 * c + 1] * share)};
  }
  __device__ T Apply(const Column& c, T x, T dz) const {
    const S normal = (static_cast<S>(Wide(x)) - c.mean) * c.inverse;
    return Narrow<T>(c.factor *
                     (static_cast<S>(Wide(dz)) - c.mean_dshift - normal * c.mean_dscale));
  }
};

template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    RunningKernel(int64_t channels, const T* mean, const T* inverse, T* running_mean,
                  T* running_variance, RunningAverageAttributes a, double correction) {
  for (int64_t c = GlobalThread(); c < channels; c += GlobalThreads()) {
    const double keep = 1 - a.momentum, i = static_cast<double>(inverse[c]);
    const double spread = 1 / (i * i) - a.epsilon;
    const double variance = spread < 0 ? 0 : spread;  // rounding of a variance of zero
    running_mean[c] = static_cast<T>(keep * static_cast<double>(running_mean[c]) +
                                     a.momentum * static_cast<double>(mean[c]));
    running_variance[c] = static_cast<T>(keep * static_cast<double>(running_variance[c]) +
                                         a.momentum * variance * correction);
  }
}

int64_t ChannelsOf(const TensorRef& x) { return x.dims[x.rank - 1]; }

int64_t RowsOf(const TensorRef& x) {
  int64_t rows = 1;
  for (int i = 0; i + 1 < x.rank; ++i) rows *= x.dims[i];
  return rows;
}

template <typename T>
ReducePlan PlanOf(const KernelCall& call) {
  return PlanOfColumns(RowsOf(call.inputs[0]), ChannelsOf(call.inputs[0]), kAccessWidth<T>);
}

// What the means left out, then the reduction's.
template <typename T>
size_t BatchNormScratch(const KernelCall& call) {
  return Aligned(sizeof(Statistic<T>) * ChannelsOf(call.inputs[0])) +
         ReduceScratchBytes<StatisticsOp<T>>(PlanOf<T>(call));
}

template <typename T>
void BatchNorm(const KernelCall& call) {
  using S = Statistic<T>;
  const TensorRef& x = call.inputs[0];
  const ReducePlan plan = PlanOf<T>(call);
  if (plan.outputs == 0) return;
  const double epsilon = call.attrs<NormalizationAttributes>().epsilon;
  S* const mean = call.outputs[1].as<S>();
  S* const inverse = call.outputs[2].as<S>();
  S* const rest = static_cast<S*>(call.scratch);
  auto* const partials = static_cast<std::byte*>(call.scratch) + Aligned(sizeof(S) * plan.outputs);
  Reduce(StatisticsOp<T>{x.as<T>(), mean, rest, inverse, epsilon, static_cast<double>(plan.count)},
         plan, partials, StreamOf(call));
  PassOverColumns(NormalizePass<T, false>{{x.as<T>()},
                                          call.outputs[0].as<T>(),
                                          call.inputs[1].as<T>(),
                                          call.inputs[2].as<T>(),
                                          mean,
                                          rest,
                                          inverse,
                                          epsilon},
                  plan.count, plan.outputs, StreamOf(call));
}

template <typename T>
void BatchNormInference(const KernelCall& call) {
  using S = Statistic<T>;
  const TensorRef& x = call.inputs[0];
  PassOverColumns(NormalizePass<T, true>{{x.as<T>()},
                                         call.outputs[0].as<T>(),
                                         call.inputs[1].as<T>(),
                                         call.inputs[2].as<T>(),
                                         call.inputs[3].as<S>(),
                                         nullptr,
                                         call.inputs[4].as<S>(),
                                         call.attrs<NormalizationAttributes>().epsilon},
                  RowsOf(x), ChannelsOf(x), StreamOf(call));
}

// The sums of the channels, then the reduction's.
template <typename T>
size_t BatchNormGradScratch(const KernelCall& call) {
  return Aligned(2 * sizeof(double) * ChannelsOf(call.inputs[0])) +
         ReduceScratchBytes<GradientOp<T>>(PlanOf<T>(call));
}

template <typename T>
void BatchNormGrad(const KernelCall& call) {
  using S = Statistic<T>;
  const T* const x = call.inputs[0].as<T>();
  const T* const dz = call.inputs[4].as<T>();
  const ReducePlan plan = PlanOf<T>(call);
  if (plan.outputs == 0) return;
  auto* const sums = static_cast<double*>(call.scratch);
  auto* const partials =
      static_cast<std::byte*>(call.scratch) + Aligned(2 * sizeof(double) * plan.outputs);
  const S* const mean = call.inputs[2].as<S>();
  const S* const inverse = call.inputs[3].as<S>();
  Reduce(
      GradientOp<T>{x, dz, mean, inverse, call.outputs[1].as<T>(), call.outputs[2].as<T>(), sums},
      plan, partials, StreamOf(call));
  PassOverColumns(GradientPass<T>{{x, dz},
                                  call.outputs[0].as<T>(),
                                  call.inputs[1].as<T>(),
                                  mean,
                                  inverse,
                                  sums,
                                  1 / static_cast<double>(std::max<int64_t>(1, plan.count))},
                  plan.count, plan.outputs, StreamOf(call));
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
    TIDEPOOL_CUDA_SCRATCH_KERNELS(OpCode::kBatchNorm, BatchNorm, BatchNormScratch),
    TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kBatchNormInference, BatchNormInference),
    TIDEPOOL_CUDA_SCRATCH_KERNELS(OpCode::kBatchNormGrad, BatchNormGrad, BatchNormGradScratch),
    CudaKernel(OpCode::kBatchNormRunning, DType::kFloat32, &BatchNormRunning<float>),
    CudaKernel(OpCode::kBatchNormRunning, DType::kFloat64, &BatchNormRunning<double>),
});

}  // namespace
}  // namespace tidepool::cuda
