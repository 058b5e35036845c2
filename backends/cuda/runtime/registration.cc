// Linking it plugs the memory of CUDA devices in, and says in `tidepool kernels` which there are.
#include <string>

#include "absl/strings/str_cat.h"
#include "tidepool/backends/cuda/runtime/cuda_device.h"
#include "tidepool/memory/device_copy.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/ndarray/kernel/registry.h"

namespace tidepool::cuda {
namespace {

DeviceProvider* MakeProvider(uint8_t index) { return CudaDevice::Find(index); }

std::string Note() {
  std::string text;
  for (int i = 0; i < CudaDevice::Count(); ++i) {
    if (const CudaDevice* device = CudaDevice::Find(i)) {
      absl::StrAppend(&text, text.empty() ? "" : "; ", device->name(), " is ", device->model(),
                      ", ", device->total_bytes() >> 20, " MiB, ", device->multiprocessors(),
                      " multiprocessors");
    }
  }
  return text.empty() ? "not used: " + CudaDevice::WhyAbsent() : text;
}

class Peers final : public PeerCopies {
 public:
  std::string WhyNot(Device from, Device to) override {
    return CudaDevice::Find(from.index)->WhyNoPeer(*CudaDevice::Find(to.index));
  }
  QueuePoint Queue(const PeerCopy& copy) override {
    return CudaDevice::Find(copy.from_device.index)
        ->QueueCopyToPeer(*CudaDevice::Find(copy.to_device.index), copy.to_queue, copy.to,
                          copy.from, copy.bytes, copy.after, copy.after_there);
  }
};

const DeviceProviderRegistrar registrar(DeviceType::kCuda, &MakeProvider);
const PeerCopiesRegistrar peers(DeviceType::kCuda, new Peers);
const bool noted = [] {
  KernelRegistry::Global().AddNote("cuda", &Note);
  return true;
}();

}  // namespace
}  // namespace tidepool::cuda
