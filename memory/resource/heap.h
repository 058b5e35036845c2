// Plain memory of the process heap, counted in the ledger. The place of arrays that live in no
// workspace, and the baseline that workspaces are measured against.
//
// Every block has kReadableTailBytes readable bytes behind it. Threads: any.
#ifndef TIDEPOOL_MEMORY_RESOURCE_HEAP_H_
#define TIDEPOOL_MEMORY_RESOURCE_HEAP_H_

#include <cstddef>

#include "tidepool/memory/accounting/memory_kind.h"
#include "tidepool/memory/accounting/memory_owner.h"

namespace tidepool {

// `alignment`: a power of two. `owner`: who it is charged to; null: the process. Throws
// OutOfMemoryError with the ledger when a budget or malloc refuses, after asking the Reclaimer.
void* HeapAllocate(size_t bytes, size_t alignment, MemoryKind kind, MemoryOwner* owner = nullptr);
// `bytes`, `kind` and `owner` as given to HeapAllocate.
void HeapRelease(void* data, size_t bytes, MemoryKind kind, MemoryOwner* owner = nullptr) noexcept;

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_RESOURCE_HEAP_H_
