#include "tidepool/ndarray/kernel_run.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_loss.h"
#include "tidepool/memory/provider/provider_calls.h"
#include "tidepool/memory/queue_use.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/kernel_scopes.h"

namespace tidepool {

namespace {

Place ScratchPlace(Device device) {
  return internal::kernel_scratch != nullptr ? Place::In(*internal::kernel_scratch).OnDevice(device)
                                             : Place::Scratch(device);
}

// Scratch lives as long as the call, in the current workspace: that of a network is the largest
// any layer needs, not the sum.
class Scratch {
 public:
  void* Get(size_t bytes, Device device) {
    const size_t spare = SpareBytes();
    handle_ = ScratchPlace(device).Allocate(bytes + spare);
    std::byte* const data = handle_->data;
    return spare == 0
               ? data
               : data + (kAlignment - reinterpret_cast<uintptr_t>(data) % kAlignment) % kAlignment;
  }
  Buffer* buffer() const { return handle_.get(); }

 private:
  // What kernels count on (KernelCall::scratch). A workspace may be configured for less.
  static constexpr size_t kAlignment = 64;

  static size_t SpareBytes() {
    const WorkspaceCore* const core =
        internal::kernel_scratch != nullptr ? internal::kernel_scratch->core() : CurrentPlace();
    return core != nullptr && core->alignment() < kAlignment ? kAlignment - core->alignment() : 0;
  }

  BufferHandle handle_;
};

// On a device: behind the work in its other queues that the call needs.
void RunInOrder(const Kernel& kernel, const KernelCall& call, Buffer* scratch,
                absl::Span<const NDArray* const> inputs, absl::Span<NDArray* const> outputs) {
  QueueUse uses[kMostInputs + kMostOutputs + 1];
  size_t count = 0;
  for (const NDArray* input : inputs) {
    if (input != nullptr) uses[count++] = {input->buffer().get(), false};
  }
  for (const NDArray* output : outputs) uses[count++] = {output->buffer().get(), true};
  uses[count++] = {scratch, true};
  const OrderedUses ordered(call.device, call.queue, absl::MakeConstSpan(uses, count));
  NoteOperation(call.device, call.queue, Info(call.op).name);
  kernel.run(call);
}

size_t ScratchBytes(const Kernel& kernel, const KernelCall& call) {
  try {
    return kernel.scratch_bytes != nullptr ? kernel.scratch_bytes(call) : 0;
  } catch (...) {
    internal::RethrowOfKernel(kernel, call.op);
  }
}

void Run(const Kernel& kernel, KernelCall& call, absl::Span<const NDArray* const> inputs,
         absl::Span<NDArray* const> outputs) {
  Scratch scratch;
  const size_t bytes = ScratchBytes(kernel, call);
  if (bytes > 0) {
    call.scratch = scratch.Get(bytes, call.device);
    call.scratch_bytes = bytes;
  }
  if (internal::KernelsAreOff()) return;
  try {
    if (call.device != Host()) return RunInOrder(kernel, call, scratch.buffer(), inputs, outputs);
    kernel.run(call);
  } catch (...) {
    internal::RethrowOfKernel(kernel, call.op);
  }
}

// For kernels that take dense operands only: copies in, and out again. `operands` are the call's.
void RunDense(const Kernel& kernel, KernelCall& call, CallOperands& operands,
              absl::Span<const NDArray* const> inputs, absl::Span<NDArray* const> outputs) {
  NDArray inputs_copied[kMostInputs], outputs_copied[kMostOutputs];
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!operands.input(i).present || operands.input(i).dense) continue;
    inputs_copied[i] = inputs[i]->CopyTo(ScratchPlace(call.device));
    Describe(inputs_copied[i], operands.input(i));
  }
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (operands.output(o).dense) continue;
    outputs_copied[o] = outputs[o]->CopyTo(ScratchPlace(call.device));
    Describe(outputs_copied[o], operands.output(o));
  }
  const NDArray* read[kMostInputs];
  NDArray* written[kMostOutputs];
  for (size_t i = 0; i < inputs.size(); ++i) {
    read[i] = inputs_copied[i].is_defined() ? &inputs_copied[i] : inputs[i];
  }
  for (size_t o = 0; o < outputs.size(); ++o) {
    written[o] = outputs_copied[o].is_defined() ? &outputs_copied[o] : outputs[o];
  }
  Run(kernel, call, absl::MakeConstSpan(read, inputs.size()),
      absl::MakeConstSpan(written, outputs.size()));
  for (size_t o = 0; o < outputs.size(); ++o) {
    const NDArray& copy = outputs_copied[o];
    if (!copy.is_defined()) continue;
    // A part of this call's write, which counts as one.
    std::atomic<uint32_t>& version = outputs[o]->buffer()->version;
    const uint32_t before = version.load(std::memory_order_relaxed);
    Dispatch(OpCode::kCopy, {&copy}, {outputs[o]});
    version.store(before, std::memory_order_relaxed);
  }
}

}  // namespace

void internal::RethrowOfKernel(const Kernel& kernel, OpCode op) {
  const std::string who = absl::StrCat("Op [", Info(op).name, "]");
  try {
    throw;
  } catch (Error& error) {
    if (error.message().rfind("Op [", 0) != 0) error.AddContext(who);
    throw;
  } catch (...) {
    RethrowAsError(who, absl::StrCat("the kernel of ", kernel.provider));
  }
}

void internal::RunWithNeeds(const Kernel& kernel, KernelCall& call, CallOperands& operands,
                            absl::Span<const NDArray* const> inputs,
                            absl::Span<NDArray* const> outputs) {
  if (kernel.strided || operands.all_dense()) {
    Run(kernel, call, inputs, outputs);
  } else {
    RunDense(kernel, call, operands, inputs, outputs);
  }
}

}  // namespace tidepool
