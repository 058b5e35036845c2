// What layer normalisation and that by the root mean square have in common on the host, for .cu files. The
// gradients of rows and parameters are made in one pass where the rows fit the registers of a block; of longer ones
// the parameters' are a reduction of columns.
#ifndef TIDEPOOL_BACKENDS_CUDA_NORMALIZATION_ROW_NORM_CALLS_H_
#define TIDEPOOL_BACKENDS_CUDA_NORMALIZATION_ROW_NORM_CALLS_H_

#include <cstdint>

#include "tidepool/backends/cuda/common/cuda_kernel.h"
#include "tidepool/backends/cuda/common/element.h"
#include "tidepool/backends/cuda/normalization/row_norm.h"
#include "tidepool/backends/cuda/reduction/reduce_kernel.h"
#include "tidepool/ndarray/kernel/attributes_nn.h"

namespace tidepool::cuda {

struct ParameterSums {
  double dscale, dshift;
};

// Of each column; the statistics are the rows', `mean` null without kMean, and dshift.
template <typename T, bool kMean>
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
    return {x[at], dz[at], kMean ? mean[row] : Statistic<T>{0}, inverse[row]};
  }
  __device__ bool IsAligned(int64_t at) const {
    return cuda::IsAligned(x + at) && cuda::IsAligned(dz + at);
  }
  __device__ void LoadRun(int64_t at, int64_t row, bool aligned, Value (&values)[kRunWidth]) const {
    const auto xs = LoadAccess<kRunWidth>(x + at, aligned);
    const auto slopes = LoadAccess<kRunWidth>(dz + at, aligned);
    const Statistic<T> its_mean = kMean ? mean[row] : Statistic<T>{0}, its_inverse = inverse[row];
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
    if constexpr (kMean) dshift[column] = Narrow<T>(state.dshift);
  }
};

struct RowsAndColumns {
  int64_t rows = 1, columns;
  explicit RowsAndColumns(const TensorRef& x) : columns(x.dims[x.rank - 1]) {
    for (int i = 0; i + 1 < x.rank; ++i) rows *= x.dims[i];
  }
};

// Means and shifts are null without kMean.
template <typename T, bool kMean>
void RunRowNorm(const KernelCall& call, const T* shift, Statistic<T>* mean, Statistic<T>* inverse) {
  const RowsAndColumns shape(call.inputs[0]);
  if (shape.rows == 0) return;  // rows of no elements have statistics: NaN
  const Rows rows = Rows::Of<T>(shape.rows, shape.columns);
  WithRowKind<T>(rows, [&](auto width, auto one) {
    Launch(RowNormKernel<T, width(), one(), kMean>, rows.blocks(), rows.threads(), 0,
           StreamOf(call), rows, call.inputs[0].as<T>(), call.inputs[1].as<T>(), shift,
           call.attrs<NormalizationAttributes>().epsilon, call.outputs[0].as<T>(), mean, inverse);
  });
}

template <typename T, bool kMean>
size_t RowNormGradScratch(const KernelCall& call) {
  const RowsAndColumns shape(call.inputs[0]);
  const Rows rows = ParameterRows<T>(shape.rows, shape.columns);
  if (!rows.Fits<T>()) {
    return ReduceScratchBytes<ParameterGradOp<T, kMean>>(
        PlanOfColumns(shape.rows, shape.columns, kAccessWidth<T>));
  }
  return static_cast<size_t>(ParameterBlocks(rows) * (kMean ? 2 : 1) * shape.columns) *
         sizeof(Statistic<T>);
}

template <typename T, bool kMean>
void RunRowNormGrad(const KernelCall& call, const Statistic<T>* mean, const Statistic<T>* inverse,
                    const T* dz, T* dscale, T* dshift) {
  using S = Statistic<T>;
  const RowsAndColumns shape(call.inputs[0]);
  if (shape.columns == 0) return;
  const T* const x = call.inputs[0].as<T>();
  const T* const scale = call.inputs[1].as<T>();
  T* const dx = call.outputs[0].as<T>();
  const cudaStream_t stream = StreamOf(call);
  const Rows rows = ParameterRows<T>(shape.rows, shape.columns);
  if (rows.Fits<T>()) {
    const int64_t blocks = ParameterBlocks(rows), width = (kMean ? 2 : 1) * shape.columns;
    S* const partials = static_cast<S*>(call.scratch);
    WithRowWidth<T>(rows, [&](auto row_width) {
      if (blocks == 0) return;
      Launch(RowNormFullGradKernel<T, row_width(), kMean>, static_cast<unsigned>(blocks),
             kParameterThreads, 0, stream, rows, x, scale, mean, inverse, dz, dx, partials);
    });
    Launch(AddPartialsKernel<T>, static_cast<unsigned>(Rows::Ceiling(width, kPartialColumns)),
           kParameterThreads, 0, stream, blocks, shape.columns, width, partials, dscale, dshift);
    return;
  }
  Reduce(ParameterGradOp<T, kMean>{x, dz, mean, inverse, dscale, dshift},
         PlanOfColumns(shape.rows, shape.columns, kAccessWidth<T>), call.scratch, stream);
  if (shape.rows == 0) return;
  const Rows long_rows = Rows::Of<T>(shape.rows, shape.columns);
  WithRowWidth<T>(long_rows, [&](auto row_width) {
    Launch(RowNormGradKernel<T, row_width(), kMean>, long_rows.blocks(), long_rows.threads(), 0,
           stream, long_rows, x, scale, mean, inverse, dz, dx);
  });
}

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_NORMALIZATION_ROW_NORM_CALLS_H_
