#include "tidepool/memory/testing/allocation_counter.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

// A file of its own: inlined into callers, GCC takes the pair for a mismatch of new and free.
static std::atomic<int64_t> allocation_count{0};

void* operator new(std::size_t size) {
  allocation_count.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
// AddressSanitizer has one of its own, which would not fit the delete below.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  allocation_count.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(size == 0 ? 1 : size);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace tidepool {

int64_t AllocationCount() { return allocation_count.load(std::memory_order_relaxed); }

}  // namespace tidepool
