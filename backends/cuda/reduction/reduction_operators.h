// What operators of reductions share, for .cu files.
#ifndef TIDEPOOL_BACKENDS_CUDA_REDUCTION_REDUCTION_OPERATORS_H_
#define TIDEPOOL_BACKENDS_CUDA_REDUCTION_REDUCTION_OPERATORS_H_

#include "tidepool/backends/cuda/common/element.h"
#include "tidepool/backends/cuda/reduction/reduce_kernel.h"

namespace tidepool::cuda {

// Of operators that read X alone.
template <typename T>
struct Reading {
  using Element = T;
  using Value = T;
  using Context = NoContext;
  const T* x;
  __device__ Context Begin(int64_t, int64_t) const { return {}; }
  __device__ T Load(const Context&, int64_t at, int64_t) const { return x[at]; }
};

// NaN beats all that are none. kSign: 1 for the largest.
template <int kSign, typename W>
__device__ __forceinline__ bool Beats(W a, W b) {
  if (IsNaN(b)) return false;
  return (kSign > 0 ? a > b : a < b) || IsNaN(a);
}

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_REDUCTION_REDUCTION_OPERATORS_H_
