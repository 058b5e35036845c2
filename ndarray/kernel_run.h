// Runs a kernel that was chosen, with what it needs around it.
#ifndef TIDEPOOL_NDARRAY_KERNEL_RUN_H_
#define TIDEPOOL_NDARRAY_KERNEL_RUN_H_

#include "absl/types/span.h"
#include "tidepool/ndarray/call_operands.h"
#include "tidepool/ndarray/kernel/kernel.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

namespace internal {
// Within a handler, of what a function of the kernel threw: an Error says the operator first where it did not, std::bad_alloc
// passes, and all else becomes kInternal, which names operator and provider.
[[noreturn]] void RethrowOfKernel(const Kernel& kernel, OpCode op);
void RunWithNeeds(const Kernel& kernel, KernelCall& call, CallOperands& operands,
                  absl::Span<const NDArray* const> inputs, absl::Span<NDArray* const> outputs);
}  // namespace internal

// With its scratch, in the order of the device's queues. Views with gaps are copied first, and results back, for kernels
// that take dense operands only. `operands` are those of the call.
inline void RunKernel(const Kernel& kernel, KernelCall& call, CallOperands& operands,
                      absl::Span<const NDArray* const> inputs, absl::Span<NDArray* const> outputs) {
  if (call.device == Host() && kernel.scratch_bytes == nullptr &&
      (kernel.strided || operands.all_dense())) {
    try {
      return kernel.run(call);
    } catch (...) {
      internal::RethrowOfKernel(kernel, call.op);
    }
  }
  internal::RunWithNeeds(kernel, call, operands, inputs, outputs);
}

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_KERNEL_RUN_H_
