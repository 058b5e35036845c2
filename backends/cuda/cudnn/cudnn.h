// Convolutions by cuDNN in one compute queue: its handle, and what it said to each kind of convolution.
#ifndef TIDEPOOL_BACKENDS_CUDA_CUDNN_CUDNN_H_
#define TIDEPOOL_BACKENDS_CUDA_CUDNN_CUDNN_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "tidepool/backends/cuda/cudnn/cudnn_library.h"
#include "tidepool/backends/cuda/runtime/cuda_device.h"
#include "tidepool/memory/accounting/memory_charge.h"
#include "tidepool/ndarray/kernel/kernel.h"

namespace tidepool::cuda {

class Cudnn {
 public:
  ~Cudnn();
  Cudnn(const Cudnn&) = delete;

  // Made at the first convolution of a queue; null where cuDNN is not found, does not start or gives
  // other results than our kernels for a small convolution of each kind, and while a graph is
  // captured before it was made. Threads: any.
  static Cudnn* Of(CudaDevice& device, int queue);
  // "version 91000", or why it is not used.
  static std::string Description();

  // Whether it takes a call of conv2d, conv2d_grad_input or conv2d_grad_filter: f32, f16 or bf16, the
  // same padding on both sides, operands at multiples of 16 bytes, and an algorithm that gives the
  // same bits in every run. Asked of the library once per kind, shape and type.
  bool Supports(const KernelCall& call);
  // Of a supported call.
  size_t ScratchBytes(const KernelCall& call);
  // Queues it. False: the library refused after all, nothing was queued and it will not be asked
  // again. Throws kInternal with the library's words for other failures.
  bool Run(const KernelCall& call);

 private:
  using Key = std::array<int64_t, 20>;
  struct Plan {
    void *input = nullptr, *filter = nullptr, *output = nullptr, *convolution = nullptr;
    size_t scratch_bytes = 0;
    bool is_usable = false;
  };

  Cudnn(CudaDevice& device, int queue, const CudnnLibrary& library);
  int FollowStream();  // needs mutex_; a status of the library
  Plan& PlanOf(const KernelCall& call);  // needs mutex_
  Plan MakePlan(const KernelCall& call);
  void Release(Plan& plan);
  // Empty when the results of our kernels are its results too.
  std::string CheckResults();

  CudaDevice& device_;
  const int queue_;
  cudaStream_t stream_ = nullptr;  // that the handle works on
  const CudnnLibrary& library_;
  MemoryCharge charge_;
  void* handle_ = nullptr;
  std::mutex mutex_;
  std::map<Key, Plan> plans_;
};

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_CUDNN_CUDNN_H_
