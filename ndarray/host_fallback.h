// Operators of device arrays that run on the host after all: through the operands' mirrors, so that
// bytes move only when they are stale and the next one on the host finds them there.
#ifndef TIDEPOOL_NDARRAY_HOST_FALLBACK_H_
#define TIDEPOOL_NDARRAY_HOST_FALLBACK_H_

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "tidepool/ndarray/kernel/op_code.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// Why an operator without a kernel for these operands, or without memory for one, may not run on the
// host (WorkspaceConfig::helper_allow_fallback of the current workspace, memory without a host copy,
// a provider asked for by name); empty when it may.
std::string WhyNoFallback(absl::Span<const NDArray* const> inputs,
                          absl::Span<NDArray* const> outputs);
// All operands are smaller than WorkspaceConfig::helper_min_size of the current workspace, the inputs
// are on the host already, and it has a kernel.
bool BelongsOnHost(OpCode op, DType dtype, absl::Span<const NDArray* const> inputs,
                   absl::Span<NDArray* const> outputs);
// Runs it there. The outputs are the host's afterwards, until the device needs them. Throws as
// Dispatch, and what mirrors throw.
void DispatchOnHost(OpCode op, absl::Span<const NDArray* const> inputs,
                    absl::Span<NDArray* const> outputs, AttributesRef attributes);

// Calls that were to run on a device and had to run on the host since the program began. A workspace's
// are in its stats(). kInvalidArgument for codes that no operator has.
uint64_t HostFallbacksOf(OpCode op);

// One more of it; and all that were counted, in words.
void CountHostFallback(OpCode op);
std::string DescribeHostFallbacks();  // "add 3, sort 1"; empty when there were none

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_HOST_FALLBACK_H_
