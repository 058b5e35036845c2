#include "tidepool/memory/resource/heap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/failing_provider.h"

namespace tidepool {
namespace {

using ::testing::HasSubstr;

int64_t OnLedger(MemoryKind kind = MemoryKind::kAllocated) {
  return MemoryTracker::Global().CurrentBytes(Host(), kind);
}
int64_t Taken(const MemoryOwner& owner = MemoryOwner::Process()) {
  return MemoryBudget::Global().Of(owner, Host()).taken_bytes;
}

TEST(HeapTest, LedgerAndBudgetHoldWhatIsAlive) {
  MemoryOwner& owner = MemoryOwner::Process().Child("heap test");
  const int64_t ledger = OnLedger(), taken = Taken();
  const int64_t requests = MemoryBudget::Global().Of(owner, Host()).requests;
  void* const a = HeapAllocate(100, 64, MemoryKind::kAllocated, Host(), &owner);
  void* const b = HeapAllocate(70000, 4096, MemoryKind::kGradientStandard, Host(), &owner);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b) % 4096, 0u);
  EXPECT_EQ(OnLedger() - ledger, 100);
  EXPECT_EQ(Taken(owner), 70100);
  EXPECT_EQ(Taken() - taken, 70100);
  EXPECT_EQ(MemoryBudget::Global().Of(owner, Host()).requests - requests, 2);
  HeapRelease(a, 100, MemoryKind::kAllocated, Host(), &owner);
  HeapRelease(b, 70000, MemoryKind::kGradientStandard, Host(), &owner);
  EXPECT_EQ(OnLedger(), ledger);
  EXPECT_EQ(Taken(owner), 0);
  EXPECT_EQ(Taken(), taken);
}

TEST(HeapTest, ARefusalNamesWhatAndCountsNothing) {
  const int64_t ledger = OnLedger(), taken = Taken();
  FailingProvider host(Host());
  for (const bool limited : {false, true}) {
    MemoryBudget::Global().SetProcessLimit(limited ? int64_t{1} << 40 : MemoryBudget::kUnlimited);
    host.faults().FailRequest(0);  // one, which nothing retries
    try {
      HeapAllocate(1000, 128, MemoryKind::kAllocated);
      ADD_FAILURE() << "granted";
    } catch (const OutOfMemoryError& error) {
      EXPECT_THAT(error.message(), HasSubstr("host refused 1000 bytes aligned to 128"));
    }
    EXPECT_EQ(OnLedger(), ledger);
    EXPECT_EQ(Taken(), taken);
  }
  MemoryBudget::Global().SetProcessLimit(MemoryBudget::kUnlimited);
  EXPECT_THROW(HeapAllocate(SIZE_MAX - 10, 64, MemoryKind::kAllocated), OutOfMemoryError);
  EXPECT_EQ(OnLedger(), ledger);
  EXPECT_EQ(Taken(), taken);
}

// Runs of kinds, owners and sizes, small, aligned to more than small blocks are, and large.
TEST(HeapTest, ManyReleasesCountAsEach) {
  struct Block {
    void* data;
    size_t bytes;
    MemoryKind kind;
    MemoryOwner* owner;
  };
  MemoryOwner* const owners[] = {&MemoryOwner::Process().Child("heap a"),
                                 &MemoryOwner::Process().Child("heap b")};
  const int64_t ledger = OnLedger(), taken = Taken();
  const MemorySnapshot before = MemoryTracker::Global().Snapshot();
  std::mt19937_64 random(7);
  for (int round = 0; round < 50; ++round) {
    std::vector<Block> blocks;
    for (int i = 0; i < 400; ++i) {
      const bool anew = i == 0 || random() % 30 == 0;
      Block block =
          anew ? Block{nullptr, 0,
                       random() % 2 == 0 ? MemoryKind::kAllocated : MemoryKind::kGradientStandard,
                       owners[random() % 2]}
               : blocks.back();
      if (anew || random() % 5 == 0) block.bytes = random() % (random() % 8 == 0 ? 90000 : 600);
      const size_t alignment = random() % 20 == 0 ? 1024 : 64;
      block.data = HeapAllocate(block.bytes, alignment, block.kind, Host(), block.owner);
      std::memset(block.data, 1, block.bytes);
      blocks.push_back(block);
    }
    HeapReleases releases;
    for (const Block& block : blocks) {
      releases.Release(block.data, block.bytes, block.kind, Host(), block.owner);
    }
    releases.Flush();
    ASSERT_EQ(OnLedger(), ledger);
    ASSERT_EQ(OnLedger(MemoryKind::kGradientStandard), 0);
    ASSERT_EQ(Taken(), taken);
    ASSERT_EQ(Taken(*owners[0]), 0);
  }
  const MemorySnapshot after = MemoryTracker::Global().Snapshot();
  EXPECT_EQ(after.system_allocations - before.system_allocations, 50 * 400);
  EXPECT_EQ(after.system_releases - before.system_releases, 50 * 400);
}

// A limit may come between the look for one and the count.
TEST(HeapTest, LimitsComeAndGoWhileOthersAllocate) {
  MemoryOwner& owner = MemoryOwner::Process().Child("heap limits");
  const int64_t ledger = OnLedger();
  std::atomic<int> running{3};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      std::vector<std::pair<void*, size_t>> held;
      for (int i = 0; i < 20000; ++i) {
        if (held.size() < 20) {
          const size_t bytes = random() % 1000;
          try {
            held.emplace_back(HeapAllocate(bytes, 64, MemoryKind::kAllocated, Host(), &owner),
                              bytes);
          } catch (const OutOfMemoryError&) {  // beyond the limit of the moment
          }
        }
        if (held.empty() || random() % 2 == 0) continue;
        std::swap(held[random() % held.size()], held.back());
        HeapRelease(held.back().first, held.back().second, MemoryKind::kAllocated, Host(), &owner);
        held.pop_back();
      }
      for (const auto& [data, bytes] : held) {
        HeapRelease(data, bytes, MemoryKind::kAllocated, Host(), &owner);
      }
      --running;
    });
  }
  while (running > 0) {
    MemoryBudget::Global().SetOwnerLimit(owner, Host(), 10000);
    std::this_thread::yield();
    MemoryBudget::Global().SetOwnerLimit(owner, Host(), MemoryBudget::kUnlimited);
    std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Taken(owner), 0);
  EXPECT_EQ(OnLedger(), ledger);
}

}  // namespace
}  // namespace tidepool
