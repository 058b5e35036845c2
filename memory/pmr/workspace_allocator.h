// WorkspaceAllocator: an allocator for the standard library's containers in a workspace, without
// the virtual call of std::pmr.
//
//   WorkspaceResource resource(workspace);
//   WorkspaceScope scope(workspace);
//   std::vector<int, WorkspaceAllocator<int>> numbers{WorkspaceAllocator<int>(resource)};
//
// A container stays where it was made: assigning to it, by copy or by move, leaves it its
// allocator, so that what is assigned from an inner workspace's container to an outer one's is
// copied out of the cycle that ends first. (Moving between containers of one workspace moves
// pointers.) A copy is made in the workspace of its original; give the constructor another
// allocator to have it elsewhere. Swapping swaps the allocators too: every container then has its
// memory where its allocator says, at the cost that its elements may now live in the other's cycle.
//
// Where blocks live, who may release them, errors (std::bad_alloc), threads: as
// workspace_resource.h. The resource must outlive containers that name it.
#ifndef TIDEPOOL_MEMORY_PMR_WORKSPACE_ALLOCATOR_H_
#define TIDEPOOL_MEMORY_PMR_WORKSPACE_ALLOCATOR_H_

#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>

#include "tidepool/memory/pmr/bad_alloc.h"
#include "tidepool/memory/pmr/workspace_resource.h"

namespace tidepool {

template <typename T>
class WorkspaceAllocator {
 public:
  // What the standard asks of an allocator: containers keep theirs when assigned to and swap it
  // when swapped.
  using value_type = T;
  using propagate_on_container_copy_assignment = std::false_type;
  using propagate_on_container_move_assignment = std::false_type;
  using propagate_on_container_swap = std::true_type;
  using is_always_equal = std::false_type;

  explicit WorkspaceAllocator(WorkspaceResource& resource) noexcept : resource_(&resource) {}
  template <typename U>
  WorkspaceAllocator(const WorkspaceAllocator<U>& other) noexcept : resource_(other.resource()) {}

  // Throws OutOfMemoryBadAlloc, and std::bad_array_new_length for more than there are bytes.
  T* allocate(size_t count) {
    if (count > SIZE_MAX / sizeof(T)) throw std::bad_array_new_length();
    return static_cast<T*>(internal::OrBadAlloc(
        [&] { return resource_->AllocateBlock(count * sizeof(T), alignof(T)); }));
  }
  // Of the same `count`; on any thread, also after the cycle has ended.
  void deallocate(T* block, size_t count) noexcept {
    internal::CycleHeap::Release(block, count * sizeof(T), alignof(T));
  }

  // Never null.
  WorkspaceResource* resource() const noexcept { return resource_; }

  // What the one allocates may be released by the other, and lives as long.
  template <typename U>
  friend bool operator==(const WorkspaceAllocator& a, const WorkspaceAllocator<U>& b) noexcept {
    return a.resource() == b.resource() || a.resource()->IsSameAs(*b.resource());
  }

 private:
  WorkspaceResource* resource_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PMR_WORKSPACE_ALLOCATOR_H_
