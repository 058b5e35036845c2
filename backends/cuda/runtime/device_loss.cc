// Whether a refusal is lack of memory or the end of the device. Part of CudaDevice.
#include "tidepool/memory/provider/device_loss.h"
#include "tidepool/backends/cuda/runtime/cuda_device.h"
#include "tidepool/backends/cuda/runtime/error.h"
#include "tidepool/backends/cuda/runtime/refusal.h"

namespace tidepool::cuda {

void CudaDevice::ThrowIfLost(const std::string& who) {
  // Looking would make a capture invalid.
  if (!IsLost(device_) && !capturing()) {
    Activate();
    const cudaError_t error = cudaStreamQuery(compute(0));
    ForgetLastError(error);
    if (IsSticky(error)) LoseDevice(device_, Describe(error, "cudaStreamQuery"));
  }
  CheckNotLost(device_, who);
  ThrowIfRefused(device_, who);
}

void PinnedMemory::ThrowIfLost(const std::string& who) {
  if (CudaDevice* const device = CudaDevice::Find(of_.index)) device->ThrowIfLost(who);
}

}  // namespace tidepool::cuda
