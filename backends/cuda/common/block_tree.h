// Combining values of the threads of a block in a fixed order: results do not depend on timing.
#ifndef TIDEPOOL_BACKENDS_CUDA_COMMON_BLOCK_TREE_H_
#define TIDEPOOL_BACKENDS_CUDA_COMMON_BLOCK_TREE_H_

#include <cstdint>

#include "cuda_runtime.h"
#include "tidepool/backends/cuda/common/shuffle.h"
#include "tidepool/backends/cuda/common/slots.h"

namespace tidepool::cuda {

// This thread's place.
struct SlotThread {
  int lanes, lane, slot, slots;
  int step;  // between the threads of neighbouring lanes
  bool along;

  __device__ __forceinline__ explicit SlotThread(Slots s) {
    const int t = static_cast<int>(threadIdx.x);
    lanes = s.lanes;
    slots = kBlockThreads / lanes;
    lane = s.along ? t & (lanes - 1) : t / slots;
    slot = s.along ? t / lanes : t & (slots - 1);
    step = s.along ? 1 : slots;
    along = s.along;
  }
};

// What the lanes of each slot have, merged: merge(value, value of a later lane). All threads of the
// block take part and all get the result. `shared` has room for kBlockThreads values; it can be
// used again right away.
template <typename Value, typename Merge>
__device__ __forceinline__ Value MergeLanes(const SlotThread& at, Value value, Value* shared,
                                            Merge merge) {
  if (at.along) {
    return at.lanes <= 32 ? MergeWarp(at.lanes, value, merge)
                          : MergeWarps(at.lanes, value, shared, merge);
  }
  if (at.lanes == 1) return value;
  const int t = static_cast<int>(threadIdx.x);
  __syncthreads();  // of an earlier use
  shared[t] = value;
  for (int half = at.lanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (at.lane < half) shared[t] = merge(shared[t], shared[t + half * at.step]);
  }
  __syncthreads();
  return shared[t - at.lane * at.step];
}

struct AddValues {
  template <typename Value>
  __device__ __forceinline__ Value operator()(const Value& a, const Value& b) const {
    return a + b;
  }
};

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_COMMON_BLOCK_TREE_H_
