// Vectors of constants of frozen networks. Large ones have pages of their own, which the system has back when they go: malloc
// takes blocks that once were large for its heap's from then on, where they stay.
#ifndef TIDEPOOL_NDARRAY_FROZEN_FROZEN_VALUES_H_
#define TIDEPOOL_NDARRAY_FROZEN_FROZEN_VALUES_H_

#include <sys/mman.h>

#include <cstddef>
#include <memory>
#include <new>
#include <vector>

#include "tidepool/memory/provider/device_provider.h"

namespace tidepool {

// Behind the elements kReadableTailBytes can be read. Throws std::bad_alloc.
template <typename T>
struct PagesAllocator {
  using value_type = T;
  static constexpr size_t kLeastBytes = size_t{64} << 10;  // smaller blocks are malloc's

  PagesAllocator() = default;
  template <typename Other>
  PagesAllocator(const PagesAllocator<Other>&) {}

  T* allocate(size_t count) {
    const size_t bytes = BytesOf(count);
    if (bytes < kLeastBytes) return static_cast<T*>(::operator new(bytes));
    void* const made =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) throw std::bad_alloc();
    return static_cast<T*>(made);
  }
  void deallocate(T* at, size_t count) noexcept {
    const size_t bytes = BytesOf(count);
    bytes < kLeastBytes ? ::operator delete(at) : static_cast<void>(munmap(at, bytes));
  }
  friend bool operator==(const PagesAllocator&, const PagesAllocator&) { return true; }

 private:
  static size_t BytesOf(size_t count) {
    if (count > (SIZE_MAX - kReadableTailBytes) / sizeof(T)) throw std::bad_array_new_length();
    return count * sizeof(T) + kReadableTailBytes;
  }
};

template <typename T>
using FrozenValues = std::vector<T, PagesAllocator<T>>;

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_FROZEN_FROZEN_VALUES_H_
