// Every operator on simulated devices: the reference's kernels, on the bytes behind the addresses,
// queued as the device's kernels are.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
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
  for (const Kernel& kernel :
       KernelRegistry::Find(call.op, DeviceType::kHost, dtype)) {
    const std::string_view provider = kernel.provider;
    if (provider == "reference" || provider == "builtin") return kernel;
  }
  ThrowInternal(std::string("simulated: the reference has no ") + Info(call.op).name + " " +
                DTypeName(dtype));
}

// What the reference has for dense operands only.
constexpr OpCode kDenseOnly[] = {
    OpCode::kGather,        OpCode::kScatterAdd,       OpCode::kOneHot,
    OpCode::kFlip,          OpCode::kTriangle,         OpCode::kCumSum,
    OpCode::kRandomUniform, OpCode::kRandomNormal,     OpCode::kRandomBernoulli,
    OpCode::kDropout,       OpCode::kRandomIntegers,   OpCode::kRandomPermutation,
    OpCode::kSort,          OpCode::kArgSort,          OpCode::kTopK,
    OpCode::kScatter,       OpCode::kCumProd,          OpCode::kSearchSorted};

bool TakesStrides(OpCode op) {
  return std::find(std::begin(kDenseOnly), std::end(kDenseOnly), op) == std::end(kDenseOnly);
}

void Run(const KernelCall& call) {
  SimulatedDevice& device = SimulatedDevice::Get(call.device.index);
  const Kernel& kernel = HostKernel(call);
  if (kernel.strided != TakesStrides(call.op)) {
    ThrowInternal(std::string("simulated: kDenseOnly is wrong for ") + Info(call.op).name);
  }
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
  kept->TranslateAddresses([&](void* address) { return device.Hidden(static_cast<std::byte*>(address), 1); });
  device.QueueKernel(std::move(ranges), [kept, &kernel] { kernel.run(kept->call()); }, call.queue);
}

const bool registered = [] {
  for (int op = 0; op < kOpCodes; ++op) {
    for (int dtype = 0; dtype < kDTypes; ++dtype) {
      if (!Contains(Info(static_cast<OpCode>(op)).types, static_cast<DType>(dtype))) continue;
      KernelRegistry::Global().Add({static_cast<OpCode>(op), DeviceType::Named("simulated"),
                                    static_cast<DType>(dtype), "simulated", 10, &Run, nullptr,
                                    nullptr, TakesStrides(static_cast<OpCode>(op))});
    }
  }
  return true;
}();

}  // namespace
}  // namespace tidepool
