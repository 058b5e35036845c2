// The cuBLAS handle of a compute queue, with a workspace of ours.
#ifndef TIDEPOOL_BACKENDS_CUDA_MATMUL_CUBLAS_H_
#define TIDEPOOL_BACKENDS_CUDA_MATMUL_CUBLAS_H_

#include <cstddef>
#include <mutex>

#include "cublas_v2.h"
#include "tidepool/backends/cuda/runtime/cuda_device.h"
#include "tidepool/memory/accounting/memory_charge.h"

namespace tidepool::cuda {

// Throws kInternal, out of memory kResourceExhausted, with the status' name.
void CheckCublas(cublasStatus_t status, const char* call);

// Made at the first product of a queue, on its stream, and kept for the queue that has the number next. The workspace (32 MiB for capability
// 9.0 and up, else 8: what NVIDIA advises) is on the ledger of the device; with it the library
// allocates nothing, and results are the same in every run. Handles take one thread at a time.
class Cublas {
 public:
  // Throws OutOfMemoryError when a budget refuses the workspace, kResourceExhausted when the device does.
  static Cublas& Of(CudaDevice& device, int queue = 0);

  // Calls use(handle) while no other thread does.
  template <typename Use>
  void With(Use use) {
    std::lock_guard<std::mutex> lock(mutex_);
    FollowStream();
    use(handle_);
  }

  // What the handle works in, for calls that take a workspace: one call after the other, as their
  // kernels run.
  std::byte* workspace() const { return workspace_; }
  size_t workspace_bytes() const { return workspace_bytes_; }

  // Products of f32 by the matrix units' 10-bit fractions (TF32): faster, errors of about 1e-3. Off
  // at first unless the environment has TIDEPOOL_CUDA_TF32=1.
  static void set_tf32(bool tf32);
  static bool tf32();

 private:
  Cublas(CudaDevice& device, int queue);
  void FollowStream();  // needs mutex_

  CudaDevice& device_;
  const int queue_;
  cudaStream_t stream_ = nullptr;  // that the handle works on
  std::mutex mutex_;
  MemoryCharge charge_, library_;
  cublasHandle_t handle_ = nullptr;
  std::byte* workspace_ = nullptr;
  size_t workspace_bytes_ = 0;
};

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_MATMUL_CUBLAS_H_
