// Every operator on simulated devices: the reference's kernels, on the bytes behind the addresses,
// queued as the device's kernels are.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/ndarray/kernel/kept_call.h"
#include "tidepool/ndarray/kernel/registry.h"

namespace tidepool {
namespace {

// Of the host, for the call's type.
const Kernel& HostKernel(const KernelCall& call) {
  const DType dtype = Info(call.op).key_is_input() ? call.inputs[0].dtype : call.outputs[0].dtype;
  for (const Kernel& kernel : KernelRegistry::Find(call.op, DeviceType::kHost, dtype)) {
    const std::string_view provider = kernel.provider;
    if (provider == "reference" || provider == "builtin") return kernel;
  }
  ThrowInternal(std::string("simulated: the reference has no ") + Info(call.op).name + " " +
                DTypeName(dtype));
}

void Run(const KernelCall& call) {
  SimulatedDevice& device = SimulatedDevice::Get(call.device.index);
  const Kernel& kernel = HostKernel(call);
  // The kernel may use the bytes from the lowest to the highest element, which must all be there.
  std::vector<SimulatedQueues::Range> ranges;
  for (const bool writes : {false, true}) {
    for (const TensorRef& ref : writes ? call.outputs : call.inputs) {
      const ByteExtent extent = ExtentOf(ref);
      if (extent.begin == nullptr) continue;
      device.Hidden(extent.begin, static_cast<size_t>(extent.end - extent.begin));
      ranges.push_back({extent.begin, extent.end, writes});
    }
  }
  auto kept = std::make_shared<KeptCall>(call);
  kept->TranslateAddresses(
      [&](void* address) { return device.Hidden(static_cast<std::byte*>(address), 1); });
  device.QueueKernel(
      std::move(ranges), [kept, &kernel] { kernel.run(kept->call()); }, call.queue);
}

// One for each kernel of the reference, and for those of operators that programs add.
void Follow(const Kernel& kernel) {
  const std::string_view provider = kernel.provider;
  if (kernel.device != DeviceType::kHost || (provider != "reference" && provider != "builtin"))
    return;
  const DeviceType simulated = DeviceType::Named("simulated");
  if (!KernelRegistry::Find(kernel.op, simulated, kernel.dtype).empty()) return;
  KernelRegistry::Global().Add({kernel.op, simulated, kernel.dtype, "simulated", 10, &Run, nullptr,
                                nullptr, kernel.strided});
}

const bool registered = [] {
  KernelRegistry::Global().Follow(&Follow);
  return true;
}();

}  // namespace
}  // namespace tidepool
