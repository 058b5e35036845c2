// The contract of a device's memory on the first CUDA device, real or emulated.
#include "tidepool/memory/testing/device_contract_suite.h"

#include "cuda_runtime_api.h"
#include "tidepool/backends/cuda/runtime/cuda_device.h"
#include "tidepool/backends/cuda/runtime/error.h"

namespace tidepool::cuda {
namespace {

void QueueFillIn(int queue, std::byte* to, std::byte value, size_t bytes) {
  const CudaDevice& device = *CudaDevice::Find(0);
  device.Activate();
  Check(cudaMemsetAsync(to, static_cast<int>(value), bytes, device.compute(queue)),
        "cudaMemsetAsync");
}
void QueueFill(std::byte* to, std::byte value, size_t bytes) { QueueFillIn(0, to, value, bytes); }

const bool registered = RegisterDeviceContract({.device = {DeviceType::kCuda, 0},
                                                .queue_fill = &QueueFill,
                                                .queue_fill_in = &QueueFillIn,
                                                .peer = {DeviceType::kCuda, 1}});

}  // namespace
}  // namespace tidepool::cuda
