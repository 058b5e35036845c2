// Single blocks outside of workspaces, counted in the ledger. The place of arrays that live in no
// workspace, and the baseline that workspaces are measured against. On the host: malloc.
//
// Every block has kReadableTailBytes readable bytes behind it. Threads: any.
#ifndef TIDEPOOL_MEMORY_RESOURCE_HEAP_H_
#define TIDEPOOL_MEMORY_RESOURCE_HEAP_H_

#include <cstddef>

#include "tidepool/memory/accounting/memory_kind.h"
#include "tidepool/memory/device.h"

namespace tidepool {

class DeviceProvider;

// `alignment`: a power of two; raised to what the device needs. Throws OutOfMemoryError with the
// ledger when the provider refuses.
void* HeapAllocate(size_t bytes, size_t alignment, MemoryKind kind, DeviceProvider& provider);
// The same arguments as given to HeapAllocate.
void HeapRelease(void* data, size_t bytes, MemoryKind kind, DeviceProvider& provider) noexcept;

// On a device, the host unless said otherwise. Throws kUnimplemented when its provider is not
// linked.
void* HeapAllocate(size_t bytes, size_t alignment, MemoryKind kind, Device device = Host());
void HeapRelease(void* data, size_t bytes, MemoryKind kind, Device device = Host()) noexcept;

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_RESOURCE_HEAP_H_
