#include "tidepool/memory/testing/fuzzing/heap_watch.h"

#include <malloc.h>

#include <atomic>
#include <cerrno>
#include <cstddef>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TIDEPOOL_HAS_MALLOC_HOOKS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TIDEPOOL_HAS_MALLOC_HOOKS 1
#endif
#endif

#ifdef TIDEPOOL_HAS_MALLOC_HOOKS
// As in <sanitizer/allocator_interface.h>, which comes with clang only; GCC's runtime has them too.
extern "C" {
int __sanitizer_install_malloc_and_free_hooks(void (*made)(const volatile void*, size_t),
                                              void (*gone)(const volatile void*));
size_t __sanitizer_get_allocated_size(const volatile void* data);
}
#endif

namespace {

constinit std::atomic<int64_t> held{0};
constinit std::atomic<int64_t> most{0};

void Count(size_t bytes) noexcept {
  const int64_t now = held.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed) +
                      static_cast<int64_t>(bytes);
  int64_t before = most.load(std::memory_order_relaxed);
  while (before < now && !most.compare_exchange_weak(before, now, std::memory_order_relaxed))
    continue;
}
void Uncount(size_t bytes) noexcept {
  held.fetch_sub(static_cast<int64_t>(bytes), std::memory_order_relaxed);
}

}  // namespace

#ifdef TIDEPOOL_HAS_MALLOC_HOOKS

namespace {

void Made(const volatile void*, size_t bytes) { Count(bytes); }
void Gone(const volatile void* data) {
  if (data != nullptr) Uncount(__sanitizer_get_allocated_size(data));
}
// What was there before is uncounted all the same when it goes, so that `held` may be below 0.
[[maybe_unused]] const int installed = __sanitizer_install_malloc_and_free_hooks(&Made, &Gone);

}  // namespace

#else

// glibc's own, under the names that it keeps for who takes the others' place.
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* data, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void* data);

static void* Counted(void* data) {
  if (data != nullptr) Count(malloc_usable_size(data));
  return data;
}

void* malloc(size_t bytes) noexcept { return Counted(__libc_malloc(bytes)); }
void* calloc(size_t count, size_t bytes) noexcept { return Counted(__libc_calloc(count, bytes)); }
void* realloc(void* data, size_t bytes) noexcept {
  const size_t before = data != nullptr ? malloc_usable_size(data) : 0;
  void* const moved = __libc_realloc(data, bytes);
  if (moved == nullptr && bytes != 0) return nullptr;
  Uncount(before);
  return Counted(moved);
}
void* memalign(size_t alignment, size_t bytes) noexcept {
  return Counted(__libc_memalign(alignment, bytes));
}
void* aligned_alloc(size_t alignment, size_t bytes) noexcept { return memalign(alignment, bytes); }
int posix_memalign(void** data, size_t alignment, size_t bytes) noexcept {
  if (alignment < sizeof(void*) || (alignment & (alignment - 1)) != 0) return EINVAL;
  void* const made = memalign(alignment, bytes);
  if (made == nullptr) return ENOMEM;
  *data = made;
  return 0;
}
void free(void* data) noexcept {
  if (data != nullptr) Uncount(malloc_usable_size(data));
  __libc_free(data);
}
}

#endif

namespace tidepool {

HeapWatch::HeapWatch() : before_(held.load(std::memory_order_relaxed)) {
  most.store(before_, std::memory_order_relaxed);
}

int64_t HeapWatch::peak_bytes() const { return most.load(std::memory_order_relaxed) - before_; }

}  // namespace tidepool
