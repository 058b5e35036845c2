// Raw bytes of a workspace, for who has neither arrays nor containers.
//
//   void* const data = AllocateBytes(workspace, 1000);
//   ...
//   ReleaseBytes(data, 1000);                       // before the cycle ends
//
// Where they live, and what becomes of bytes that outlive their cycle, is as with containers
// (workspace_resource.h); they are not part of plans. The bytes are not initialised. `alignment`: a
// power of two. Threads: any; bytes may be released on any thread, at any time.
#ifndef TIDEPOOL_MEMORY_PMR_BLOCK_BYTES_H_
#define TIDEPOOL_MEMORY_PMR_BLOCK_BYTES_H_

#include <cstddef>

#include "tidepool/memory/workspace/workspace.h"

namespace tidepool {

inline constexpr size_t kBytesAlignment = 16;  // unless the caller says otherwise

// In the cycle of `workspace` that is open on the calling thread; without one, the process's. 0
// bytes are an address of their own. Throws OutOfMemoryError, and kInvalidArgument when the
// workspace's memory is not the host's or the alignment is no power of two.
void* AllocateBytes(Workspace& workspace, size_t bytes, size_t alignment = kBytesAlignment);
// From wherever the calling thread is: the workspace of its innermost scope, or the process.
void* AllocateBytesHere(size_t bytes, size_t alignment = kBytesAlignment);
// With the arguments they were allocated with. Null: nothing happens.
void ReleaseBytes(void* data, size_t bytes, size_t alignment = kBytesAlignment) noexcept;

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PMR_BLOCK_BYTES_H_
