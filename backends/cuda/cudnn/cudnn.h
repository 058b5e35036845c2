// Convolutions by cuDNN in one compute queue: its handle, and what it said to each kind of convolution.
#ifndef TIDEPOOL_BACKENDS_CUDA_CUDNN_CUDNN_H_
#define TIDEPOOL_BACKENDS_CUDA_CUDNN_CUDNN_H_

#include <array>
#include <atomic>
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

  // Made at the first convolution of a queue; null where cuDNN is not found or does not start, and while a graph is
  // captured before it was made. Threads: any.
  static Cudnn* Of(CudaDevice& device, int queue);
  // "version 91000", with the kinds of convolutions that it is not used for and why; or why it is not used.
  static std::string Description();

  // Whether it takes a call of conv2d, conv2d_grad_input or conv2d_grad_filter: f32, f16 or bf16, the
  // same padding on both sides, operands at multiples of 16 bytes, and an algorithm that gives the
  // same bits in every run. Asked of the library once per kind, shape and type. Each of the three in each type is compared
  // with our kernel in a small case first: one that gives other results, or knows neither of two cases, is left to ours, and
  // says nothing about the others.
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
    void *bias = nullptr, *relu = nullptr, *identity = nullptr;  // of forward ones
    bool can_fuse = false;
    size_t scratch_bytes = 0;
    bool is_usable = false;
  };

  // What a forward convolution does in the same kernel.
  enum class Fused : uint8_t { kNothing, kBias, kBiasAndRelu };

  Cudnn(CudaDevice& device, int queue, const CudnnLibrary& library);
  int FollowStream();                    // needs mutex_; a status of the library
  Plan& PlanOf(const KernelCall& call);  // needs mutex_
  Plan MakePlan(const KernelCall& call);
  void Release(Plan& plan);
  // The operator in the type: whether its results are those of our kernel, found out once.
  bool IsRight(OpCode op, DType dtype);
  // Empty when they are.
  std::string CheckResults(OpCode op, DType dtype);
  // The same of a small case; not_supported: the library does not know it.
  std::string CheckCase(const Kernel& own, OpCode op, DType dtype, int64_t stride, Fused fused,
                        bool* not_supported);
  // The most whose results are those of our kernel, a NaN among them: a library's ReLU may make 0 of it.
  Fused MostToFuse(const Kernel& own, DType dtype);
  bool Run(const KernelCall& call, Fused fused);
  // False: it did nothing of it.
  bool RunFused(const KernelCall& call, Plan& plan, Fused fused);  // needs mutex_
  // As Supports() and Run(), of what may be wrong.
  bool HasPlan(const KernelCall& call);

  CudaDevice& device_;
  const int queue_;
  cudaStream_t stream_ = nullptr;  // that the handle works on
  const CudnnLibrary& library_;
  MemoryCharge charge_;
  void* handle_ = nullptr;
  std::mutex mutex_;
  std::map<Key, Plan> plans_;
  enum class Check : uint8_t { kNotYet, kRight, kLeftToOurs };
  std::mutex checking_;  // before mutex_
  std::atomic<Check> checks_[3][kDTypes] = {};
  std::atomic<Fused> fused_[kDTypes] = {};
};

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_CUDNN_CUDNN_H_
