#include "tidepool/memory/mirroring/host_copies.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/failing_provider.h"

namespace tidepool {
namespace {

int64_t Bytes(MemoryKind kind) { return MemoryTracker::Global().CurrentBytes(Host(), kind); }
int64_t Allocations() { return MemoryTracker::Global().system_allocations(); }

class HostCopiesTest : public testing::Test {
 protected:
  void SetUp() override { copies_.Trim(); }
  void TearDown() override { copies_.Trim(); }

  HostCopies& copies_ = HostCopies::Global();
  DeviceProvider& memory_ = GetDeviceProvider(Host(), "test");
  MemoryOwner& owner_ = MemoryOwner::Process().Child("host copies test");
};

TEST_F(HostCopiesTest, TheSameSizeIsUsedAgainAndTheLedgerHasIt) {
  const int64_t allocated = Bytes(MemoryKind::kAllocated), kept = Bytes(MemoryKind::kUnreferenced);
  const int64_t taken = MemoryBudget::Global().process().taken_bytes;
  std::byte* const first = copies_.Take(memory_, 4096, owner_);
  EXPECT_EQ(Bytes(MemoryKind::kAllocated), allocated + 4096);
  EXPECT_EQ(MemoryBudget::Global().Of(owner_, Host()).taken_bytes, 4096);
  copies_.GiveBack(memory_, first, 4096, owner_);
  EXPECT_EQ(Bytes(MemoryKind::kAllocated), allocated);
  EXPECT_EQ(Bytes(MemoryKind::kUnreferenced), kept + 4096);
  EXPECT_EQ(MemoryBudget::Global().Of(owner_, Host()).taken_bytes, 0);
  EXPECT_EQ(MemoryBudget::Global().process().taken_bytes, taken + 4096);

  const int64_t asked = Allocations();
  std::byte* const again = copies_.Take(memory_, 4096, owner_);
  EXPECT_EQ(again, first);
  EXPECT_EQ(Allocations(), asked);
  EXPECT_EQ(Bytes(MemoryKind::kUnreferenced), kept);
  std::byte* const other = copies_.Take(memory_, 4095, owner_);
  EXPECT_EQ(Allocations(), asked + 1);
  copies_.GiveBack(memory_, again, 4096, owner_);
  copies_.GiveBack(memory_, other, 4095, owner_);
  EXPECT_EQ(copies_.kept_bytes(), 8191u);

  Reclaimer::Global().RunNow();
  EXPECT_EQ(copies_.kept_bytes(), 0u);
  EXPECT_EQ(Bytes(MemoryKind::kUnreferenced), kept);
  EXPECT_EQ(MemoryBudget::Global().process().taken_bytes, taken);
}

TEST_F(HostCopiesTest, AtMostSoMuchIsKeptAndTheOldestGoes) {
  const size_t one = HostCopies::kMostBytesOfOne;
  std::vector<std::byte*> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(copies_.Take(memory_, one, owner_));
  for (std::byte* block : blocks) copies_.GiveBack(memory_, block, one, owner_);
  EXPECT_EQ(copies_.kept_bytes(), 4 * one);
  EXPECT_EQ(copies_.Take(memory_, one, owner_), blocks[5]);
  copies_.GiveBack(memory_, blocks[5], one, owner_);
  std::byte* const large = copies_.Take(memory_, one + 1, owner_);
  copies_.GiveBack(memory_, large, one + 1, owner_);
  EXPECT_EQ(copies_.kept_bytes(), 4 * one);

  copies_.Trim();
  blocks.clear();
  for (size_t i = 0; i < HostCopies::kMostBlocks + 5; ++i) {
    blocks.push_back(copies_.Take(memory_, 64, owner_));
  }
  for (std::byte* block : blocks) copies_.GiveBack(memory_, block, 64, owner_);
  EXPECT_EQ(copies_.kept_bytes(), 64 * HostCopies::kMostBlocks);
}

TEST_F(HostCopiesTest, ABudgetThatRefusesChangesNothing) {
  std::byte* const block = copies_.Take(memory_, 4096, MemoryOwner::Process());
  copies_.GiveBack(memory_, block, 4096, MemoryOwner::Process());
  MemoryBudget::Global().SetOwnerLimit(owner_, Host(), 100);
  const int64_t taken = MemoryBudget::Global().process().taken_bytes;
  EXPECT_THROW(copies_.Take(memory_, 4096, owner_), OutOfMemoryError);
  EXPECT_LE(MemoryBudget::Global().process().taken_bytes, taken);
  EXPECT_EQ(MemoryBudget::Global().Of(owner_, Host()).taken_bytes, 0);
  MemoryBudget::Global().SetOwnerLimit(owner_, Host(), MemoryBudget::kUnlimited);
  copies_.GiveBack(memory_, copies_.Take(memory_, 4096, owner_), 4096, owner_);
}

TEST_F(HostCopiesTest, ARefusalIsThrown) {
  const int64_t allocated = Bytes(MemoryKind::kAllocated);
  {
    FailingProvider failing{Host()};
    failing.faults().FailRequest(0, 2);
    EXPECT_THROW(copies_.Take(failing, 4096, owner_), OutOfMemoryError);
  }
  EXPECT_EQ(Bytes(MemoryKind::kAllocated), allocated);
}

}  // namespace
}  // namespace tidepool
