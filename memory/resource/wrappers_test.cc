// What each wrapper does beyond the contract.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/resource/align_resource.h"
#include "tidepool/memory/resource/budgeted_resource.h"
#include "tidepool/memory/resource/canary_resource.h"
#include "tidepool/memory/resource/charged_resource.h"
#include "tidepool/memory/resource/count_resource.h"
#include "tidepool/memory/resource/limit_resource.h"
#include "tidepool/memory/resource/pool.h"
#include "tidepool/memory/resource/provider_blocks.h"
#include "tidepool/memory/resource/reclaiming_resource.h"
#include "tidepool/memory/resource/record_resource.h"
#include "tidepool/memory/resource/testing/address_resource.h"

namespace tidepool {
namespace {

// Has no memory for its books, each time.
class ThrowingResource final : public ResourceWrapper {
 public:
  explicit ThrowingResource(MemoryResource& upstream) : ResourceWrapper(upstream) {}
  Allocation Allocate(size_t, size_t) override { throw std::bad_alloc(); }
  void Release(void*, size_t, size_t) noexcept override {}
  std::string Describe() const override { return "throws"; }
};

TEST(LimitResource, GrantsUpToItsLimitAndNoMore) {
  AddressResource addresses;
  LimitResource limited(addresses, 10 * AddressResource::kPageBytes);
  std::vector<void*> tokens;
  for (int i = 0; i < 10; ++i) tokens.push_back(limited.Allocate(100, 16).token);
  EXPECT_EQ(limited.taken_bytes(), limited.limit_bytes());
  const size_t asked = addresses.requests();
  const Allocation refused = limited.Allocate(100, 16);
  EXPECT_EQ(refused.refusal, Refusal::kOverLimit);
  EXPECT_EQ(refused.refused_by, &limited);
  EXPECT_EQ(refused.missing_bytes, AddressResource::kPageBytes);
  EXPECT_EQ(addresses.requests(), asked);  // not asked
  EXPECT_EQ(limited.Allocate(11 * AddressResource::kPageBytes, 16).refusal, Refusal::kImpossible);
  limited.Release(tokens.back(), 100, 16);
  tokens.back() = limited.Allocate(100, 16).token;
  EXPECT_NE(tokens.back(), nullptr);
  for (void* token : tokens) limited.Release(token, 100, 16);
  EXPECT_EQ(limited.taken_bytes(), 0);
}

// Blocks that together never fit the limit: whoever is granted one sees the limit kept.
TEST(LimitResource, HoldsUnderContention) {
  ProviderBlocks blocks(GetDeviceProvider(Host(), "test"));
  LimitResource limited(blocks, 1000);
  std::atomic<int64_t> live{0}, most{0}, granted{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20000; ++i) {
        const Allocation block = limited.Allocate(300, 16);
        if (!block) continue;
        ++granted;
        const int64_t now = live.fetch_add(300) + 300;
        int64_t seen = most.load();
        while (now > seen && !most.compare_exchange_weak(seen, now)) {
        }
        live.fetch_sub(300);
        limited.Release(block.token, 300, 16);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(most, 1000);
  EXPECT_GT(granted, 0);
  EXPECT_EQ(limited.taken_bytes(), 0);
}

TEST(CountResource, CountsWhatPassed) {
  AddressResource addresses;
  addresses.set_capacity(3 * AddressResource::kPageBytes);
  CountResource counted(addresses);
  void* const a = counted.Allocate(100, 16).token;
  void* const b = counted.Allocate(200, 16).token;
  counted.Release(a, 100, 16);
  void* const c = counted.Allocate(50, 16).token;
  EXPECT_FALSE(counted.Allocate(2 * AddressResource::kPageBytes, 16));
  CountResource::Counts counts = counted.counts();
  EXPECT_EQ(counts.live_blocks, 2);
  EXPECT_EQ(counts.live_bytes, 250);
  EXPECT_EQ(counts.peak_live_bytes, 300);
  EXPECT_EQ(counts.granted_blocks, 3);
  EXPECT_EQ(counts.granted_bytes, 350);
  EXPECT_EQ(counts.refused_blocks, 1);
  counted.Release(b, 200, 16);
  counted.Release(c, 50, 16);
  EXPECT_EQ(counted.counts().live_blocks, 0);
}

// An exception from below leaves no trace but a refusal that was counted.
TEST(Wrappers, ExceptionsFromBelowRollBack) {
  AddressResource addresses;
  ThrowingResource throwing(addresses);
  LimitResource limited(throwing, size_t{1} << 30);
  CountResource counted(limited);
  RecordResource recorded(counted);
  MemoryOwner& owner = MemoryOwner::Process().Child("thrown");
  BudgetedResource budgeted(recorded, &owner, "pages");
  ChargedResource charged(budgeted, MemoryKind::kAllocated, &owner, "blocks");
  for (const bool with_limits : {false, true}) {
    if (with_limits) MemoryBudget::Global().SetProcessLimit(int64_t{1} << 40);
    EXPECT_THROW(charged.Allocate(100, 16), std::bad_alloc);
    EXPECT_EQ(limited.taken_bytes(), 0);
    EXPECT_EQ(MemoryBudget::Global().Of(owner, charged.device()).taken_bytes, 0);
    EXPECT_EQ(MemoryTracker::Global().CurrentBytes(charged.device(), MemoryKind::kAllocated), 0);
  }
  MemoryBudget::Global().SetProcessLimit(MemoryBudget::kUnlimited);
  EXPECT_EQ(counted.counts().live_blocks, 0);
  EXPECT_EQ(counted.counts().refused_blocks, 2);
  EXPECT_TRUE(recorded.requests().empty());
}

// A refusal from below: nothing stays counted at any level, with limits and without.
TEST(Wrappers, RefusalsFromBelowRollBack) {
  AddressResource addresses;
  addresses.set_capacity(AddressResource::kPageBytes);
  void* const full = addresses.Allocate(1, 16).token;
  LimitResource limited(addresses, size_t{1} << 30);
  CountResource counted(limited);
  RecordResource recorded(counted);
  MemoryOwner& owner = MemoryOwner::Process().Child("refused");
  BudgetedResource budgeted(recorded, &owner, "pages");
  ChargedResource charged(budgeted, MemoryKind::kAllocated, &owner, "blocks");
  for (const bool with_limits : {false, true}) {
    if (with_limits) MemoryBudget::Global().SetProcessLimit(int64_t{1} << 40);
    for (int i = 0; i < 3; ++i) {
      const Allocation refused = charged.Allocate(100, 16);
      EXPECT_EQ(refused.refusal, Refusal::kExhausted);
      EXPECT_EQ(refused.refused_by, &addresses);
    }
    EXPECT_EQ(limited.taken_bytes(), 0);
    EXPECT_EQ(MemoryBudget::Global().Of(owner, charged.device()).taken_bytes, 0);
    EXPECT_EQ(MemoryTracker::Global().CurrentBytes(charged.device(), MemoryKind::kAllocated), 0);
  }
  EXPECT_EQ(counted.counts().live_blocks, 0);
  EXPECT_EQ(counted.counts().refused_blocks, 6);
  addresses.Release(full, 1, 16);
  const Allocation block = charged.Allocate(100, 16);
  EXPECT_TRUE(block);
  EXPECT_EQ(MemoryTracker::Global().CurrentBytes(charged.device(), MemoryKind::kAllocated), 100);
  charged.Release(block.token, 100, 16);
  EXPECT_EQ(MemoryBudget::Global().Of(owner, charged.device()).taken_bytes, 0);
  MemoryBudget::Global().SetProcessLimit(MemoryBudget::kUnlimited);
}

TEST(RecordResource, WhatWasRecordedReplaysElsewhere) {
  AddressResource addresses;
  RecordResource recorded(addresses);
  void* const a = recorded.Allocate(1000, 16).token;
  void* const b = recorded.Allocate(3000000, 64).token;
  EXPECT_FALSE(recorded.Allocate(SIZE_MAX, 16));
  recorded.Release(a, 1000, 16);
  void* const c = recorded.Allocate(2000, 32).token;
  using What = RecordedRequest::What;
  const std::vector<RecordedRequest> requests = recorded.requests();
  ASSERT_EQ(requests.size(), 5);
  EXPECT_EQ(requests[1].bytes, 3000000);
  EXPECT_EQ(requests[2].what, What::kRefused);
  EXPECT_EQ(requests[3].what, What::kReleased);
  EXPECT_EQ(requests[3].block, 0);
  EXPECT_EQ(requests[4].block, 2);
  EXPECT_EQ(requests[4].alignment, 32);

  AddressResource others;
  Pool pool(others, 1 << 16, 64);
  CountResource counted(pool);
  EXPECT_EQ(ReplayRequests(requests, counted), 0);
  EXPECT_EQ(counted.counts().granted_blocks, 3);
  EXPECT_EQ(counted.counts().peak_live_bytes, 3002000);
  EXPECT_EQ(counted.counts().live_blocks, 0);  // what was live in the end too
  others.set_capacity(1 << 20);
  pool.Trim();
  EXPECT_EQ(ReplayRequests(requests, counted), 1);
  EXPECT_EQ(pool.used_bytes(), 0);

  recorded.Clear();
  recorded.Release(b, 3000000, 64);
  recorded.Release(c, 2000, 32);
  EXPECT_TRUE(recorded.requests().empty());
  EXPECT_EQ(addresses.live_blocks(), 0);
}

TEST(ReclaimingResource, AsksForWhatIsMissingAndTriesAgain) {
  AddressResource addresses;
  addresses.set_capacity(4 * AddressResource::kPageBytes);
  Reclaimer reclaimer;
  ReclaimingResource reclaiming(addresses, &reclaimer);
  std::vector<void*> spare;
  for (int i = 0; i < 4; ++i) spare.push_back(addresses.Allocate(100, 16).token);
  int asked = 0;
  const Reclaimer::Registration registration =
      reclaimer.Register("spare", [&](ReclaimDepth) -> int64_t {
        ++asked;
        if (spare.empty()) return 0;
        addresses.Release(spare.back(), 100, 16);
        spare.pop_back();
        return static_cast<int64_t>(AddressResource::kPageBytes);
      });
  const Allocation block = reclaiming.Allocate(2 * AddressResource::kPageBytes - 64, 16);
  EXPECT_TRUE(block);
  EXPECT_EQ(spare.size(), 2);
  const Allocation refused = reclaiming.Allocate(3 * AddressResource::kPageBytes - 64, 16);
  EXPECT_EQ(refused.refusal, Refusal::kExhausted);
  EXPECT_EQ(refused.reclaimed_bytes, 2 * AddressResource::kPageBytes);
  EXPECT_EQ(refused.refused_by, &addresses);
  // Nothing is given back for what cannot be.
  asked = 0;
  EXPECT_EQ(reclaiming.Allocate(SIZE_MAX, 16).refusal, Refusal::kImpossible);
  EXPECT_EQ(asked, 0);
  reclaiming.Release(block.token, 2 * AddressResource::kPageBytes - 64, 16);
}

TEST(BudgetedResource, NamesTheLimitThatStandsInTheWay) {
  MemoryOwner& owner = MemoryOwner::Process().Child("budgeted");
  AddressResource addresses;
  BudgetedResource budgeted(addresses, &owner, "pages of a test");
  MemoryBudget::Global().SetOwnerLimit(owner, budgeted.device(), 2 * AddressResource::kPageBytes);
  const Allocation block = budgeted.Allocate(100, 16);
  ASSERT_TRUE(block);
  EXPECT_EQ(MemoryBudget::Global().Of(owner, budgeted.device()).taken_bytes,
            AddressResource::kPageBytes);
  const Allocation refused = budgeted.Allocate(AddressResource::kPageBytes, 16);
  EXPECT_EQ(refused.refusal, Refusal::kOverLimit);
  EXPECT_EQ(refused.missing_bytes, AddressResource::kPageBytes);
  try {
    AllocateOrThrow(budgeted, AddressResource::kPageBytes, 16);
    ADD_FAILURE() << "granted";
  } catch (const OutOfMemoryError& error) {
    EXPECT_NE(error.message().find("the limit of owner [budgeted] is 8192 bytes, 4096 are taken"),
              std::string::npos)
        << error.message();
    EXPECT_NE(error.message().find("for pages of a test"), std::string::npos);
  }
  budgeted.Release(block.token, 100, 16);
  MemoryBudget::Global().SetOwnerLimit(owner, budgeted.device(), MemoryBudget::kUnlimited);
}

TEST(CanaryResourceDeathTest, WritesPastEitherEndEndTheProcess) {
  DeviceProvider& host = GetDeviceProvider(Host(), "test");
  ProviderBlocks blocks(host);
  CanaryResource watched(blocks, host);
  for (const ptrdiff_t offset : {-64, -1, 100, 163}) {
    EXPECT_DEATH(
        {
          const Allocation block = watched.Allocate(100, 16);
          block.data[offset] = std::byte{1};
          watched.Release(block.token, 100, 16);
        },
        "a write at offset " + std::to_string(offset) + " of a block of 100 bytes");
  }
  const Allocation block = watched.Allocate(100, 16);
  EXPECT_EQ(block.data[50], std::byte{0xff});
  std::memset(block.data, 1, 100);
  watched.Release(block.token, 100, 16);
}

}  // namespace
}  // namespace tidepool
