#include "tidepool/memory/accounting/memory_tracker.h"

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
  const Device second{DeviceType::kSimulated, 1};
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
