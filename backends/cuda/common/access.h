// Accesses of 16 bytes.
#ifndef TIDEPOOL_BACKENDS_CUDA_COMMON_ACCESS_H_
#define TIDEPOOL_BACKENDS_CUDA_COMMON_ACCESS_H_

#include <cstdint>

#include "cuda_runtime.h"
#include "tidepool/backends/cuda/framework/numbers.h"

namespace tidepool::cuda {

// Elements of an access of 16 bytes.
template <typename T>
inline constexpr int kAccessWidth = 16 / sizeof(T);

template <typename T>
__device__ __forceinline__ bool IsAligned(const T* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

// One access: by 16 bytes where that is allowed, else element by element.
template <int kWidth, typename T>
__device__ __forceinline__ Vector<T, kWidth> LoadAccess(const T* at, bool aligned) {
  if (aligned) return *reinterpret_cast<const Vector<T, kWidth>*>(at);
  Vector<T, kWidth> access;
#pragma unroll
  for (int u = 0; u < kWidth; ++u) access.lane[u] = at[u];
  return access;
}
template <int kWidth, typename T>
__device__ __forceinline__ void StoreAccess(T* at, bool aligned, const Vector<T, kWidth>& access) {
  if (aligned) {
    *reinterpret_cast<Vector<T, kWidth>*>(at) = access;
  } else {
#pragma unroll
    for (int u = 0; u < kWidth; ++u) at[u] = access.lane[u];
  }
}

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_COMMON_ACCESS_H_
