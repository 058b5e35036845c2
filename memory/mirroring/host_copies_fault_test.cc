// Host copies when there is no memory for the books: an owner's first use makes entries.
#include <cstddef>
#include <cstdint>
#include <string>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/mirroring/host_copies.h"
#include "tidepool/memory/testing/failing_new.h"

namespace tidepool {
namespace {

constexpr size_t kBytes = 4096;

int64_t OnLedger(MemoryKind kind) { return MemoryTracker::Global().CurrentBytes(Host(), kind); }
int64_t Taken() { return MemoryBudget::Global().process().taken_bytes; }

TEST(HostCopiesFaultTest, WhatCannotBeBookedIsGivenBackWhole) {
  HostCopies& copies = HostCopies::Global();
  DeviceProvider& memory = GetDeviceProvider(Host(), "test");
  MemoryOwner& process = MemoryOwner::Process();
  copies.GiveBack(memory, copies.Take(memory, kBytes, process), kBytes, process);
  copies.Trim();
  const int64_t allocated = OnLedger(MemoryKind::kAllocated);
  const int64_t kept = OnLedger(MemoryKind::kUnreferenced);
  const int64_t taken = Taken();
  for (int64_t n = 0;; ++n) {
    ASSERT_LT(n, 100);
    // A kept block, and an owner that nothing has been charged to.
    copies.GiveBack(memory, copies.Take(memory, kBytes, process), kBytes, process);
    ASSERT_EQ(copies.kept_bytes(), kBytes);
    MemoryOwner& owner = process.Child("fault " + std::to_string(n)).Tagged("copies");
    std::byte* data = nullptr;
    until_fault = n;
    if (!Try([&] { data = copies.Take(memory, kBytes, owner); })) {
      EXPECT_EQ(copies.kept_bytes(), 0u) << n;
      EXPECT_EQ(OnLedger(MemoryKind::kAllocated), allocated) << n;
      EXPECT_EQ(OnLedger(MemoryKind::kUnreferenced), kept) << n;
      EXPECT_EQ(Taken(), taken) << n;
      EXPECT_EQ(MemoryBudget::Global().Of(owner, Host()).taken_bytes, 0) << n;
      continue;
    }
    EXPECT_GT(n, 2);  // counters of the owner and of what it is in, and the ledger's list
    EXPECT_EQ(OnLedger(MemoryKind::kAllocated), allocated + static_cast<int64_t>(kBytes));
    copies.GiveBack(memory, data, kBytes, owner);
    break;
  }
  copies.Trim();
  EXPECT_EQ(Taken(), taken);
}

}  // namespace
}  // namespace tidepool
