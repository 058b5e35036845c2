// Which of the linked kernels runs a call.
#ifndef TIDEPOOL_NDARRAY_KERNEL_CHOICE_H_
#define TIDEPOOL_NDARRAY_KERNEL_CHOICE_H_

#include "absl/types/span.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

namespace internal {
const Kernel* ChooseAmong(absl::Span<const Kernel> candidates, const KernelCall& call, DType dtype,
                          absl::Span<const NDArray* const> inputs,
                          absl::Span<NDArray* const> outputs);
}  // namespace internal

// The first that supports the call, of the provider asked for (ScopedProvider) or of any. Null: on a device without such a
// kernel, where the host does it. Throws kUnimplemented, listing what is linked, where it may not.
inline const Kernel* ChooseKernel(const KernelCall& call, DType dtype,
                                  absl::Span<const NDArray* const> inputs,
                                  absl::Span<NDArray* const> outputs) {
  const absl::Span<const Kernel> candidates =
      KernelRegistry::Find(call.op, call.device.type, dtype);
  const bool first_runs = !candidates.empty() && candidates[0].supports == nullptr &&
                          ScopedProvider::Current() == nullptr;
  return first_runs ? &candidates[0]
                    : internal::ChooseAmong(candidates, call, dtype, inputs, outputs);
}

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_KERNEL_CHOICE_H_
