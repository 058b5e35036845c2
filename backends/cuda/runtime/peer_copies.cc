// Copies to other CUDA devices, and the access to memory that these need. Part of CudaDevice.
#include "absl/strings/str_cat.h"
#include "tidepool/backends/cuda/runtime/cuda_device.h"
#include "tidepool/backends/cuda/runtime/driver_memory.h"
#include "tidepool/backends/cuda/runtime/error.h"
#include "tidepool/memory/error.h"

namespace tidepool::cuda {

bool CudaDevice::LetAccess(std::byte* at, size_t bytes, int device) const noexcept {
  CUmemAccessDesc access = {};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return FindDriverMemory()->set_access(reinterpret_cast<CUdeviceptr>(at), bytes, &access, 1) ==
         CUDA_SUCCESS;
}

std::string CudaDevice::LetPeer(int device) {
  cudaMemAccessDesc access = {};
  access.location.type = cudaMemLocationTypeDevice;
  access.location.id = device;
  access.flags = cudaMemAccessFlagsProtReadWrite;
  const cudaError_t error = cudaMemPoolSetAccess(pool_, &access, 1);
  if (error != cudaSuccess) {
    cudaGetLastError();
    return Describe(error, "cudaMemPoolSetAccess");
  }
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [at, bytes] : pieces_) {
    if (!LetAccess(at, bytes, device))
      return absl::StrCat("cuMemSetAccess refused memory of ", name());
  }
  peers_ |= 1u << device;
  return "";
}

std::string CudaDevice::WhyNoPeer(CudaDevice& there) {
  int can = 0;
  const cudaError_t error = cudaDeviceCanAccessPeer(&can, index(), there.index());
  if (error != cudaSuccess) {
    cudaGetLastError();
    return Describe(error, "cudaDeviceCanAccessPeer");
  }
  if (can == 0) return absl::StrCat(name(), " cannot access memory of ", there.name());
  return there.LetPeer(index());
}

// In a stream of this device's, which reads its own memory and writes the other's.
QueuePoint CudaDevice::QueueCopyToPeer(CudaDevice& there, int queue_there, std::byte* to,
                                       const std::byte* from, size_t bytes, QueuePoint after,
                                       QueuePoint after_there) {
  Activate();
  points_.StreamWait(to_peers_, after);
  there.points_.StreamWait(to_peers_, after_there);
  Check(cudaMemcpyPeerAsync(to, there.index(), from, index(), bytes, to_peers_),
        "cudaMemcpyPeerAsync");
  QueuePoint point;
  try {
    point = last_to_peers_.Note([&] { return points_.Record(to_peers_); });
    points_.StreamWait(there.compute(queue_there), point);
  } catch (...) {
    // The copy is queued already: where the other queue cannot come behind it, it must be over.
    Check(cudaStreamSynchronize(to_peers_), "cudaStreamSynchronize");
  }
  blocks_->NoteCopy(from, point);
  return point;
}

}  // namespace tidepool::cuda
