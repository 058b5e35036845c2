// MappedVector and MappedArray: a std::vector, and an array, whose memory goes back to the system when it is freed.
//
// For what is large for a moment, as when a cycle of ten thousand requests is planned: malloc keeps what
// was freed as long as something lies above it, and takes the largest block it once mapped as a reason to keep the next
// ones. Blocks of kMappedBytes or more are mapped one by one, smaller ones are of operator new.
//
// Errors: std::bad_alloc. Threads: as std::vector. Cost: a system call and page faults for each large
// block, so for vectors that are made as large as they become, or seldom.
#ifndef TIDEPOOL_MEMORY_MAPPED_VECTOR_H_
#define TIDEPOOL_MEMORY_MAPPED_VECTOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <vector>

namespace tidepool {

inline constexpr size_t kMappedBytes = size_t{1} << 16;

namespace internal {
// Of kMappedBytes or more, aligned to pages. Throws std::bad_alloc.
void* MapBlock(size_t bytes);
void UnmapBlock(void* block, size_t bytes) noexcept;
}  // namespace internal

template <typename T>
struct MappedAllocator {
  using value_type = T;
  static_assert(alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);

  MappedAllocator() = default;
  template <typename Other>
  MappedAllocator(const MappedAllocator<Other>&) noexcept {}  // NOLINT: as the standard has it

  T* allocate(size_t count) {
    if (count > SIZE_MAX / 2 / sizeof(T)) throw std::bad_array_new_length();
    const size_t bytes = count * sizeof(T);
    return static_cast<T*>(bytes < kMappedBytes ? ::operator new(bytes)
                                                : internal::MapBlock(bytes));
  }
  void deallocate(T* block, size_t count) noexcept {
    const size_t bytes = count * sizeof(T);
    bytes < kMappedBytes ? ::operator delete(block) : internal::UnmapBlock(block, bytes);
  }
  template <typename Other>
  friend bool operator==(const MappedAllocator&, const MappedAllocator<Other>&) noexcept {
    return true;
  }
};

template <typename T>
using MappedVector = std::vector<T, MappedAllocator<T>>;

template <typename T>
struct MappedDelete {
  size_t count = 0;
  void operator()(T* elements) const noexcept { MappedAllocator<T>().deallocate(elements, count); }
};
// Elements that nobody has written yet.
template <typename T>
using MappedArray = std::unique_ptr<T[], MappedDelete<T>>;
template <typename T>
MappedArray<T> MakeMappedArray(size_t count) {
  static_assert(std::is_trivially_default_constructible_v<T> &&
                std::is_trivially_destructible_v<T>);
  return MappedArray<T>(MappedAllocator<T>().allocate(count), {count});
}

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_MAPPED_VECTOR_H_
