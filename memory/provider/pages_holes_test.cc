// Pages with holes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/memory/provider/host_provider.h"
#include "tidepool/memory/provider/pages.h"
#include "tidepool/memory/testing/simulated_device.h"

namespace tidepool {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

int64_t Released() { return MemoryTracker::Global().Snapshot().system_releases; }

// What lies in the middle goes back and comes again, whichever request is refused; ends may be cut
// off.
TEST(Pages, HolesGoBackAndComeAgain) {
  SimulatedDevice& device = SimulatedDevice::Get();
  device.Reset();
  MemoryOwner& owner = MemoryOwner::Process().Child("pages with holes");
  for (int64_t n = 0;; ++n) {
    {
      Pages pages({.large_pages = false, .prefault = false, .owner = &owner}, device);
      pages.Resize(8 * kMiB);
      const size_t whole = pages.committed_bytes();
      EXPECT_FALSE(pages.MakeHole(kMiB, SimulatedDevice::kGranularity)) << "no whole page is in it";
      device.faults().FailRequest(n);
      const bool first = pages.MakeHole(kMiB, kMiB);
      const bool second = pages.MakeHole(4 * kMiB + 256, 3 * kMiB);
      const size_t first_bytes = first ? kMiB - SimulatedDevice::kGranularity : 0;
      const size_t second_bytes = second ? 3 * kMiB - SimulatedDevice::kGranularity : 0;
      const auto check = [&](size_t committed) {
        ASSERT_EQ(pages.committed_bytes(), committed);
        ASSERT_EQ(device.used_bytes(), committed);
        ASSERT_EQ(MemoryBudget::Global().Of(owner, device.device()).taken_bytes,
                  static_cast<int64_t>(committed));
      };
      check(whole - first_bytes - second_bytes);
      // What is beside a hole is there, with the readable tail.
      device.Hidden(pages.base(), kMiB + kReadableTailBytes);
      device.Hidden(pages.base() + 2 * kMiB, 2 * kMiB + kReadableTailBytes);
      bool filled = true;
      try {
        if (first) pages.FillHole(kMiB, kMiB);
      } catch (const OutOfMemoryError&) {
        filled = false;
      }
      check(whole - (filled ? 0 : first_bytes) - second_bytes);
      if (filled) device.Hidden(pages.base(), 4 * kMiB);
      device.faults().Clear();
      pages.Resize(9 * kMiB);
      device.faults().FailRequest(n % 4);
      pages.Resize(4 * kMiB);  // the second one goes with the end, as far as that is not refused
      if (device.faults().failed() == 0) {
        EXPECT_EQ(pages.hole_end(), filled ? 0u : 2 * kMiB);
      }
      device.faults().Clear();
      pages.Resize(4 * kMiB);
      check(4 * kMiB + SimulatedDevice::kGranularity - (filled ? 0 : first_bytes));
      pages.Resize(8 * kMiB);
      device.Hidden(pages.base() + 2 * kMiB, 6 * kMiB);
    }
    ASSERT_EQ(device.used_bytes(), 0u);
    ASSERT_EQ(MemoryBudget::Global().Of(owner, device.device()).taken_bytes, 0);
    if (n > 12) break;
  }
  device.Reset();
}

// Of what is asked for only the parts between holes go, which are one with these then.
TEST(Pages, HolesGrowTogether) {
  constexpr size_t kUnit = SimulatedDevice::kGranularity;
  SimulatedDevice& device = SimulatedDevice::Get();
  device.Reset();
  {
    Pages pages({.large_pages = false, .prefault = false}, device);
    ASSERT_TRUE(pages.ReserveHole(16 * kUnit - kReadableTailBytes));
    EXPECT_EQ(pages.committed_bytes(), 0u);
    EXPECT_EQ(device.used_bytes(), 0u);
    EXPECT_EQ(pages.HoleBytesIn(0, 16 * kUnit - kReadableTailBytes), 16 * kUnit);
    // Pages 2 and 3, and with its tail 8 to 11.
    pages.FillHole(2 * kUnit, 2 * kUnit - kReadableTailBytes);
    pages.FillHole(8 * kUnit, 4 * kUnit - kReadableTailBytes);
    EXPECT_EQ(device.used_bytes(), 6 * kUnit);
    EXPECT_EQ(pages.HoleBytesIn(3 * kUnit, 6 * kUnit - kReadableTailBytes), 4 * kUnit);
    ASSERT_EQ(pages.holes().size(), 3u);
    const int64_t before = Released();
    // From page 3 on, because of the tail below: 3, 8 and 9 have memory.
    EXPECT_TRUE(pages.MakeHole(2 * kUnit, 8 * kUnit));
    EXPECT_EQ(Released(), before + 2);
    EXPECT_EQ(device.used_bytes(), 3 * kUnit);
    ASSERT_EQ(pages.holes().size(), 3u);
    EXPECT_EQ(pages.holes()[1].begin, 3 * kUnit);
    EXPECT_EQ(pages.holes()[1].end, 10 * kUnit);
    EXPECT_FALSE(pages.MakeHole(2 * kUnit, 8 * kUnit)) << "all of it is one";
    // The rest: everything is one hole again.
    EXPECT_TRUE(pages.MakeHole(9 * kUnit, 6 * kUnit));
    EXPECT_EQ(pages.holes().size(), 2u);
    device.faults().FailRequest(0);
    EXPECT_THROW(pages.FillHole(4 * kUnit, kUnit), OutOfMemoryError);
    device.faults().Clear();
    EXPECT_EQ(device.used_bytes(), kUnit);
    pages.FillHole(4 * kUnit, kUnit);
    EXPECT_EQ(device.used_bytes(), 3 * kUnit) << "with the page of its tail";
  }
  EXPECT_EQ(device.used_bytes(), 0u);
  device.Reset();
}

// Any part of any hole, whichever request is refused; what has no memory is known page by page.
TEST(Pages, PartsOfHolesAreFilled) {
  SimulatedDevice& device = SimulatedDevice::Get();
  constexpr size_t kPage = SimulatedDevice::kGranularity;
  constexpr size_t kPages = 64;
  for (uint32_t seed = 0; seed < 20; ++seed) {
    device.Reset();
    std::mt19937 random(seed);
    Pages pages({.large_pages = false, .prefault = false}, device);
    pages.Resize(kPages * kPage - kReadableTailBytes);
    std::vector<bool> there(kPages, true);
    for (int step = 0; step < 200; ++step) {
      const size_t offset = random() % (kPages * kPage - 1024) & ~size_t{63};
      const size_t bytes = std::min(64 + random() % (20 * kPage), kPages * kPage - 1024 - offset);
      const size_t end = (offset + bytes + kReadableTailBytes + kPage - 1) / kPage;
      if (seed % 2 == 1) device.faults().FailRequest(random() % 3);
      bool any = false;
      for (size_t i = offset / kPage; i < end; ++i) any |= !there[i];
      if (random() % 2 == 0 && !any) {
        const bool made = pages.MakeHole(offset, bytes);
        const size_t first = (offset + kReadableTailBytes + kPage - 1) / kPage;
        for (size_t i = first; made && i < (offset + bytes) / kPage; ++i) there[i] = false;
      } else {
        try {
          pages.FillHole(offset, bytes);
        } catch (const OutOfMemoryError&) {  // some may be filled
          ASSERT_EQ(seed % 2, 1u);
          device.faults().Clear();
          pages.FillHole(offset, bytes);
        }
        for (size_t i = offset / kPage; i < end; ++i) there[i] = true;
      }
      device.faults().Clear();
      size_t count = 0;
      for (const bool one : there) count += one;
      ASSERT_EQ(pages.committed_bytes(), count * kPage) << "seed " << seed << ", step " << step;
      ASSERT_EQ(device.used_bytes(), count * kPage);
      size_t without = 0, last = 0;
      for (const Pages::Hole& hole : pages.holes()) {
        ASSERT_LT(hole.begin, hole.end);
        ASSERT_GE(hole.begin, last);
        last = hole.end;
        for (size_t i = hole.begin / kPage; i < hole.end / kPage; ++i, ++without)
          ASSERT_FALSE(there[i]);
      }
      ASSERT_EQ(without, kPages - count);
    }
  }
  device.Reset();
}

// A part of a large page goes where it is told that this may be.
TEST(Pages, HolesSplitLargePages) {
  Pages pages({.prefault = false});
  pages.Resize(8 * kMiB);
  std::memset(pages.base(), 5, 8 * kMiB);
  const size_t whole = pages.committed_bytes();
  EXPECT_FALSE(pages.MakeHole(kMiB, kMiB));
  ASSERT_TRUE(pages.MakeHole(kMiB, kMiB, /*splits=*/true));
  EXPECT_GE(whole - pages.committed_bytes(), kMiB - 2 * HostProvider().traits().granularity);
  EXPECT_EQ(pages.base()[kMiB - 1], std::byte{5});
  EXPECT_EQ(pages.base()[2 * kMiB], std::byte{5});
  pages.FillHole(kMiB, kMiB);
  EXPECT_EQ(pages.committed_bytes(), whole);
  std::memset(pages.base(), 6, 8 * kMiB);
}

// A large page is not taken for its beginning where it is more than a 64th of all.
TEST(Pages, RangesThatFitEndWithOrdinaryPages) {
  const size_t large = HostProvider().traits().large_granularity;
  const size_t page = HostProvider().traits().granularity;
  Pages fits({.fits = true, .prefault = false}), ends({.prefault = false});
  for (const size_t bytes :
       {kMiB, 3 * kMiB, 9 * kMiB + 100, 31 * kMiB, 33 * kMiB, 100 * kMiB + 1}) {
    fits.Resize(bytes);
    ends.Resize(bytes);
    EXPECT_LE(fits.committed_bytes(), bytes + bytes / 64 + page);
    EXPECT_LE(ends.committed_bytes(), bytes + large + page);
    std::memset(fits.base(), 7, bytes + kReadableTailBytes);
  }
  for (const size_t bytes : {40 * kMiB + 1, 5 * kMiB + 1}) {
    fits.Resize(bytes);
    EXPECT_LE(fits.committed_bytes(), bytes + bytes / 64 + page);
    EXPECT_EQ(fits.base()[bytes - 1], std::byte{7});
  }
}

}  // namespace
}  // namespace tidepool
