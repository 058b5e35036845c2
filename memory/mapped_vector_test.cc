#include "tidepool/memory/mapped_vector.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <new>
#include <utility>

#include "gtest/gtest.h"

namespace tidepool {
namespace {

// Whether the page is mapped, by the system.
bool IsMapped(const void* at) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  unsigned char resident;
  void* const begin = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(at) / page * page);
  return mincore(begin, page, &resident) == 0 || errno != ENOMEM;
}

TEST(MappedVector, LargeMemoryGoesBackWhenItIsFreed) {
  constexpr size_t kCount = 64 * kMappedBytes / sizeof(uint64_t);
  const void* middle;
  {
    MappedVector<uint64_t> large(kCount, 7);
    middle = &large[kCount / 2];
    MappedVector<uint64_t> moved = std::move(large);
    EXPECT_EQ(moved[kCount / 2], 7u);
    EXPECT_EQ(&moved[kCount / 2], middle);
    EXPECT_TRUE(IsMapped(middle));
  }
  EXPECT_FALSE(IsMapped(middle));
  {
    const MappedArray<uint64_t> array = MakeMappedArray<uint64_t>(kCount);
    middle = &array[kCount / 2];
    EXPECT_TRUE(IsMapped(middle));
  }
  EXPECT_FALSE(IsMapped(middle));
}

// Blocks of one kind are not freed as those of the other, whatever a vector grows through.
TEST(MappedVector, GrowsFromOneKindOfBlockIntoTheOther) {
  MappedVector<int32_t> vector;
  for (int32_t i = 0; i < 3 * static_cast<int32_t>(kMappedBytes); ++i) vector.push_back(i);
  vector.resize(kMappedBytes / sizeof(int32_t) - 1);
  vector.shrink_to_fit();
  for (size_t i = 0; i < vector.size(); ++i) ASSERT_EQ(vector[i], static_cast<int32_t>(i));
}

TEST(MappedVector, CountsThatThereCannotBeAreRefused) {
  MappedAllocator<uint64_t> allocator;
  EXPECT_THROW(allocator.allocate(SIZE_MAX), std::bad_alloc);
  EXPECT_THROW(allocator.allocate(SIZE_MAX / sizeof(uint64_t) + 2),
               std::bad_alloc);  // wraps around to 8 bytes
  EXPECT_THROW(allocator.allocate(SIZE_MAX / 4 / sizeof(uint64_t)),
               std::bad_alloc);  // the system refuses
  MappedVector<uint64_t> vector{1, 2, 3};
  EXPECT_ANY_THROW(vector.reserve(SIZE_MAX / 16));
  EXPECT_EQ(vector, (MappedVector<uint64_t>{1, 2, 3}));
}

}  // namespace
}  // namespace tidepool
