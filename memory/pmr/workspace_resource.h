// The standard library's containers in a workspace.
//
//   Workspace workspace("requests", WorkspaceConfig::Inference());
//   WorkspaceResource resource(workspace);
//   for (...) {
//     WorkspaceScope scope(workspace);                  // one cycle
//     std::pmr::vector<std::pmr::string> words(&resource);
//     ...
//   }                                                   // containers went first; memory is kept
//
// Inside a cycle of the workspace that is open on the calling thread, innermost or further out,
// blocks live in that cycle and cost a few nanoseconds; anywhere else they are the process's
// (kAllocated on the ledger) and live until they are released, so that globals may have such a
// resource too. Whichever it was, a block may be released at any time, on any thread, also after
// its cycle and its workspace.
//
// Containers end before their cycle. One that outlives it is a mistake that is told (kLeakedBlocks
// of cycle_detector.h, WorkspaceStats::leaked_blocks) but does no harm: its bytes stay as they are
// until it releases them; in the meantime the workspace keeps whole chunks of 64 KiB for it, and the
// span they were cut from (docs/containers.md).
//
// Errors: OutOfMemoryBadAlloc (bad_alloc.h), a std::bad_alloc, nothing changed: the workspace's
// policies (kFail: what is in use of arrays and blocks together is at most the pages' size;
// kReallocate: at most max_size), budgets, or the system. Limits count chunks.
//
// Threads: any; the resource itself has no state. It must outlive the containers that name it, as
// any memory resource, but not their blocks; it may outlive its workspace, and serves from the
// process then. Cost: a virtual call and a few nanoseconds inside a cycle; outside, a lock. The
// first block of a cycle and every 64 KiB some tens of nanoseconds.
#ifndef TIDEPOOL_MEMORY_PMR_WORKSPACE_RESOURCE_H_
#define TIDEPOOL_MEMORY_PMR_WORKSPACE_RESOURCE_H_

#include <cstddef>
#include <memory_resource>

#include "tidepool/memory/pmr/cycle_heap.h"
#include "tidepool/memory/workspace/workspace.h"

namespace tidepool {

class WorkspaceResource final : public std::pmr::memory_resource {
 public:
  // Throws kInvalidArgument when the workspace's memory is not the host's.
  explicit WorkspaceResource(Workspace& workspace);
  ~WorkspaceResource() override { heap_.Unrefer(); }
  WorkspaceResource(const WorkspaceResource&) = delete;
  WorkspaceResource& operator=(const WorkspaceResource&) = delete;

  // Of the same workspace.
  bool IsSameAs(const WorkspaceResource& other) const { return &heap_ == &other.heap_; }

  // For those who know the class (workspace_allocator.h): without the virtual call. Throws
  // OutOfMemoryError.
  void* AllocateBlock(size_t bytes, size_t alignment) { return heap_.Allocate(bytes, alignment); }

 private:
  void* do_allocate(size_t bytes, size_t alignment) override;
  void do_deallocate(void* block, size_t bytes, size_t alignment) override;
  // Two of one workspace are equal.
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override;

  internal::CycleHeap& heap_;
};

// Wherever the calling thread is at each request: the workspace of its innermost scope, or outside.
// Rings' batches and workspaces of other devices count as outside. For code that does not know its
// caller's workspace; std::pmr::set_default_resource(ResourceHere()) makes it everybody's. It equals
// itself wherever it serves: moving a container out of an inner cycle (by assignment, swap or splice)
// takes that cycle's blocks along, which outlive it then; copy, or use WorkspaceResource. Never
// destroyed.
std::pmr::memory_resource* ResourceHere();

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PMR_WORKSPACE_RESOURCE_H_
