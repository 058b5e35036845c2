#include "tidepool/memory/accounting/memory_tracker.h"

#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

TEST(MemoryTracker, CountsByKindAndKeepsPeaks) {
  MemoryTracker tracker;
  tracker.Add(Host(), MemoryKind::kAllocated, 100);
  tracker.Add(Host(), MemoryKind::kGradientStandard, 40);
  tracker.Add(Host(), MemoryKind::kAllocated, -70);
  const DeviceMemory host = tracker.Snapshot()[Host()];
  EXPECT_EQ(host[MemoryKind::kAllocated].current_bytes, 30);
  EXPECT_EQ(host[MemoryKind::kAllocated].peak_bytes, 100);
  EXPECT_EQ(host[MemoryKind::kGradientStandard].current_bytes, 40);
  EXPECT_EQ(host.total.current_bytes, 70);
  EXPECT_EQ(host.total.peak_bytes, 140);
}

TEST(MemoryTracker, AnAccountsUnusedPartIsUnreferenced) {
  MemoryTracker tracker;
  MemoryAccount account(Host());
  tracker.Register(&account);
  tracker.AddOwned(&account, 1000);
  account.AddUsed(300);
  account.AddUsed(300);
  account.SubUsed(500);
  DeviceMemory host = tracker.Snapshot()[Host()];
  EXPECT_EQ(host[MemoryKind::kAllocated].current_bytes, 100);
  EXPECT_EQ(host[MemoryKind::kAllocated].peak_bytes, 600);
  EXPECT_EQ(host[MemoryKind::kUnreferenced].current_bytes, 900);
  EXPECT_EQ(host.total.current_bytes, 1000);
  EXPECT_EQ(host.total.peak_bytes, 1000);
  account.SubUsed(100);
  tracker.Unregister(&account);
  host = tracker.Snapshot()[Host()];
  EXPECT_EQ(host.total.current_bytes, 0);
  EXPECT_EQ(host[MemoryKind::kAllocated].peak_bytes, 600);
}

// The peak of "heap + workspace" is that of a moment, not the sum of two peaks.
TEST(MemoryTracker, PeaksOfDifferentMomentsAreNotAdded) {
  MemoryTracker tracker;
  MemoryAccount account(Host());
  tracker.Register(&account);
  tracker.AddOwned(&account, 1000);
  account.AddUsed(800);
  account.SubUsed(800);
  tracker.Add(Host(), MemoryKind::kAllocated, 500);
  tracker.Add(Host(), MemoryKind::kAllocated, -500);
  account.AddUsed(100);
  tracker.Fold(&account);
  EXPECT_EQ(tracker.Snapshot()[Host()][MemoryKind::kAllocated].peak_bytes, 800);
  account.SubUsed(100);
  tracker.Unregister(&account);
}

// What a heap array costs the ledger does not grow with the workspaces that exist.
TEST(MemoryTracker, AddsLookOnlyAtAccountsThatMove) {
  MemoryTracker tracker;
  std::vector<std::unique_ptr<MemoryAccount>> accounts;
  for (int i = 0; i < 4000; ++i) {
    accounts.push_back(std::make_unique<MemoryAccount>(Host()));
    tracker.Register(accounts.back().get());
    tracker.AddOwned(accounts.back().get(), 1000);
    accounts.back()->AddUsed(10);
  }
  const auto visits_of = [&](int adds, auto&& between) {
    const int64_t before = tracker.accounts_visited();
    for (int i = 0; i < adds; ++i) {
      between(i);
      tracker.Add(Host(), MemoryKind::kAllocated, i % 2 == 0 ? 5 : -5);
    }
    return tracker.accounts_visited() - before;
  };
  // Each is looked at until it was quiet for a while; then none.
  EXPECT_LE(visits_of(100, [](int) {}), 4000 * (MemoryTracker::kQuietFolds + 1));
  EXPECT_EQ(visits_of(1000, [](int) {}), 0);
  // One works: it is looked at. All work in turn: those of the last while.
  EXPECT_EQ(visits_of(1000, [&](int i) { accounts[7]->AddUsed(i % 2 == 0 ? 1 : -1); }), 1000);
  EXPECT_LE(visits_of(4000, [&](int i) { accounts[i]->AddUsed(1); }),
            4000 * (MemoryTracker::kQuietFolds + 2));
  // Nor does reading a kind in which they have no part, as each workspace's first cycles do at their end.
  const int64_t before = tracker.accounts_visited();
  EXPECT_EQ(tracker.CurrentBytes(Host(), MemoryKind::kExternal), 0);
  EXPECT_EQ(tracker.accounts_visited(), before);
  EXPECT_EQ(tracker.CurrentBytes(Host(), MemoryKind::kUnreferenced), 4000 * (1000 - 11));
  // Whoever looks sees all of them.
  const DeviceMemory host = tracker.Snapshot()[Host()];
  EXPECT_EQ(host[MemoryKind::kAllocated].current_bytes, 4000 * 11);
  EXPECT_EQ(host[MemoryKind::kAllocated].peak_bytes, 4000 * 11 + 5);
  EXPECT_EQ(host[MemoryKind::kUnreferenced].current_bytes, 4000 * (1000 - 11));
  for (auto& account : accounts) tracker.Unregister(account.get());
  EXPECT_EQ(tracker.Snapshot()[Host()].total.current_bytes, 0);
}

// Off the list and on it again, at each distance: peaks are of one moment as ever.
TEST(MemoryTracker, AccountsThatWereQuietCountFromTheirFirstMove) {
  for (int quiet = 0; quiet < 2 * MemoryTracker::kQuietFolds + 4; ++quiet) {
    MemoryTracker tracker;
    MemoryAccount account(Host());
    tracker.Register(&account);
    tracker.AddOwned(&account, 1000);
    account.AddUsed(400);
    for (int i = 0; i < quiet; ++i) tracker.Add(Host(), MemoryKind::kExternal, i % 2 == 0 ? 1 : -1);
    account.SubUsed(400);
    tracker.Add(Host(), MemoryKind::kAllocated, 300);  // not on top of the 400
    ASSERT_EQ(tracker.Snapshot()[Host()][MemoryKind::kAllocated].peak_bytes, 400) << quiet;
    for (int i = 0; i < quiet; ++i) tracker.Add(Host(), MemoryKind::kExternal, i % 2 == 0 ? 1 : -1);
    account.AddUsed(250);
    account.SubUsed(250);
    tracker.Add(Host(), MemoryKind::kAllocated, -300);
    ASSERT_EQ(tracker.Snapshot()[Host()][MemoryKind::kAllocated].peak_bytes, 550) << quiet;
    tracker.Unregister(&account);
  }
}

// Owners of accounts come and go off the list while others change the ledger: nothing is lost.
TEST(MemoryTracker, AccountsOfManyThreadsAreExactInTheEnd) {
  MemoryTracker tracker;
  constexpr int kThreads = 4;
  std::vector<std::unique_ptr<MemoryAccount>> accounts;
  for (int t = 0; t < kThreads; ++t) {
    accounts.push_back(std::make_unique<MemoryAccount>(Host()));
    tracker.Register(accounts.back().get());
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 3000; ++i) {
        accounts[t]->AddUsed(7);
        for (int j = 0; j < (i % 10 == 0 ? 2 * MemoryTracker::kQuietFolds : 1); ++j) {
          tracker.Add(Host(), MemoryKind::kExternal, j % 2 == 0 ? 1 : -1);
          if (j % 2 == 0) tracker.Add(Host(), MemoryKind::kExternal, -1);
          if (j % 2 == 1) tracker.Add(Host(), MemoryKind::kExternal, 1);
        }
        if (i % 3 == 0) accounts[t]->SubUsed(7);
        tracker.Fold(accounts[t].get());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  tracker.Add(Host(), MemoryKind::kExternal, 1);
  const DeviceMemory host = tracker.Snapshot()[Host()];
  EXPECT_EQ(host[MemoryKind::kAllocated].current_bytes, kThreads * 7 * 2000);
  EXPECT_GE(host[MemoryKind::kAllocated].peak_bytes, kThreads * 7 * 2000);
  EXPECT_EQ(host[MemoryKind::kExternal].current_bytes, 1);
  for (auto& account : accounts) tracker.Unregister(account.get());
}

TEST(MemoryTracker, ResetPeaksStartsFromNow) {
  MemoryTracker tracker;
  MemoryAccount account(Host());
  tracker.Register(&account);
  account.AddUsed(900);
  account.SubUsed(850);
  tracker.ResetPeaks();
  EXPECT_EQ(tracker.Snapshot()[Host()][MemoryKind::kAllocated].peak_bytes, 50);
  account.AddUsed(10);
  EXPECT_EQ(tracker.Snapshot()[Host()][MemoryKind::kAllocated].peak_bytes, 60);
  tracker.Unregister(&account);
}

TEST(MemoryTracker, DevicesAreSeparateAndNamed) {
  MemoryTracker tracker;
  const Device second{DeviceType::Named("simulated"), 1};
  tracker.Add(second, MemoryKind::kExternal, 7);
  EXPECT_EQ(tracker.Snapshot()[second][MemoryKind::kExternal].current_bytes, 7);
  EXPECT_EQ(tracker.Snapshot()[Host()].total.current_bytes, 0);
  EXPECT_NE(tracker.Snapshot().ToString().find("simulated:1"), std::string::npos);
  EXPECT_THROW(tracker.Snapshot()[(Device{DeviceType::kCuda, 0})], Error);
}

TEST(MemoryTracker, AddsFromManyThreadsAreExact) {
  MemoryTracker tracker;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10000; ++i) {
        tracker.Add(Host(), MemoryKind::kAllocated, 3);
        tracker.Add(Host(), MemoryKind::kAllocated, -2);
        tracker.CountSystemAllocation();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const MemorySnapshot snapshot = tracker.Snapshot();
  EXPECT_EQ(snapshot[Host()][MemoryKind::kAllocated].current_bytes, 40000);
  EXPECT_EQ(snapshot.system_allocations, 40000);
}

}  // namespace
}  // namespace tidepool
