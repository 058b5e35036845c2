// Sums of what threads of a block have, up to each of them, for .cu files.
#ifndef TIDEPOOL_BACKENDS_CUDA_SORTING_BLOCK_SCAN_H_
#define TIDEPOOL_BACKENDS_CUDA_SORTING_BLOCK_SCAN_H_

#include "cuda_runtime.h"
#include "tidepool/backends/cuda/common/slots.h"

namespace tidepool::cuda {

inline constexpr int kBlockWarps = kBlockThreads / 32;

// The sum of the values of the threads before this one, and that of all in *total. Within a warp by shuffles (Kogge and
// Stone 1973), of warps one after the other; always in the same order. All threads of the block take part. `shared` can
// be used again right away.
template <typename Value>
__device__ __forceinline__ Value SumBefore(Value value, Value (&shared)[kBlockWarps],
                                           Value* total) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  Value with = value;
#pragma unroll
  for (int by = 1; by < 32; by *= 2) {
    const Value other = __shfl_up_sync(0xffffffffu, with, by);
    if (lane >= by) with = other + with;
  }
  const Value previous = __shfl_up_sync(0xffffffffu, with, 1);
  __syncthreads();  // of an earlier use
  if (lane == 31) shared[warp] = with;
  __syncthreads();
  Value before = 0, sum = 0;
#pragma unroll
  for (int w = 0; w < kBlockWarps; ++w) {
    if (w == warp) before = sum;
    sum += shared[w];
  }
  *total = sum;
  return lane > 0 ? before + previous : before;
}

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_SORTING_BLOCK_SCAN_H_
