// Convolutions and their gradients by cuDNN, where it is found: a provider of its own above the kernels
// of the backend, which run what it does not take.
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tidepool/backends/cuda/cudnn/cudnn.h"
#include "tidepool/backends/cuda/framework/registration.h"
#include "tidepool/memory/accounting/memory_charge.h"
#include "tidepool/memory/error.h"

namespace tidepool::cuda {
namespace {

constexpr char kCudnn[] = "cudnn";

Cudnn* Find(const KernelCall& call) {
  CudaDevice* const device = CudaDevice::Find(call.device.index);
  return device != nullptr ? Cudnn::Of(*device, call.queue) : nullptr;
}

bool Supports(const KernelCall& call) {
  Cudnn* const cudnn = Find(call);
  return cudnn != nullptr && cudnn->Supports(call);
}

size_t ScratchBytes(const KernelCall& call) { return Find(call)->ScratchBytes(call); }

// By the backend's own kernel, with scratch of its own: once for each kind of call that cuDNN said it
// could do and then could not.
void RunOwn(const KernelCall& call) {
  const DType dtype = call.outputs[0].dtype;
  for (const Kernel& kernel : KernelRegistry::Find(call.op, DeviceType::kCuda, dtype)) {
    if (std::strcmp(kernel.provider, kProvider) != 0) continue;
    CudaDevice& device = *CudaDevice::Find(call.device.index);
    KernelCall own = call;
    const size_t bytes = kernel.scratch_bytes != nullptr ? kernel.scratch_bytes(call) : 0;
    if (bytes == 0) return kernel.run(own);
    const MemoryCharge charge(MemoryKind::kWorkspace, static_cast<int64_t>(bytes), device.device());
    std::byte* const scratch = device.Allocate(bytes, 256);
    if (scratch == nullptr) {
      device.ThrowIfLost("cuDNN");
      ThrowResourceExhausted(absl::StrCat(device.name(), " refused ", bytes,
                                          " bytes of scratch for ", Info(call.op).name));
    }
    own.scratch = scratch;
    try {
      kernel.run(own);
    } catch (...) {
      device.Release(scratch, bytes);
      throw;
    }
    return device.Release(scratch, bytes);
  }
  ThrowUnimplemented(absl::StrCat("Op [", Info(call.op).name, "]: cuDNN refused, and no \"",
                                  kProvider, "\" kernel is linked"));
}

void Run(const KernelCall& call) {
  if (!Find(call)->Run(call)) RunOwn(call);
}

const bool registered = [] {
  for (const OpCode op : {OpCode::kConv2d, OpCode::kConv2dGradInput, OpCode::kConv2dGradFilter}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      KernelRegistry::Global().Add({op, DeviceType::kCuda, dtype, kCudnn, kPriority + 10, &Run,
                                    &ScratchBytes, &Supports, /*strided=*/false});
    }
  }
  KernelRegistry::Global().AddNote(kCudnn, &Cudnn::Description);
  return true;
}();

}  // namespace
}  // namespace tidepool::cuda
