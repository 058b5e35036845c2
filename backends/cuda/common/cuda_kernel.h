// Registration of kernels for CUDA devices, and the stream of a call.
#ifndef TIDEPOOL_BACKENDS_CUDA_COMMON_CUDA_KERNEL_H_
#define TIDEPOOL_BACKENDS_CUDA_COMMON_CUDA_KERNEL_H_

#include <cstddef>
#include <cstdint>

#include "cuda_runtime_api.h"
#include "tidepool/backends/cuda/framework/queue.h"
#include "tidepool/backends/cuda/framework/registration.h"
#include "tidepool/ndarray/kernel/registry.h"

namespace tidepool::cuda {

// That the kernels of a call are queued on: of the device that its outputs lie on.
inline cudaStream_t StreamOf(const KernelCall& call) { return QueueOf(call).stream; }

constexpr Kernel CudaKernel(OpCode op, DType dtype, void (*run)(const KernelCall&),
                            size_t (*scratch_bytes)(const KernelCall&) = nullptr,
                            bool strided = false) {
  return {op, DeviceType::kCuda, dtype, kProvider, kPriority, run, scratch_bytes, nullptr, strided};
}

// The four kernels of a template over the element type, for a KernelRegistrar's list; further
// arguments as of CudaKernel.
#define TIDEPOOL_CUDA_FLOAT_KERNELS(op, Run, ...)                                                  \
  ::tidepool::cuda::CudaKernel(op, DType::kFloat32, &Run<float> __VA_OPT__(, ) __VA_ARGS__),       \
      ::tidepool::cuda::CudaKernel(op, DType::kFloat64, &Run<double> __VA_OPT__(, ) __VA_ARGS__),  \
      ::tidepool::cuda::CudaKernel(op, DType::kFloat16, &Run<Float16> __VA_OPT__(, ) __VA_ARGS__), \
      ::tidepool::cuda::CudaKernel(op, DType::kBFloat16,                                           \
                                   &Run<BFloat16> __VA_OPT__(, ) __VA_ARGS__)

// The same where the scratch depends on the type too: Bytes is a template as well.
#define TIDEPOOL_CUDA_SCRATCH_KERNELS(op, Run, Bytes)                                    \
  ::tidepool::cuda::CudaKernel(op, DType::kFloat32, &Run<float>, &Bytes<float>),         \
      ::tidepool::cuda::CudaKernel(op, DType::kFloat64, &Run<double>, &Bytes<double>),   \
      ::tidepool::cuda::CudaKernel(op, DType::kFloat16, &Run<Float16>, &Bytes<Float16>), \
      ::tidepool::cuda::CudaKernel(op, DType::kBFloat16, &Run<BFloat16>, &Bytes<BFloat16>)

// Bytes rounded up so that what follows is aligned for any type.
constexpr int64_t Aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_COMMON_CUDA_KERNEL_H_
