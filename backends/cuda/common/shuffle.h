// Values handed between the lanes of a warp, of any trivially copyable type.
#ifndef TIDEPOOL_BACKENDS_CUDA_COMMON_SHUFFLE_H_
#define TIDEPOOL_BACKENDS_CUDA_COMMON_SHUFFLE_H_

#include <cstdint>
#include <cstring>

#include "cuda_runtime.h"

namespace tidepool::cuda {

// What lane (this ^ by) has. All lanes of the warp take part.
template <typename Value>
__device__ __forceinline__ Value ShuffleXor(const Value& value, int by) {
  constexpr int kWords = (sizeof(Value) + 3) / 4;
  uint32_t words[kWords] = {};
  memcpy(words, &value, sizeof(Value));
#pragma unroll
  for (int i = 0; i < kWords; ++i) words[i] = __shfl_xor_sync(0xffffffffu, words[i], by);
  Value other;
  memcpy(&other, words, sizeof(Value));
  return other;
}

// The values of `lanes` neighbouring lanes, a power of two up to 32, merged:
// merge(value, value of a later lane). All lanes of the warp take part; each gets its neighbours'.
template <typename Value, typename Merge>
__device__ __forceinline__ Value MergeWarp(int lanes, Value value, Merge merge) {
  for (int by = lanes / 2; by > 0; by /= 2) {
    const Value other = ShuffleXor(value, by);
    const bool later = (threadIdx.x & static_cast<unsigned>(by)) != 0;
    value = later ? merge(other, value) : merge(value, other);
  }
  return value;
}

// The same of more lanes: 64 to 1024, the block's first, the next ones and so on. All threads of the
// block take part. `shared` has room for 32 values; it can be used again right away.
template <typename Value, typename Merge>
__device__ __forceinline__ Value MergeWarps(int lanes, Value value, Value* shared, Merge merge) {
  const int t = static_cast<int>(threadIdx.x), warps = lanes / 32;
  value = MergeWarp(32, value, merge);
  __syncthreads();  // of an earlier use
  if (t % 32 == 0) shared[t / 32] = value;
  __syncthreads();
  return MergeWarp(warps, shared[(t & -lanes) / 32 + (t & (warps - 1))], merge);
}

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_COMMON_SHUFFLE_H_
