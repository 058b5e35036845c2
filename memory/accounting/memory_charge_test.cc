#include "tidepool/memory/accounting/memory_charge.h"

#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

int64_t Counted(MemoryKind kind) { return MemoryTracker::Global().CurrentBytes(Host(), kind); }
int64_t Taken() { return MemoryBudget::Global().Of(Host()).taken_bytes; }

TEST(MemoryCharge, IsOnTheLedgerAndInTheBudgetWhileItLives) {
  {
    MemoryOwnerScope owner("images");
    const MemoryCharge charge(MemoryKind::kAllocated, 100);
    EXPECT_EQ(Counted(MemoryKind::kAllocated), 100);
    EXPECT_EQ(MemoryTracker::Global().Snapshot().Of("images").total.current_bytes, 100);
    EXPECT_EQ(Taken(), 100);
  }
  EXPECT_EQ(Counted(MemoryKind::kAllocated), 0);
  EXPECT_EQ(Taken(), 0);
}

TEST(MemoryCharge, CopiesCountAgainAndMovesDoNot) {
  MemoryCharge first(MemoryKind::kAllocated, 100);
  MemoryCharge copy = first;
  EXPECT_EQ(Counted(MemoryKind::kAllocated), 200);
  MemoryCharge moved = std::move(first);
  EXPECT_EQ(Counted(MemoryKind::kAllocated), 200);
  copy = std::move(moved);
  EXPECT_EQ(Counted(MemoryKind::kAllocated), 100);
  copy = MemoryCharge();
  EXPECT_EQ(Counted(MemoryKind::kAllocated), 0);
}

TEST(MemoryCharge, ImportedMemoryIsInNoBudget) {
  const MemoryCharge charge = MemoryCharge::Imported(64);
  const MemoryCharge copy = charge;
  EXPECT_EQ(Counted(MemoryKind::kExternal), 128);
  EXPECT_EQ(Taken(), 0);
}

TEST(MemoryCharge, ImportedBytesAreANumberThatThereMayBe) {
  EXPECT_THROW(MemoryCharge::Imported(-1), Error);
  EXPECT_THROW(MemoryCharge::Imported(int64_t{1} << 62), Error);
  EXPECT_THROW(MemoryCharge(MemoryKind::kAllocated, int64_t{1} << 62), Error);
  EXPECT_EQ(Counted(MemoryKind::kExternal), 0);
}

// Charges of as much as one may have, again and again: what sums cannot hold is refused.
TEST(MemoryCharge, ChargesAreAsManyAsCanBeCounted) {
  const MemoryCharge most(MemoryKind::kAllocated, kMostCountedBytes);
  const MemoryCharge most_imported = MemoryCharge::Imported(kMostCountedBytes);
  std::vector<MemoryCharge> charges;
  auto fill = [&](const MemoryCharge& charge) {
    for (int i = 0; i < 40000; ++i) charges.push_back(charge);
  };
  EXPECT_THROW(fill(most_imported), Error);
  EXPECT_EQ(Counted(MemoryKind::kAllocated) + Counted(MemoryKind::kExternal),
            kMostCountedBytesInAll);
  charges.clear();
  EXPECT_THROW(fill(most), Error);
  EXPECT_EQ(Counted(MemoryKind::kAllocated) + Counted(MemoryKind::kExternal),
            kMostCountedBytesInAll);
  EXPECT_EQ(Taken(), kMostCountedBytesInAll - kMostCountedBytes);
  charges.clear();
  EXPECT_EQ(Counted(MemoryKind::kAllocated), kMostCountedBytes);
  EXPECT_EQ(Taken(), kMostCountedBytes);
}

TEST(MemoryCharge, ARefusedChargeCountsNothing) {
  MemoryBudget::Global().SetDeviceLimit(Host(), 150);
  const MemoryCharge charge(MemoryKind::kAllocated, 100);
  EXPECT_THROW(MemoryCharge(MemoryKind::kAllocated, 51), OutOfMemoryError);
  EXPECT_THROW(MemoryCharge{charge}, OutOfMemoryError);
  EXPECT_THROW(MemoryCharge(MemoryKind::kAllocated, -1), Error);
  EXPECT_EQ(Counted(MemoryKind::kAllocated), 100);
  EXPECT_EQ(Taken(), 100);
  MemoryBudget::Global().SetDeviceLimit(Host(), MemoryBudget::kUnlimited);
}

}  // namespace
}  // namespace tidepool
