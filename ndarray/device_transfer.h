// Bytes between the host and devices, for arrays of any strides: what copy, fill and the element
// functions do where no kernel can.
#ifndef TIDEPOOL_NDARRAY_DEVICE_TRANSFER_H_
#define TIDEPOOL_NDARRAY_DEVICE_TRANSFER_H_

#include <cstddef>
#include <functional>

#include "absl/types/span.h"
#include "tidepool/ndarray/kernel/op_code.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// What Dispatch(kCopy) and Dispatch(kFill) do for operands on two devices, or on one without such a
// kernel. Dense arrays of one type are one copy of bytes. A view with gaps is made dense by its own
// device where that has a copy kernel; else the host does it with the bytes from its first to its last
// element. Cost: the bytes once over the bus, twice where the host has to fill the gaps of `to`.
// Throw as the devices' copies and allocations do.
void CopyAcross(const NDArray& from, NDArray& to);
// The same in a dry run (kernel_scopes.h): nothing, but for integers between the host and what has addresses only (addresses_only.h), which are
// there for hosts that look at them, indices and labels. Dense ones of one type and shape.
void CopyInDryRun(const NDArray& from, NDArray& to);
void FillFromHost(double value, NDArray& to);

// Writes a dense array's elements by `write(first)` on the host, whatever device it is on. Throws
// kFailedPrecondition when it was closed before; one that is closed meanwhile keeps its bytes until
// then.
void WriteElements(NDArray& to, const std::function<void(std::byte* first)>& write);

// `bytes` at `at`, which lies in the memory of a device array that the caller has pinned
// (memory/pins.h).
void ReadFromDevice(const NDArray& array, const std::byte* at, size_t bytes, void* out);

// Before a kernel of their device: what is stale there of the operands' mirrors is queued to be copied,
// and the host's copies of the outputs become stale. Throws when a view of one is in the way. The
// caller has the operands pinned (memory/pins.h), here and below.
void PrepareMirrors(OpCode op, absl::Span<const NDArray* const> inputs,
                    absl::Span<NDArray* const> outputs);

// The same for work that is not one operator: `operation` names it in errors. Null and undefined ones
// are absent.
void PrepareMirrors(const char* operation, absl::Span<const NDArray* const> reads,
                    absl::Span<NDArray* const> writes);

// What the host has newer of arrays that the work to come reads is queued to be copied: those of one device in one call
// where it has that (memory/provider/host_copies_together.h), and not in one at each first use. Arrays of the host, and null
// and undefined ones, are left out. Throws kFailedPrecondition where one was closed, and as PrepareMirrors. Threads: any.
void SendToDevice(const char* operation, absl::Span<const NDArray* const> arrays);

// Pointer to the first element in the host copy of a dense device array (NDArray::data). Pins it,
// and throws when it was closed before.
void* HostCopyData(const NDArray& array, const char* what, bool to_write);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_DEVICE_TRANSFER_H_
