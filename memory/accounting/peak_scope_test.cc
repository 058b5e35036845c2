#include "tidepool/memory/accounting/peak_scope.h"

#include <optional>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_tracker.h"

namespace tidepool {
namespace {

constexpr MemoryKind kAllocated = MemoryKind::kAllocated;

class Peaks : public ::testing::Test {
 protected:
  Peaks() : account_(Host()) { tracker_.Register(&account_); }
  ~Peaks() override {
    account_.SubUsed(account_.used_bytes());
    tracker_.Unregister(&account_);
  }
  void Pulse(int64_t bytes) {
    tracker_.Add(Host(), kAllocated, bytes);
    tracker_.Add(Host(), kAllocated, -bytes);
  }
  void PulseInside(int64_t bytes) {
    account_.AddUsed(bytes);
    account_.SubUsed(bytes);
  }

  MemoryTracker tracker_;
  MemoryAccount account_;
};

TEST_F(Peaks, NestedScopesSeeTheirOwnExtent) {
  tracker_.Add(Host(), kAllocated, 10);
  Pulse(1000);
  PeakScope outer(Host(), nullptr, tracker_);
  Pulse(50);
  {
    PeakScope inner(Host(), nullptr, tracker_);
    EXPECT_EQ(inner.peak_bytes(), 10);
    Pulse(200);
    EXPECT_EQ(inner.peak_bytes(), 210);
    {
      PeakScope innermost(Host(), nullptr, tracker_);
      Pulse(5);
      EXPECT_EQ(innermost.peak_bytes(), 15);
    }
    EXPECT_EQ(inner.peak_bytes(kAllocated), 210);
  }
  PeakScope second(Host(), nullptr, tracker_);
  Pulse(20);
  EXPECT_EQ(second.peak_bytes(), 30);
  EXPECT_EQ(outer.peak_bytes(), 210);
  EXPECT_EQ(outer.start().total, 10);
  EXPECT_EQ(tracker_.Snapshot()[Host()].total.peak_bytes, 1010);
}

TEST_F(Peaks, FoldedPeaksOfWorkspacesCountWhereTheyHappened) {
  tracker_.AddOwned(&account_, 10000);
  PulseInside(900);  // before: nobody's
  PeakScope outer(Host(), nullptr, tracker_);
  PulseInside(300);
  PeakScope inner(Host(), nullptr, tracker_);
  PulseInside(100);
  EXPECT_EQ(inner.peak_in_use_bytes(), 100);
  EXPECT_EQ(outer.peak_in_use_bytes(), 300);
  EXPECT_EQ(inner.peak_bytes(), 10000);  // pages, used or not
  PulseInside(400);
  EXPECT_EQ(inner.peak_bytes(kAllocated), 400);
  EXPECT_EQ(outer.peak_bytes(kAllocated), 400);
  tracker_.AddOwned(&account_, -10000);
}

// A fold that finds nothing new for the ledger may be news to a scope.
TEST_F(Peaks, AScopeSeesAPeakThatTheLedgerKnowsAlready) {
  PulseInside(500);
  tracker_.Fold(&account_);
  PeakScope scope(Host(), nullptr, tracker_);
  PulseInside(500);
  tracker_.Fold(&account_);
  EXPECT_EQ(scope.peak_in_use_bytes(), 500);
}

TEST_F(Peaks, ResetPeaksDoesNotDisturbScopes) {
  PeakScope scope(Host(), nullptr, tracker_);
  Pulse(70);
  PulseInside(80);
  tracker_.ResetPeaks();
  EXPECT_EQ(scope.peak_bytes(kAllocated), 80);
  EXPECT_EQ(tracker_.Snapshot()[Host()][kAllocated].peak_bytes, 0);
}

TEST_F(Peaks, AnEndedScopeKeepsItsPeak) {
  PeakScope scope(Host(), nullptr, tracker_);
  PulseInside(33);
  scope.End();
  Pulse(1000);
  scope.End();
  EXPECT_EQ(scope.peak_bytes(kAllocated), 33);
}

TEST_F(Peaks, OverlappingScopesNeedNotNest) {
  std::optional<PeakScope> first(std::in_place, Host(), nullptr, tracker_);
  Pulse(10);
  PeakScope second(Host(), nullptr, tracker_);
  EXPECT_EQ(first->peak_bytes(), 10);
  first.reset();
  Pulse(30);
  EXPECT_EQ(second.peak_bytes(), 30);
}

TEST_F(Peaks, OfOneOwnerAndOneDevice) {
  MemoryOwner& mine = MemoryOwner::Process().Child("mine");
  PeakScope scope(Host(), &mine, tracker_);
  Pulse(100);
  tracker_.Add(Host(), kAllocated, 20, &mine.Tagged("t"));
  tracker_.Add(Device{DeviceType::Named("simulated"), 0}, kAllocated, 500, &mine);
  EXPECT_EQ(scope.peak_bytes(), 20);
  PeakScope device(Device{DeviceType::Named("simulated"), 0}, nullptr, tracker_);
  EXPECT_EQ(device.peak_bytes(), 500);
  tracker_.Add(Device{DeviceType::Named("simulated"), 0}, kAllocated, -500, &mine);
  tracker_.Add(Host(), kAllocated, -20, &mine.Tagged("t"));
}

TEST_F(Peaks, ScopesOfManyThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        PeakScope scope(Host(), nullptr, tracker_);
        Pulse(8);
        EXPECT_GE(scope.peak_bytes(), 8);
        EXPECT_LE(scope.peak_bytes(), 32);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tidepool
