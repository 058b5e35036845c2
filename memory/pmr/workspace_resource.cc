#include "tidepool/memory/pmr/workspace_resource.h"

#include <bit>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/pmr/bad_alloc.h"
#include "tidepool/memory/workspace/workspace_core.h"

namespace tidepool {
namespace {

using internal::CycleHeap;
using internal::OrBadAlloc;

void CheckAlignment(size_t alignment) {
  if (std::has_single_bit(alignment)) return;
  ThrowInvalidArgument(
      absl::StrCat("workspace resource: alignment ", alignment, ", expected a power of two"));
}

class HereResource final : public std::pmr::memory_resource {
  void* do_allocate(size_t bytes, size_t alignment) override {
    CheckAlignment(alignment);
    return OrBadAlloc([&] { return CycleHeap::AllocateHere(bytes, alignment); });
  }
  void do_deallocate(void* block, size_t bytes, size_t alignment) override {
    CycleHeap::Release(block, bytes, alignment);
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }
};

}  // namespace

WorkspaceResource::WorkspaceResource(Workspace& workspace)
    : heap_(CycleHeap::Of(*workspace.core())) {
  heap_.Refer();
}

void* WorkspaceResource::do_allocate(size_t bytes, size_t alignment) {
  CheckAlignment(alignment);
  return OrBadAlloc([&] { return heap_.Allocate(bytes, alignment); });
}

void WorkspaceResource::do_deallocate(void* block, size_t bytes, size_t alignment) {
  CycleHeap::Release(block, bytes, alignment);
}

bool WorkspaceResource::do_is_equal(const std::pmr::memory_resource& other) const noexcept {
  const auto* const same = dynamic_cast<const WorkspaceResource*>(&other);
  return same != nullptr && IsSameAs(*same);
}

std::pmr::memory_resource* ResourceHere() {
  static auto* const resource = new HereResource;
  return resource;
}

}  // namespace tidepool
