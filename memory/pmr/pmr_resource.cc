#include "tidepool/memory/pmr/pmr_resource.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/pmr/bad_alloc.h"

namespace tidepool {
namespace {

constexpr size_t kHeaderBytes = 16;

// In front of the bytes the caller gets, at most: a header, and what keeps them aligned. What is
// wrapped is asked for the header's alignment alone, which everybody serves.
size_t FrontBytes(size_t alignment) { return std::max(alignment, kHeaderBytes); }

void** TokenOf(void* block) {
  return reinterpret_cast<void**>(static_cast<std::byte*>(block) - kHeaderBytes);
}

}  // namespace

PmrResource::PmrResource(MemoryResource& upstream) : upstream_(upstream) {
  if (upstream.device() != Host()) {
    ThrowInvalidArgument(absl::StrCat("PmrResource: ", upstream.Describe(), " is on ",
                                      DeviceName(upstream.device()), ", expected the host"));
  }
}

void* PmrResource::do_allocate(size_t bytes, size_t alignment) {
  return internal::OrBadAlloc([&]() -> void* {
    const size_t front = FrontBytes(alignment);
    // A sum that is too large is a request that is.
    const size_t all = bytes > SIZE_MAX - front ? SIZE_MAX : bytes + front;
    const Allocation memory = AllocateOrThrow(upstream_, all, kHeaderBytes);
    std::byte* block = memory.data + kHeaderBytes;
    block += -reinterpret_cast<uintptr_t>(block) & (front - 1);
    *TokenOf(block) = memory.token;
    return block;
  });
}

void PmrResource::do_deallocate(void* block, size_t bytes, size_t alignment) {
  const size_t front = FrontBytes(alignment);
  upstream_.Release(*TokenOf(block), bytes + front, kHeaderBytes);
}

bool PmrResource::do_is_equal(const std::pmr::memory_resource& other) const noexcept {
  const auto* const same = dynamic_cast<const PmrResource*>(&other);
  return same != nullptr && &same->upstream_ == &upstream_;
}

}  // namespace tidepool
