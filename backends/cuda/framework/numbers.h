// Elements and what kernels compute in, the same on devices and in the emulation.
//
// f16 and bf16 are stored as Float16 and BFloat16 and computed in float; other types in themselves.
// The conversions are those of ndarray/float16.h; devices have instructions for them that round the
// same way.
#ifndef TIDEPOOL_BACKENDS_CUDA_FRAMEWORK_NUMBERS_H_
#define TIDEPOOL_BACKENDS_CUDA_FRAMEWORK_NUMBERS_H_

#include <cstdint>
#include <type_traits>

#include "cuda_runtime.h"
#include "tidepool/ndarray/dtype.h"
#if defined(__CUDACC__)
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#endif

namespace tidepool::cuda {

template <typename T>
using Compute = std::conditional_t<kIs16BitFloat<T>, float, T>;

template <typename T>
__host__ __device__ __forceinline__ Compute<T> ToCompute(T value) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<T, Float16>) return __half2float(__ushort_as_half(value.bits));
#endif
  return value;
}

// Rounded to nearest even where T is narrower.
template <typename T>
__host__ __device__ __forceinline__ T FromCompute(Compute<T> value) {
  if constexpr (kIs16BitFloat<T>) {
#if defined(__CUDA_ARCH__)
    T rounded;
    if constexpr (std::is_same_v<T, Float16>) {
      rounded.bits = __half_as_ushort(__float2half_rn(value));
    } else {
      rounded.bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));
    }
    return rounded;
#else
    return T(value);
#endif
  } else {
    return value;
  }
}

// As many elements as one access moves, at most 16 bytes.
template <typename T, int kWidth>
struct alignas(sizeof(T) * kWidth) Vector {
  T lane[kWidth];
};

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_FRAMEWORK_NUMBERS_H_
