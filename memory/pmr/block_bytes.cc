#include "tidepool/memory/pmr/block_bytes.h"

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/pmr/cycle_heap.h"

namespace tidepool {
namespace {

[[noreturn, gnu::cold, gnu::noinline]] void ThrowAlignment(const char* who, size_t alignment) {
  ThrowInvalidArgument(absl::StrCat(who, ": alignment ", alignment, ", expected a power of two"));
}

// std::has_single_bit is a call where processors without popcnt are compiled for.
inline void CheckAlignment(const char* who, size_t alignment) {
  if (alignment == 0 || (alignment & (alignment - 1)) != 0) [[unlikely]]
    ThrowAlignment(who, alignment);
}

}  // namespace

void* AllocateBytes(Workspace& workspace, size_t bytes, size_t alignment) {
  CheckAlignment("AllocateBytes", alignment);
  return internal::CycleHeap::Of(*workspace.core()).Allocate(bytes, alignment);
}

void* AllocateBytesHere(size_t bytes, size_t alignment) {
  CheckAlignment("AllocateBytesHere", alignment);
  return internal::CycleHeap::AllocateHere(bytes, alignment);
}

void ReleaseBytes(void* data, size_t bytes, size_t alignment) noexcept {
  internal::CycleHeap::Release(data, bytes, alignment);
}

}  // namespace tidepool
