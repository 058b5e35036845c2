// Kernel launches, the same for devices and for the emulation (backends/cuda/emulation): sources of
// kernels include this and never write <<<>>> or `extern __shared__`.
//
//   template <typename T> __global__ void Scale(T* z, int64_t count, T factor);
//   Launch(Scale<float>, BlocksFor(count, 256), 256, 0, stream, z, count, factor);
//
// Work is only queued. Pointers among the arguments are device addresses (or page-locked host memory);
// structs go by value and may hold device addresses too, never host ones.
#ifndef TIDEPOOL_BACKENDS_CUDA_RUNTIME_LAUNCH_H_
#define TIDEPOOL_BACKENDS_CUDA_RUNTIME_LAUNCH_H_

#include <cstddef>
#include <cstdint>

#include "cuda_runtime.h"
#include "tidepool/backends/cuda/runtime/error.h"
#if defined(TIDEPOOL_CUDA_EMULATED)
#include "tidepool/backends/cuda/emulation/launch_kernel.h"
#endif

namespace tidepool::cuda {

// The error of this launch alone; one that another call left behind is neither reported nor cleared.
template <typename... Parameters, typename... Arguments>
cudaError_t TryLaunch(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, size_t shared_bytes,
                      cudaStream_t stream, const Arguments&... arguments) {
#if defined(TIDEPOOL_CUDA_EMULATED)
  return cuda_emulation::LaunchKernel(kernel, blocks, threads, shared_bytes, stream, arguments...);
#else
  cudaLaunchConfig_t config = {};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
#endif
}

// Throws kInternal when the launch is refused; nothing is queued then.
template <typename... Parameters, typename... Arguments>
void Launch(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, size_t shared_bytes,
            cudaStream_t stream, const Arguments&... arguments) {
  Check(TryLaunch(kernel, blocks, threads, shared_bytes, stream, arguments...),
        "cudaLaunchKernelEx");
}

// Blocks of `threads_per_block` for `threads` threads, at least 1 and at most `most`: kernels loop
// over what is left.
inline dim3 BlocksFor(int64_t threads, int threads_per_block, int64_t most = 4096) {
  const int64_t blocks = (threads + threads_per_block - 1) / threads_per_block;
  return dim3(static_cast<unsigned>(blocks < 1 ? 1 : blocks > most ? most : blocks));
}

#if defined(TIDEPOOL_CUDA_EMULATED)
template <typename T>
T* DynamicShared() {
  return static_cast<T*>(cuda_emulation::current_thread->shared);
}
#elif defined(__CUDACC__)
// The block's dynamic shared memory, aligned to 16 bytes.
template <typename T>
__device__ __forceinline__ T* DynamicShared() {
  extern __shared__ __align__(16) unsigned char tidepool_dynamic_shared[];
  return reinterpret_cast<T*>(tidepool_dynamic_shared);
}
#endif

#if defined(TIDEPOOL_CUDA_EMULATED) || defined(__CUDACC__)
// Of a one-dimensional grid: the number of this thread, and how many there are.
__device__ __forceinline__ int64_t GlobalThread() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ int64_t GlobalThreads() {
  return static_cast<int64_t>(gridDim.x) * blockDim.x;
}
#endif

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_RUNTIME_LAUNCH_H_
