// Memory from wherever the calling thread is: its current workspace, or the heap.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_ALLOCATE_H_
#define TIDEPOOL_MEMORY_WORKSPACE_ALLOCATE_H_

#include <cstddef>

#include "tidepool/memory/buffer.h"
#include "tidepool/memory/workspace/thread_state.h"
#include "tidepool/memory/workspace/workspace_core.h"

namespace tidepool {

// The heap of the device whose workspace is current but switched off, aligned as there; else of the host.
Buffer* AllocateOnHeapHere(size_t bytes);

// The caller owns the one reference. Throws OutOfMemoryError by the workspace's spill policy.
inline Buffer* AllocateHere(size_t bytes) {
  WorkspaceCore* place = CurrentPlace();
  return place != nullptr ? place->Allocate(bytes) : AllocateOnHeapHere(bytes);
}

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_ALLOCATE_H_
