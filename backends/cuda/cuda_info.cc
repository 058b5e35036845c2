// Which CUDA devices there are. Ends with 0 when there is one, else with 3 after saying why.
#include <cstdio>

#include "tidepool/backends/cuda/cudnn/cudnn_library.h"
#include "tidepool/backends/cuda/runtime/cuda_device.h"

int main() {
  using tidepool::cuda::CudaDevice;
  using tidepool::cuda::CudnnLibrary;
  int found = 0;
  for (int i = 0; i < CudaDevice::Count(); ++i) {
    const CudaDevice* const device = CudaDevice::Find(i);
    if (device == nullptr) continue;
    ++found;
    std::printf("%s: %s, capability %d.%d, %d multiprocessors, %zu MiB\n", device->name().c_str(),
                device->model().c_str(), device->capability() / 10, device->capability() % 10,
                device->multiprocessors(), device->total_bytes() >> 20);
  }
  if (found > 0) {
    std::printf("cuDNN: %s\n", CudnnLibrary::Description().c_str());
    return 0;
  }
  std::printf("no CUDA device: %s\n", CudaDevice::WhyAbsent().c_str());
  return 3;
}
