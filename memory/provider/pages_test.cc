#include "tidepool/memory/provider/pages.h"

#include <sys/resource.h>

#include <cstdint>
#include <cstring>
#include <utility>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_loss.h"
#include "tidepool/memory/testing/failing_provider.h"
#include "tidepool/memory/testing/simulated_device.h"

namespace tidepool {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

int64_t MinorFaults() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

TEST(Pages, GrowsInPlaceAndKeepsContents) {
  Pages pages;
  pages.Resize(1000);
  std::byte* const base = pages.base();
  std::memset(base, 7, 1000);
  pages.Resize(8 * kMiB);
  EXPECT_EQ(pages.base(), base);
  EXPECT_EQ(static_cast<int>(base[999]), 7);
  std::memset(base, 9, 8 * kMiB + kReadableTailBytes);
  EXPECT_GE(pages.committed_bytes(), 8 * kMiB + kReadableTailBytes);
}

TEST(Pages, ShrinksAndGivesPagesBack) {
  Pages pages;
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

// What fills large pages holds one small one more, for its tail, however it came to its size.
TEST(Pages, ATailBehindLargePagesHasASmallOne) {
  constexpr size_t kPage = 4096;
  const std::pair<size_t, size_t> sizes[] = {
      {2 * kMiB - 64, 2 * kMiB},      {2 * kMiB - 63, 2 * kMiB + kPage},
      {2 * kMiB, 2 * kMiB + kPage},   {2 * kMiB + 1, 4 * kMiB},
      {4 * kMiB - 64, 4 * kMiB},      {4 * kMiB - 63, 4 * kMiB + kPage},
      {4 * kMiB, 4 * kMiB + kPage},   {5 * kMiB, 6 * kMiB},
      {32 * kMiB, 32 * kMiB + kPage},
  };
  Pages grows;
  for (const auto& [bytes, committed] : sizes) {
    Pages pages;
    pages.Resize(bytes);
    EXPECT_EQ(pages.committed_bytes(), committed) << bytes;
    EXPECT_LE(pages.prefaulted_bytes(), committed) << bytes;
    std::memset(pages.base(), 1, bytes + kReadableTailBytes);
    grows.Resize(bytes);
    EXPECT_EQ(grows.committed_bytes(), committed) << bytes;
    std::memset(grows.base(), 2, bytes + kReadableTailBytes);
    pages.Resize(64 * kMiB);
    pages.Resize(bytes);
    EXPECT_EQ(pages.committed_bytes(), committed) << bytes;
    std::memset(pages.base(), 3, bytes + kReadableTailBytes);
  }
}

// A device may not part with a piece of a large page.
TEST(Pages, ALargePageThatCannotBeCutStays) {
  FailingProvider host(Host());
  PagesOptions options;
  options.prefault = false;
  Pages pages(options, GetDeviceProvider(Host(), "test"));
  pages.Resize(8 * kMiB);
  host.faults().FailRequest(0);  // the first try
  pages.Resize(2 * kMiB);
  EXPECT_EQ(pages.committed_bytes(), 4 * kMiB);
  std::memset(pages.base(), 1, 4 * kMiB);
  pages.Resize(8 * kMiB);
  std::memset(pages.base(), 1, 8 * kMiB + kReadableTailBytes);
}

TEST(Pages, PrefaultedPagesDoNotFaultLater) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer's shadow memory faults";
#endif
  Pages pages;
  pages.Resize(8 * kMiB);
  const int64_t before = MinorFaults();
  std::memset(pages.base(), 3, 8 * kMiB);
  EXPECT_LE(MinorFaults() - before, 1);
}

TEST(Pages, BaseIsHugePageAligned) {
  Pages pages;
  pages.Resize(100);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(pages.base()) % (2 * kMiB), 0);
}

TEST(Pages, BeyondTheReservationTheBaseMovesAndThatIsCounted) {
  PagesOptions options;
  options.reserve_bytes = 4 * kMiB;
  Pages pages(options);
  pages.Resize(kMiB);
  std::byte* const base = pages.base();
  pages.Resize(2 * kMiB);
  EXPECT_EQ(pages.base(), base);
  EXPECT_EQ(pages.relocations(), 0);
  pages.Resize(32 * kMiB);
  EXPECT_EQ(pages.relocations(), 1);
  std::memset(pages.base(), 5, 32 * kMiB);
}

TEST(Pages, PrefaultTouchesOnlyWhatIsAskedFor) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer's shadow memory faults";
#endif
  PagesOptions options;
  options.prefault = false;
  Pages pages(options);
  pages.Resize(64 * kMiB);
  EXPECT_EQ(pages.prefaulted_bytes(), 0);
  pages.Prefault(5 * kMiB);
  EXPECT_EQ(pages.prefaulted_bytes(), 6 * kMiB);  // whole huge pages
  const int64_t before = MinorFaults();
  std::memset(pages.base(), 3, 6 * kMiB);
  EXPECT_LE(MinorFaults() - before, 1);
  pages.Prefault(100);  // done before
  EXPECT_EQ(pages.prefaulted_bytes(), 6 * kMiB);
  pages.Resize(2 * kMiB);
  EXPECT_LE(pages.prefaulted_bytes(), 4 * kMiB);
}

// On a device: whole granules of it, nothing touched, and back to where it was.
TEST(Pages, GrowAndShrinkOnADevice) {
  SimulatedDevice& device = SimulatedDevice::Get();
  device.Reset();
  device.set_capacity(10 * kMiB);
  device.set_reserve_bytes(4 * kMiB);
  {
    Pages pages({}, device);
    pages.Resize(100);
    EXPECT_EQ(pages.committed_bytes(), SimulatedDevice::kGranularity);
    std::byte* const base = pages.base();
    pages.Resize(3 * kMiB);
    EXPECT_EQ(pages.base(), base);
    device.Fill(base, std::byte{7}, 3 * kMiB + kReadableTailBytes);
    pages.Resize(kMiB);
    EXPECT_EQ(device.used_bytes(), pages.committed_bytes());
    EXPECT_EQ(device.counters().decommits, 1);
    // The larger range is there before the old one goes.
    EXPECT_THROW(pages.Resize(9 * kMiB), OutOfMemoryError);
    EXPECT_EQ(pages.base(), base);
    EXPECT_EQ(device.used_bytes(), pages.committed_bytes());
    pages.Resize(8 * kMiB);
    EXPECT_EQ(pages.relocations(), 1);
    EXPECT_EQ(device.used_bytes(), pages.committed_bytes());
  }
  EXPECT_EQ(device.used_bytes(), 0);
}

// A device that is lost has not run out of memory.
TEST(Pages, ALostDeviceIsToldWhereItRefusesToGrow) {
  SimulatedDevice& device = SimulatedDevice::Get();
  device.Reset();
  Pages pages({}, device);
  pages.Resize(100);
  LoseDevice(device.device(), "test");
  EXPECT_THROW(pages.Resize(kMiB), DeviceLostError);
  EXPECT_EQ(pages.committed_bytes(), SimulatedDevice::kGranularity);
  ForgetLossForTesting(device.device());
}

// Where the bytes may go, a move never holds more than the larger of the two: neither of the
// device, nor of a budget.
TEST(Pages, AMoveThatGivesFirstHoldsNoMoreThanTheLargerSize) {
  SimulatedDevice& device = SimulatedDevice::Get();
  device.Reset();
  device.set_reserve_bytes(4 * kMiB);
  MemoryOwner& owner = MemoryOwner::Process().Child("moving pages");
  constexpr size_t kTail = SimulatedDevice::kGranularity;
  for (const bool by_budget : {false, true}) {
    PagesOptions options;
    options.owner = &owner;
    Pages pages(options, device);
    if (by_budget) {
      MemoryBudget::Global().SetOwnerLimit(owner, device.device(), 9 * kMiB + kTail);
    } else {
      device.set_capacity(9 * kMiB + kTail);
    }
    pages.Resize(3 * kMiB);
    std::byte* const base = pages.base();
    EXPECT_THROW(pages.Resize(9 * kMiB), OutOfMemoryError);  // holds both
    EXPECT_EQ(pages.base(), base);
    pages.Resize(9 * kMiB, PagesMove::kGivesFirst);
    EXPECT_NE(pages.base(), base);
    EXPECT_EQ(pages.committed_bytes(), 9 * kMiB + kTail);
    EXPECT_EQ(device.used_bytes(), pages.committed_bytes());
    EXPECT_EQ(MemoryBudget::Global().Of(owner, device.device()).taken_bytes,
              pages.committed_bytes());
    EXPECT_EQ(pages.relocations(), 1);
    device.Fill(pages.base(), std::byte{3}, 9 * kMiB);
    // More than there can be: as large as before.
    const size_t committed = pages.committed_bytes();
    EXPECT_THROW(pages.Resize(20 * kMiB, PagesMove::kGivesFirst), OutOfMemoryError);
    EXPECT_EQ(pages.committed_bytes(), committed);
    EXPECT_EQ(device.used_bytes(), committed);
    EXPECT_EQ(MemoryBudget::Global().Of(owner, device.device()).taken_bytes, committed);
    device.Fill(pages.base(), std::byte{4}, 9 * kMiB);
    MemoryBudget::Global().SetOwnerLimit(owner, device.device(), MemoryBudget::kUnlimited);
    device.set_capacity(size_t{1} << 30);
  }
  EXPECT_EQ(MemoryBudget::Global().Of(owner, device.device()).taken_bytes, 0);
  device.Reset();
}

// Whichever of its requests are refused: as large as before, or empty, and able to grow again.
TEST(Pages, AMoveThatGivesFirstSurvivesEveryRefusal) {
  SimulatedDevice& device = SimulatedDevice::Get();
  device.Reset();
  device.set_reserve_bytes(2 * kMiB);
  MemoryOwner& owner = MemoryOwner::Process().Child("moving pages");
  bool was_empty = false, was_kept = false;
  for (const int64_t count : {1, 2, 3}) {
    for (int64_t n = 0; n < 5; ++n) {
      PagesOptions options;
      options.owner = &owner;
      Pages pages(options, device);
      pages.Resize(kMiB);
      const size_t before = pages.committed_bytes();
      device.faults().FailRequest(n, count);
      try {
        pages.Resize(5 * kMiB, PagesMove::kGivesFirst);
      } catch (const OutOfMemoryError&) {
        const size_t committed = pages.committed_bytes();
        ASSERT_TRUE(committed == before || (committed == 0 && pages.base() == nullptr))
            << committed;
        (committed == 0 ? was_empty : was_kept) = true;
      }
      device.faults().Clear();
      ASSERT_EQ(device.used_bytes(), pages.committed_bytes());
      ASSERT_EQ(MemoryBudget::Global().Of(owner, device.device()).taken_bytes,
                pages.committed_bytes());
      pages.Resize(6 * kMiB);
      device.Fill(pages.base(), std::byte{1}, 6 * kMiB);
    }
  }
  EXPECT_TRUE(was_empty);
  EXPECT_TRUE(was_kept);
  device.Reset();
}

// Whichever request the device refuses, the pages are as they were and can grow afterwards.
TEST(Pages, EveryRefusalLeavesTheObjectAsItWas) {
  SimulatedDevice& device = SimulatedDevice::Get();
  device.Reset();
  device.set_reserve_bytes(2 * kMiB);
  for (int64_t count : {1, 2}) {
    for (int64_t n = 0;; ++n) {
      Pages pages({}, device);
      device.faults().FailRequest(n, count);
      for (size_t bytes : {kMiB, 2 * kMiB - 64, 5 * kMiB, kMiB, 3 * kMiB}) {
        std::byte* const base = pages.base();
        const size_t committed = pages.committed_bytes();
        try {
          pages.Resize(bytes);
        } catch (const OutOfMemoryError&) {
          ASSERT_EQ(pages.base(), base);
          ASSERT_EQ(pages.committed_bytes(), committed);
        }
        ASSERT_EQ(device.used_bytes(), pages.committed_bytes());
      }
      const bool failed = device.faults().failed() > 0;
      device.faults().Clear();
      pages.Resize(6 * kMiB);
      device.Fill(pages.base(), std::byte{1}, 6 * kMiB);
      if (!failed) break;
      ASSERT_LT(n, 100);
    }
  }
  device.Reset();
}

// A device that is full of what others can spare is not full.
TEST(Pages, ARefusalAsksTheReclaimerFirst) {
  SimulatedDevice& device = SimulatedDevice::Get();
  device.Reset();
  device.set_capacity(4 * kMiB);
  Pages spare({}, device), pages({}, device);
  spare.Resize(3 * kMiB);
  int runs = 0;
  {
    const Reclaimer::Registration registration =
        Reclaimer::Global().Register("spare", [&](ReclaimDepth) {
          ++runs;
          const auto bytes = static_cast<int64_t>(spare.committed_bytes());
          spare.Resize(0);
          return bytes;
        });
    pages.Resize(2 * kMiB);
  }
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(spare.committed_bytes(), 0);
  EXPECT_GE(pages.committed_bytes(), 2 * kMiB);
  // With nothing to give back it is one.
  EXPECT_THROW(spare.Resize(3 * kMiB), OutOfMemoryError);
  pages.Resize(0);
  device.Reset();
}

TEST(Pages, RefusalLeavesTheObjectAsItWas) {
  Pages pages;
  pages.Resize(kMiB);
  std::byte* const base = pages.base();
  const size_t committed = pages.committed_bytes();
  EXPECT_THROW(pages.Resize(size_t{1} << 60), OutOfMemoryError);
  EXPECT_EQ(pages.base(), base);
  EXPECT_EQ(pages.committed_bytes(), committed);
  std::memset(base, 1, kMiB);
}

TEST(Pages, CountsWhatItAsksTheSystemFor) {
  const int64_t before = MemoryTracker::Global().system_allocations();
  Pages pages;
  pages.Resize(kMiB);
  pages.Resize(kMiB);  // nothing to do
  pages.Resize(3 * kMiB);
  EXPECT_EQ(MemoryTracker::Global().system_allocations() - before, 2);
}

}  // namespace
}  // namespace tidepool
