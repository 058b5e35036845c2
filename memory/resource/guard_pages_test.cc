#include "tidepool/memory/resource/guard_pages.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"

namespace tidepool {
namespace {

void Touch(const std::byte* at) { static_cast<void>(*const_cast<const volatile std::byte*>(at)); }

TEST(GuardPages, BlocksAreAlignedFilledWithNansAndReadableToTheirTail) {
  GuardPages pages;
  for (size_t alignment : {16, 64, 4096, 2 << 20}) {
    for (size_t bytes : {0, 1, 15, 16, 100, 4079, 4080, 4081, 4096, 100000}) {
      std::byte* data = pages.Allocate(bytes, alignment).data;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % alignment, 0);
      for (size_t i = 0; i < bytes + GuardPages::kGuardTailBytes; ++i) Touch(data + i);
      if (bytes >= 4) {
        float value;
        std::memcpy(&value, data, 4);
        EXPECT_TRUE(std::isnan(value));
      }
      std::memset(data, 7, bytes);
      pages.Release(data, bytes, alignment);
    }
  }
  EXPECT_EQ(pages.owned_bytes(), 0);
}

TEST(GuardPages, ReleasedAddressesAreNotUsedAgainSoon) {
  GuardPages pages;
  std::byte* const first = pages.Allocate(100, 64).data;
  pages.Release(first, 100, 64);
  for (int i = 0; i < 1000; ++i) {
    std::byte* data = pages.Allocate(100, 64).data;
    EXPECT_NE(data, first);
    pages.Release(data, 100, 64);
  }
}

TEST(GuardPages, EmptyRangesAreUsedAgainFullOnesAreNot) {
  GuardPages pages(1 << 20);
  std::byte* const kept = pages.Allocate(100, 64).data;
  std::memset(kept, 5, 100);
  for (int i = 0; i < 2000; ++i) pages.Release(pages.Allocate(10000, 64).token, 10000, 64);
  EXPECT_EQ(pages.range_count(), 3);  // that of `kept`, and two in turn
  EXPECT_EQ(static_cast<int>(kept[99]), 5);
  pages.Release(kept, 100, 64);
  std::byte* const large = pages.Allocate(4 << 20, 64).data;
  EXPECT_EQ(pages.range_count(), 4);
  pages.Release(large, 4 << 20, 64);
  EXPECT_EQ(pages.owned_bytes(), 0);
}

TEST(GuardPages, SizesThatCannotExistAreRefused) {
  GuardPages pages;
  for (const size_t bytes : {SIZE_MAX, SIZE_MAX - 5, size_t{1} << 60}) {
    EXPECT_EQ(pages.Allocate(bytes, 16).refusal, Refusal::kImpossible);
  }
  EXPECT_EQ(pages.owned_bytes(), 0);
}

TEST(GuardPagesDeathTest, AccessPastTheEndFaults) {
  GuardPages pages;
  std::byte* data = pages.Allocate(64, 64).data;
  // 64 bytes, the tail, and what the alignment leaves: at most a page in all.
  EXPECT_DEATH(
      {
        for (size_t i = 0; i < 64 + 64 + 1; ++i) Touch(data + i);
      },
      "");
}

TEST(GuardPagesDeathTest, AccessAfterTheReleaseFaults) {
  GuardPages pages;
  std::byte* data = pages.Allocate(64, 64).data;
  pages.Release(data, 64, 64);
  EXPECT_DEATH(Touch(data), "");
}

TEST(GuardPagesDeathTest, WritesBesideTheBlockAreReported) {
  GuardPages pages;
  std::byte* data = pages.Allocate(100, 64).data;
  EXPECT_DEATH(
      {
        data[100] = std::byte{1};
        pages.Release(data, 100, 64);
      },
      "a write at offset 100 of a block of 100 bytes");
  EXPECT_DEATH(
      {
        data[-1] = std::byte{1};
        pages.Release(data, 100, 64);
      },
      "a write at offset -1 of a block of 100 bytes");
}

}  // namespace
}  // namespace tidepool
