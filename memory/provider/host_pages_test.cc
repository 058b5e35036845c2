#include "tidepool/memory/provider/host_pages.h"

#include <sys/resource.h>

#include <cstdint>
#include <cstring>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

int64_t MinorFaults() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

TEST(HostPages, GrowsInPlaceAndKeepsContents) {
  HostPages pages;
  pages.Resize(1000);
  std::byte* const base = pages.base();
  std::memset(base, 7, 1000);
  pages.Resize(8 * kMiB);
  EXPECT_EQ(pages.base(), base);
  EXPECT_EQ(static_cast<int>(base[999]), 7);
  std::memset(base, 9, 8 * kMiB + kReadableTailBytes);
  EXPECT_GE(pages.committed_bytes(), 8 * kMiB + kReadableTailBytes);
}

TEST(HostPages, ShrinksAndGivesPagesBack) {
  HostPages pages;
  pages.Resize(16 * kMiB);
  std::memset(pages.base(), 1, 16 * kMiB);
  std::byte* const base = pages.base();
  pages.Resize(2 * kMiB);
  EXPECT_LE(pages.committed_bytes(), 4 * kMiB);
  pages.Resize(16 * kMiB);
  EXPECT_EQ(pages.base(), base);
  EXPECT_EQ(static_cast<int>(base[10 * kMiB]), 0);  // fresh pages again
  pages.Resize(0);
  EXPECT_EQ(pages.committed_bytes(), 0);
}

TEST(HostPages, PrefaultedPagesDoNotFaultLater) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer's shadow memory faults";
#endif
  HostPages pages;
  pages.Resize(8 * kMiB);
  const int64_t before = MinorFaults();
  std::memset(pages.base(), 3, 8 * kMiB);
  EXPECT_LE(MinorFaults() - before, 1);
}

TEST(HostPages, BaseIsHugePageAligned) {
  HostPages pages;
  pages.Resize(100);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(pages.base()) % (2 * kMiB), 0);
}

TEST(HostPages, BeyondTheReservationTheBaseMayMove) {
  HostPagesOptions options;
  options.reserve_bytes = 4 * kMiB;
  HostPages pages(options);
  pages.Resize(kMiB);
  pages.Resize(32 * kMiB);
  std::memset(pages.base(), 5, 32 * kMiB);
}

TEST(HostPages, RefusalLeavesTheObjectAsItWas) {
  HostPages pages;
  pages.Resize(kMiB);
  std::byte* const base = pages.base();
  const size_t committed = pages.committed_bytes();
  EXPECT_THROW(pages.Resize(size_t{1} << 60), OutOfMemoryError);
  EXPECT_EQ(pages.base(), base);
  EXPECT_EQ(pages.committed_bytes(), committed);
  std::memset(base, 1, kMiB);
}

TEST(HostPages, CountsWhatItAsksTheSystemFor) {
  const int64_t before = MemoryTracker::Global().system_allocations();
  HostPages pages;
  pages.Resize(kMiB);
  pages.Resize(kMiB);  // nothing to do
  pages.Resize(3 * kMiB);
  EXPECT_EQ(MemoryTracker::Global().system_allocations() - before, 2);
}

}  // namespace
}  // namespace tidepool
