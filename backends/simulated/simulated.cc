// Every operator on simulated devices: the reference's kernels, on the bytes behind the addresses.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/ndarray/kernel/registry.h"

namespace tidepool {
namespace {

// Of the host, for the call's type.
const Kernel& HostKernel(const KernelCall& call) {
  const DType dtype = Info(call.op).key_is_input() ? call.inputs[0].dtype : call.outputs[0].dtype;
  for (const Kernel& kernel :
       KernelRegistry::Global().Find(call.op, DeviceType::kHost, dtype)) {
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
    OpCode::kSort,          OpCode::kArgSort,          OpCode::kTopK};

bool TakesStrides(OpCode op) {
  return std::find(std::begin(kDenseOnly), std::end(kDenseOnly), op) == std::end(kDenseOnly);
}

// Begins with the lowest element; the kernel may use the bytes up to the highest.
TensorRef Translated(SimulatedDevice& device, const TensorRef& ref) {
  TensorRef hidden = ref;
  if (!ref.present || ref.data == nullptr || ref.NumElements() == 0) return hidden;
  int64_t lowest = 0, highest = 0;
  for (int i = 0; i < ref.rank; ++i) {
    const int64_t reach = (ref.dims[i] - 1) * ref.strides[i];
    (reach < 0 ? lowest : highest) += reach;
  }
  const auto width = static_cast<int64_t>(DTypeBytes(ref.dtype));
  const std::byte* const begin = ref.as<std::byte>() + lowest * width;
  hidden.data = device.Hidden(begin, static_cast<size_t>((highest - lowest + 1) * width)) -
                lowest * width;
  return hidden;
}

void Run(const KernelCall& call) {
  constexpr size_t kMostOperands = 16;
  SimulatedDevice& device = SimulatedDevice::Get(call.device.index);
  TensorRef operands[kMostOperands];
  size_t count = 0;
  for (const TensorRef& ref : call.inputs) operands[count++] = Translated(device, ref);
  for (const TensorRef& ref : call.outputs) operands[count++] = Translated(device, ref);
  KernelCall translated = call;
  translated.inputs = absl::MakeConstSpan(operands, call.inputs.size());
  translated.outputs = absl::MakeConstSpan(operands + call.inputs.size(), call.outputs.size());
  const Kernel& kernel = HostKernel(call);
  if (kernel.strided != TakesStrides(call.op)) {
    ThrowInternal(std::string("simulated: kDenseOnly is wrong for ") + Info(call.op).name);
  }
  kernel.run(translated);
}

const bool registered = [] {
  for (int op = 0; op < kOpCodes; ++op) {
    for (int dtype = 0; dtype < kDTypes; ++dtype) {
      if (!Contains(Info(static_cast<OpCode>(op)).types, static_cast<DType>(dtype))) continue;
      KernelRegistry::Global().Add({static_cast<OpCode>(op), DeviceType::kSimulated,
                                    static_cast<DType>(dtype), "simulated", 10, &Run, nullptr,
                                    nullptr, TakesStrides(static_cast<OpCode>(op))});
    }
  }
  return true;
}();

}  // namespace
}  // namespace tidepool
