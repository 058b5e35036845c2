// Layer normalisation of dense rows; a slot of threads per row, short rows held in registers. The
// parameters' gradients are a reduction of columns.
#include "tidepool/backends/cuda/common/cuda_kernel.h"
#include "tidepool/backends/cuda/common/element.h"
#include "tidepool/backends/cuda/common/lines.h"
#include "tidepool/backends/cuda/common/moments.h"
#include "tidepool/backends/cuda/reduction/reduce_kernel.h"
#include "tidepool/ndarray/kernel/attributes_nn.h"

namespace tidepool::cuda {
namespace {

constexpr int kHeld = 4;  // elements of a row that a lane keeps between the passes

template <typename T, bool kIsHeld>
__global__ void __launch_bounds__(kBlockThreads)
    LayerNormKernel(Lines rows, const T* x, const T* scale, const T* shift, double epsilon, T* z,
                    Statistic<T>* mean_out, Statistic<T>* inverse_out) {
  using S = Statistic<T>;
  __shared__ Moments shared[kBlockThreads];
  for (LineWalk w(rows); w.More(); w.Next()) {
    // Around the row's first element, so that a large mean does not cancel.
    const double first = w.size > 0 ? static_cast<double>(Wide(x[w.first])) : 0;
    Moments m = {};
    S held[kHeld];
    if constexpr (kIsHeld) {
      for (int u = 0; u < kHeld; ++u) {
        const int64_t i = w.at.lane + u * w.at.lanes;
        held[u] = i < w.size ? static_cast<S>(Wide(x[w.first + i])) : S{0};
      }
      for (int u = 0; u < kHeld; ++u) {
        if (w.at.lane + u * w.at.lanes < w.size) {
          AddDeviation(static_cast<double>(held[u]) - first, &m);
        }
      }
    } else {
      w.Each([&](int64_t offset, int64_t) {
        AddDeviation(static_cast<double>(Wide(x[offset])) - first, &m);
      });
    }
    m = MergeLanes(w.at, m, shared,
                   [](const Moments& a, const Moments& b) { return MergeMoments(a, b); });
    const S mean = static_cast<S>(first + m.sum / m.count);
    const S inverse = static_cast<S>(1 / sqrt(SquaresAroundMean(m) / m.count + epsilon));
    if (!w.real) continue;
    if (w.at.lane == 0) {
      mean_out[w.line] = mean;
      inverse_out[w.line] = inverse;
    }
    auto result = [&](S value, int64_t i) {
      return Narrow<T>((value - mean) * inverse * static_cast<S>(Wide(scale[i])) +
                       static_cast<S>(Wide(shift[i])));
    };
    if constexpr (kIsHeld) {
      for (int u = 0; u < kHeld; ++u) {
        const int64_t i = w.at.lane + u * w.at.lanes;
        if (i < w.size) z[w.first + i] = result(held[u], i);
      }
    } else {
      w.Each([&](int64_t offset, int64_t i) {
        z[offset] = result(static_cast<S>(Wide(x[offset])), i);
      });
    }
  }
}

struct RowSums {
  double gradients, products;
};

template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    LayerNormGradKernel(Lines rows, const T* x, const T* scale, const Statistic<T>* means,
                        const Statistic<T>* inverses, const T* dz, T* dx) {
  using S = Statistic<T>;
  __shared__ RowSums shared[kBlockThreads];
  for (LineWalk w(rows); w.More(); w.Next()) {
    const S mean = means[w.line], inverse = inverses[w.line];
    RowSums sums = {};
    w.Each([&](int64_t offset, int64_t i) {
      const double gradient =
          static_cast<double>(Wide(dz[offset])) * static_cast<double>(Wide(scale[i]));
      sums.gradients += gradient;
      sums.products += gradient * static_cast<double>((static_cast<S>(Wide(x[offset])) - mean));
    });
    sums = MergeLanes(w.at, sums, shared, [](const RowSums& a, const RowSums& b) {
      return RowSums{a.gradients + b.gradients, a.products + b.products};
    });
    if (!w.real) continue;
    const double share = 1 / static_cast<double>(w.size);
    const S mean_gradient = static_cast<S>(sums.gradients * share);
    const S mean_product = static_cast<S>(sums.products * static_cast<double>(inverse) * share);
    w.Each([&](int64_t offset, int64_t i) {
      const S normal = (static_cast<S>(Wide(x[offset])) - mean) * inverse;
      const S gradient = static_cast<S>(Wide(dz[offset])) * static_cast<S>(Wide(scale[i]));
      dx[offset] = Narrow<T>(inverse * (gradient - mean_gradient - normal * mean_product));
    });
  }
}

struct ParameterSums {
  double dscale, dshift;
};

// Of each column; the statistics are the rows'.
template <typename T>
struct ParameterGradOp {
  using State = ParameterSums;
  using Context = NoContext;
  struct Value {
    T x, dz;
    Statistic<T> mean, inverse;
  };
  const T* x;
  const T* dz;
  const Statistic<T>* mean;
  const Statistic<T>* inverse;
  T* dscale;
  T* dshift;
  __device__ Context Begin(int64_t, int64_t) const { return {}; }
  __device__ State Init() const { return State{}; }
  __device__ Value Load(Context, int64_t at, int64_t row) const {
    return {x[at], dz[at], mean[row], inverse[row]};
  }
  __device__ void Add(Context, const Value& v, int64_t, State* state) const {
    const double slope = static_cast<double>(Wide(v.dz));
    state->dshift += slope;
    state->dscale +=
        slope * static_cast<double>((static_cast<Statistic<T>>(Wide(v.x)) - v.mean) * v.inverse);
  }
  __device__ State Merge(const State& a, const State& b) const {
    return {a.dscale + b.dscale, a.dshift + b.dshift};
  }
  __device__ void Finish(Context, int64_t column, int64_t, const State& state) const {
    dscale[column] = Narrow<T>(state.dscale);
    dshift[column] = Narrow<T>(state.dshift);
  }
};

struct RowsAndColumns {
  int64_t rows = 1, columns;
  explicit RowsAndColumns(const TensorRef& x) : columns(x.dims[x.rank - 1]) {
    for (int i = 0; i + 1 < x.rank; ++i) rows *= x.dims[i];
  }
};

template <typename T>
void LayerNorm(const KernelCall& call) {
  using S = Statistic<T>;
  const RowsAndColumns shape(call.inputs[0]);
  if (shape.rows == 0) return;  // rows of no elements have statistics: NaN
  const Lines rows = Lines::Of(shape.rows, shape.columns, 1);
  const bool held = rows.size <= rows.slots.lanes * kHeld;
  Launch(held ? LayerNormKernel<T, true> : LayerNormKernel<T, false>, rows.Blocks(), kBlockThreads,
         0, StreamOf(call), rows, call.inputs[0].as<T>(), call.inputs[1].as<T>(),
         call.inputs[2].as<T>(), call.attrs<NormalizationAttributes>().epsilon,
         call.outputs[0].as<T>(), call.outputs[1].as<S>(), call.outputs[2].as<S>());
}

size_t LayerNormGradScratch(const KernelCall& call) {
  const RowsAndColumns shape(call.inputs[0]);
  return ReduceScratchBytes<ParameterGradOp<float>>(PlanOfColumns(shape.rows, shape.columns));
}

template <typename T>
void LayerNormGrad(const KernelCall& call) {
  using S = Statistic<T>;
  const RowsAndColumns shape(call.inputs[0]);
  const T* const x = call.inputs[0].as<T>();
  const S* const mean = call.inputs[2].as<S>();
  const S* const inverse = call.inputs[3].as<S>();
  const T* const dz = call.inputs[4].as<T>();
  Reduce(ParameterGradOp<T>{x, dz, mean, inverse, call.outputs[1].as<T>(), call.outputs[2].as<T>()},
         PlanOfColumns(shape.rows, shape.columns), call.scratch, StreamOf(call));
  if (shape.rows == 0 || shape.columns == 0) return;
  const Lines rows = Lines::Of(shape.rows, shape.columns, 1);
  Launch(LayerNormGradKernel<T>, rows.Blocks(), kBlockThreads, 0, StreamOf(call), rows, x,
         call.inputs[1].as<T>(), mean, inverse, dz, call.outputs[0].as<T>());
}

const KernelRegistrar registrar({
    TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kLayerNorm, LayerNorm),
    TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kLayerNormGrad, LayerNormGrad, &LayerNormGradScratch),
});

}  // namespace
}  // namespace tidepool::cuda
