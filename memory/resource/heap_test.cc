#include "tidepool/memory/resource/heap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/reclaimer.h"
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

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// Large blocks of which some are replaced now and then: what malloc cut off in front of each for its alignment fitted none
// of the next, and half as much again stayed.
TEST(HeapTest, LargeBlocksThatAreReplacedTakeWhatIsAlive) {
  constexpr size_t kBytes = (size_t{256} << 10) + 1, kAlive = 256;
  std::mt19937_64 random(49);
  std::vector<void*> blocks(kAlive);
  const auto make = [&](void*& block) {
    block = HeapAllocate(kBytes, 64, MemoryKind::kAllocated);
    std::memset(block, 1, kBytes);
  };
  const int64_t before = ResidentBytes();
  for (void*& block : blocks) make(block);
  for (int i = 0; i < 6000; ++i) {
    void*& block = blocks[random() % kAlive];
    HeapRelease(block, kBytes, MemoryKind::kAllocated);
    make(block);
  }
  EXPECT_LE(ResidentBytes() - before, static_cast<int64_t>(kBytes * kAlive * 9 / 8));
  for (void* const block : blocks) HeapRelease(block, kBytes, MemoryKind::kAllocated);
}
#endif

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

// Threads hold every lock of the process-wide state as often as not; children use all of it.
TEST(HeapTest, AChildOfForkAllocatesCountsAndReclaims) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "gcc 12's AddressSanitizer leaves its own allocator locked in the child";
#endif
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  const Reclaimer::Registration registration =
      Reclaimer::Global().Register("fork test", [](ReclaimDepth) { return int64_t{0}; });
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; !stop; ++i) {
        void* blocks[40];
        for (void*& block : blocks) block = HeapAllocate(200, 64, MemoryKind::kAllocated);
        void* const wide = HeapAllocate(100, 1024, MemoryKind::kAllocated);
        HeapReleases releases;
        for (void* block : blocks)
          releases.Release(block, 200, MemoryKind::kAllocated, Host(), nullptr);
        HeapRelease(wide, 100, MemoryKind::kAllocated);
        MemoryOwner::Process().Child("fork test " + std::to_string(t));
        Reclaimer::Global().RunNow();
      }
    });
  }
  Reclaimer::Global().set_window(absl::Hours(1));
  for (int round = 0; round < 60; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);  // a lock that stays taken ends the child
      for (int i = 0; i < 100; ++i) {
        void* const block = HeapAllocate(200, 64, MemoryKind::kAllocated);
        HeapRelease(block, 200, MemoryKind::kAllocated);
        HeapRelease(HeapAllocate(100, 1024, MemoryKind::kAllocated), 100, MemoryKind::kAllocated);
      }
      MemoryOwner::Process().Child("fork test child");
      const bool sees = MemoryTracker::Global().Snapshot().devices.size() > 0;
      Reclaimer::Global().RunNow();
      const bool windowless = Reclaimer::Global().window() == absl::ZeroDuration();
#ifndef __SANITIZE_THREAD__  // where a child may not start threads
      if (round % 10 == 0) {
        Reclaimer::Global().set_window(absl::Milliseconds(1));
        while (Reclaimer::Global().stats().periodic_runs == 0) std::this_thread::yield();
        Reclaimer::Global().set_window(absl::ZeroDuration());
      }
#endif
      std::_Exit(sees && windowless ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "round " << round;
    if (status != 0) break;
  }
  EXPECT_EQ(Reclaimer::Global().window(), absl::Hours(1));  // the parent keeps its thread
  stop = true;
  for (std::thread& thread : threads) thread.join();
  Reclaimer::Global().set_window(absl::ZeroDuration());
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
