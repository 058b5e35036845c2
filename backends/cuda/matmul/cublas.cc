#include "tidepool/backends/cuda/matmul/cublas.h"

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "tidepool/backends/cuda/runtime/error.h"
#include "tidepool/memory/error.h"

namespace tidepool::cuda {
namespace {

#if defined(TIDEPOOL_CUDA_EMULATED)
// Not used there, and the emulation opens and closes all device memory around each kernel.
constexpr size_t kHopperWorkspace = size_t{1} << 16, kWorkspace = size_t{1} << 16;
#else
constexpr size_t kHopperWorkspace = size_t{32} << 20, kWorkspace = size_t{8} << 20;
#endif

std::atomic<bool>& Tf32() {
  static std::atomic<bool> tf32{[] {
    const char* const text = std::getenv("TIDEPOOL_CUDA_TF32");
    return text != nullptr && std::string(text) == "1";
  }()};
  return tf32;
}

int64_t FreeBytes() {
  size_t free = 0, total = 0;
  return cudaMemGetInfo(&free, &total) == cudaSuccess ? static_cast<int64_t>(free) : 0;
}

}  // namespace

void CheckCublas(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const std::string message = absl::StrCat(call, ": ", cublasGetStatusName(status));
  ThrowIfCurrentIsLost(call);
  if (status == CUBLAS_STATUS_ALLOC_FAILED) ThrowResourceExhausted(message);
  ThrowInternal(message);
}

void Cublas::set_tf32(bool tf32) { Tf32() = tf32; }
bool Cublas::tf32() { return Tf32(); }

Cublas& Cublas::Of(CudaDevice& device, int queue) {
  static std::mutex making;
  static Cublas* made[kMaxDevicesPerType][kMostQueues] = {};
  std::lock_guard<std::mutex> lock(making);
  Cublas*& cublas = made[device.index()][queue];
  if (cublas == nullptr) cublas = new Cublas(device, queue);
  return *cublas;
}

// A queue that was closed leaves its number to another, which begins behind it.
void Cublas::FollowStream() {
  cudaStream_t const stream = device_.compute(queue_);
  if (stream == stream_) return;
  // The stream first: setting it takes the workspace away.
  CheckCublas(cublasSetStream(handle_, stream), "cublasSetStream");
  CheckCublas(cublasSetWorkspace(handle_, workspace_, workspace_bytes_), "cublasSetWorkspace");
  stream_ = stream;
}

Cublas::Cublas(CudaDevice& device, int queue) : device_(device), queue_(queue) {
  device.Activate();
  const size_t bytes = device.capability() >= 90 ? kHopperWorkspace : kWorkspace;
  charge_ = MemoryCharge(MemoryKind::kWorkspace, static_cast<int64_t>(bytes), device.device());
  std::byte* const workspace = device.Allocate(bytes, 256);
  if (workspace == nullptr) {
    device.ThrowIfLost("cuBLAS");
    ThrowResourceExhausted(
        absl::StrCat(device.name(), " refused the workspace of cuBLAS, ", bytes, " bytes"));
  }
  workspace_ = workspace;
  workspace_bytes_ = bytes;
  const int64_t before = FreeBytes();
  try {
    CheckCublas(cublasCreate(&handle_), "cublasCreate");
    // Parts of long sums of f16 and bf16 are added in f32, as products are documented; else the library may round each.
    CheckCublas(cublasSetMathMode(handle_, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION),
                "cublasSetMathMode");
    FollowStream();
    const int64_t taken = before - FreeBytes();
    if (taken > 0) library_ = MemoryCharge::Imported(taken, device.device());
  } catch (...) {
    if (handle_ != nullptr) cublasDestroy(handle_);
    device.Release(workspace, bytes);
    throw;
  }
}

}  // namespace tidepool::cuda
