// Layer normalisation of dense rows. The gradients of rows and parameters are made in one pass where the
// rows fit the registers of a block; of longer ones the parameters' are a reduction of columns.
#include "tidepool/backends/cuda/common/cuda_kernel.h"
#include "tidepool/backends/cuda/common/element.h"
#include "tidepool/backends/cuda/normalization/row_norm.h"
#include "tidepool/backends/cuda/reduction/reduce_kernel.h"
#include "tidepool/ndarray/kernel/attributes_nn.h"

namespace tidepool::cuda {
namespace {

struct ParameterSums {
  double dscale, dshift;
};

// Of each column; the statistics are the rows'.
template <typename T>
struct ParameterGradOp {
  static constexpr bool kColumns = true;
  static constexpr int kRunWidth = kAccessWidth<T>;
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
  __device__ bool IsAligned(int64_t at) const {
    return cuda::IsAligned(x + at) && cuda::IsAligned(dz + at);
  }
  __device__ void LoadRun(int64_t at, int64_t row, bool aligned, Value (&values)[kRunWidth]) const {
    const auto xs = LoadAccess<kRunWidth>(x + at, aligned);
    const auto slopes = LoadAccess<kRunWidth>(dz + at, aligned);
    const Statistic<T> its_mean = mean[row], its_inverse = inverse[row];
#pragma unroll
    for (int u = 0; u < kRunWidth; ++u) {
      values[u] = {xs.lane[u], slopes.lane[u], its_mean, its_inverse};
    }
  }
  __device__ void Add(Context, const Value& v, int64_t, State* state) const {
    using S = Statistic<T>;
    const S slope = static_cast<S>(Wide(v.dz));
    state->dshift += static_cast<double>(slope);
    state->dscale +=
        static_cast<double>(slope * ((static_cast<S>(Wide(v.x)) - v.mean) * v.inverse));
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
  const Rows rows = Rows::Of<T>(shape.rows, shape.columns);
  WithRowKind<T>(rows, [&](auto width, auto one) {
    Launch(RowNormKernel<T, width(), one(), true>, rows.blocks(), rows.threads(), 0, StreamOf(call),
           rows, call.inputs[0].as<T>(), call.inputs[1].as<T>(), call.inputs[2].as<T>(),
           call.attrs<NormalizationAttributes>().epsilon, call.outputs[0].as<T>(),
           call.outputs[1].as<S>(), call.outputs[2].as<S>());
  });
}

template <typename T>
size_t LayerNormGradScratch(const KernelCall& call) {
  const RowsAndColumns shape(call.inputs[0]);
  const Rows rows = ParameterRows<T>(shape.rows, shape.columns);
  if (!rows.Fits<T>()) {
    return ReduceScratchBytes<ParameterGradOp<T>>(
        PlanOfColumns(shape.rows, shape.columns, kAccessWidth<T>));
  }
  return static_cast<size_t>(ParameterBlocks(rows) * 2 * shape.columns) * sizeof(Statistic<T>);
}

template <typename T>
void LayerNormGrad(const KernelCall& call) {
  using S = Statistic<T>;
  const RowsAndColumns shape(call.inputs[0]);
  if (shape.columns == 0) return;
  const T* const x = call.inputs[0].as<T>();
  const T* const scale = call.inputs[1].as<T>();
  const S* const mean = call.inputs[2].as<S>();
  const S* const inverse = call.inputs[3].as<S>();
  const T* const dz = call.inputs[4].as<T>();
  T* const dx = call.outputs[0].as<T>();
  const Rows rows = ParameterRows<T>(shape.rows, shape.columns);
  if (rows.Fits<T>()) {
    const int64_t blocks = ParameterBlocks(rows), width = 2 * shape.columns;
    S* const partials = static_cast<S*>(call.scratch);
    WithRowWidth<T>(rows, [&](auto row_width) {
      if (blocks == 0) return;
      Launch(RowNormFullGradKernel<T, row_width(), true>, static_cast<unsigned>(blocks),
             kParameterThreads, 0, StreamOf(call), rows, x, scale, mean, inverse, dz, dx, partials);
    });
    Launch(AddPartialsKernel<T>, static_cast<unsigned>(Rows::Ceiling(width, kPartialColumns)),
           kParameterThreads, 0, StreamOf(call), blocks, shape.columns, width, partials,
           call.outputs[1].as<T>(), call.outputs[2].as<T>());
    return;
  }
  Reduce(ParameterGradOp<T>{x, dz, mean, inverse, call.outputs[1].as<T>(), call.outputs[2].as<T>()},
         PlanOfColumns(shape.rows, shape.columns, kAccessWidth<T>), call.scratch, StreamOf(call));
  if (shape.rows == 0) return;
  const Rows long_rows = Rows::Of<T>(shape.rows, shape.columns);
  WithRowWidth<T>(long_rows, [&](auto row_width) {
    Launch(RowNormGradKernel<T, row_width(), true>, long_rows.blocks(), long_rows.threads(), 0,
           StreamOf(call), long_rows, x, scale, mean, inverse, dz, dx);
  });
}

const KernelRegistrar registrar({
    TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kLayerNorm, LayerNorm),
    TIDEPOOL_CUDA_SCRATCH_KERNELS(OpCode::kLayerNormGrad, LayerNormGrad, LayerNormGradScratch),
});

}  // namespace
}  // namespace tidepool::cuda
