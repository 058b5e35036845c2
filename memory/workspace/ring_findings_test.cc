// What is found wrong with a ring's batches, and who is told: arrays that outlive their batch.
#include <functional>
#include <memory>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/cycle_detector.h"
#include "tidepool/memory/workspace/ring.h"
#include "tidepool/memory/workspace/thread_state.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

BufferHandle New(size_t bytes) { return BufferHandle(AllocateHere(bytes)); }

// A batch with one array, which outlives its lease.
BufferHandle Leak(RingWorkspace& ring) {
  RingSlotScope slot(ring);
  BufferHandle array = New(64);
  SlotLease lease = slot.Commit();
  return array;
}

template <typename Function>
std::string ErrorOf(const Function& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

class RingFindings : public ::testing::Test {
 protected:
  RingFindings() {
    SetLeakSink([this](const LeakReport& report) { leaks_.push_back(report); });
    SetCycleFindingSink([this](const CycleFinding& finding) { findings_.push_back(finding); });
  }
  ~RingFindings() override {
    SetLeakSink(nullptr);
    SetCycleFindingSink(nullptr);
  }

  std::vector<LeakReport> leaks_;
  std::vector<CycleFinding> findings_;
};

TEST_F(RingFindings, ALeaseThatGoesBeforeItsArraysIsTold) {
  RingWorkspace ring("prefetch", WorkspaceConfig::Ring(2));
  { RingSlotScope slot(ring); }
  BufferHandle kept, other;
  SlotLease lease;
  {
    RingSlotScope slot(ring);
    kept = New(64);
    other = New(100);
    lease = slot.Commit();
  }
  EXPECT_EQ(leaks_.size(), 0u);
  std::thread([&] { lease.Release(); }).join();  // whoever has the last one
  ASSERT_EQ(leaks_.size(), 1u);
  EXPECT_EQ(leaks_[0].workspace, "prefetch");
  EXPECT_EQ(leaks_[0].generation, 2u);
  EXPECT_EQ(leaks_[0].count, 2);
  ASSERT_EQ(leaks_[0].arrays.size(), 2u);
  EXPECT_EQ(leaks_[0].arrays[1].bytes, 100u);
  ASSERT_EQ(findings_.size(), 1u);
  EXPECT_EQ(findings_[0].kind, CycleFindingKind::kLeakedArrays);
  EXPECT_EQ(findings_[0].generation, 2u);
  EXPECT_EQ(ring.stats().leaked_arrays, 2u);
  EXPECT_FALSE(kept->IsAlive());
}

TEST_F(RingFindings, ADiscardedBatchIsToldUnlessItFailed) {
  RingWorkspace ring("ring", WorkspaceConfig::Ring(2));
  BufferHandle kept;
  {
    RingSlotScope slot(ring);
    kept = New(64);
  }
  ASSERT_EQ(leaks_.size(), 1u);
  EXPECT_EQ(leaks_[0].generation, 1u);
  {
    RingSlotScope slot(ring);
    kept = New(64);
    slot.Discard();
    EXPECT_EQ(leaks_.size(), 2u);
  }
  try {
    RingSlotScope slot(ring);
    kept = New(64);
    throw std::out_of_range("file");
  } catch (const std::out_of_range&) {
  }
  EXPECT_EQ(leaks_.size(), 2u);
  EXPECT_EQ(ring.stats().leaked_arrays, 3u);
}

TEST_F(RingFindings, ABatchWhoseArraysGoFirstIsNot) {
  RingWorkspace ring("ring", WorkspaceConfig::Ring(2));
  for (int i = 0; i < 10; ++i) {
    RingSlotScope slot(ring);
    BufferHandle array = New(64);
    SlotLease lease = slot.Commit();
    array.Reset();
  }
  EXPECT_EQ(leaks_.size() + findings_.size(), 0u);
}

// No lock is held: what the sink does to the ring, to other slots and to the leaked array waits for
// nobody, on another thread either.
TEST_F(RingFindings, SinksMayUseTheRing) {
  auto ring = std::make_unique<RingWorkspace>("ring", WorkspaceConfig::Ring(3));
  SlotLease other;
  {
    RingSlotScope slot(*ring);
    other = slot.Commit();
  }
  BufferHandle kept;
  int leased = 0;
  SetLeakSink([&](const LeakReport&) {
    std::thread([&] {
      { RingSlotScope slot(*ring); }
      leased = ring->stats().leased;
      ring->Trim();
      kept.Reset();
      other.Release();
      ring.reset();
    }).join();
    throw 3;
  });
  {
    RingSlotScope slot(*ring);
    kept = New(64);
    SlotLease lease = slot.Commit();
  }
  EXPECT_EQ(leased, 2);
  EXPECT_EQ(ring, nullptr);
}

// Scopes that were destroyed on another thread end when a slot is opened, before the ring is found full.
TEST(RingScopes, OpeningASlotEndsWhatWasDestroyedOnAnotherThread) {
  using Open = std::function<void(RingWorkspace&)>;
  const Open opens[] = {
      [](RingWorkspace& ring) { RingSlotScope slot(ring); },
      [](RingWorkspace& ring) { EXPECT_TRUE(RingSlotScope::TryOpen(ring)); },
      [](RingWorkspace& ring) { EXPECT_TRUE(RingSlotScope::Open(ring, std::stop_token())); },
  };
  for (int slots : {1, 2}) {
    for (const Open& open : opens) {
      Workspace workspace("w");
      RingWorkspace ring("ring", WorkspaceConfig::Ring(slots));
      auto left = std::make_unique<RingSlotScope>(ring);
      BufferHandle batch = New(64);
      auto scope = std::make_unique<WorkspaceScope>(workspace);
      BufferHandle array = New(64);
      std::thread([&] {
        left.reset();
        scope.reset();
      }).join();
      EXPECT_TRUE(batch->IsAlive() && array->IsAlive());
      EXPECT_EQ(ErrorOf([&] { open(ring); }), "");
      EXPECT_FALSE(batch->IsAlive() || array->IsAlive());
      EXPECT_EQ(ring.stats().idle, slots);
      EXPECT_EQ(CurrentPlace(), nullptr);
    }
  }
}

TEST(RingGuard, TheFirstFindingOfAnySlotIsThrownByTheNextOpening) {
  WorkspaceConfig config = WorkspaceConfig::Ring(3);
  config.debug_mode = DebugMode::kGuard;
  RingWorkspace ring("guarded", config);
  testing::internal::CaptureStderr();
  {
    BufferHandle array = Leak(ring);
    RingWorkspace fresh("fresh", config);  // another ring's finding is its own
    { RingSlotScope slot(fresh); }
  }
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_THAT(told, HasSubstr("workspace [guarded], generation 1"));
  EXPECT_THAT(ErrorOf([&] { RingSlotScope slot(ring); }),
              AllOf(HasSubstr("workspace [guarded], generation 1"),
                    HasSubstr("1 array of 64 bytes outlived the cycle")));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(ErrorOf([&] { RingSlotScope slot(ring); }), "");
  EXPECT_EQ(ring.stats().idle, 3);
}

// The slot that leaked is not the one that is opened next.
TEST(RingGuard, AnotherSlotThrowsItToo) {
  WorkspaceConfig config = WorkspaceConfig::Ring(2);
  config.debug_mode = DebugMode::kGuard;
  RingWorkspace ring("guarded", config);
  testing::internal::CaptureStderr();
  RingSlotScope first(ring);
  BufferHandle array = New(64);
  SlotLease lease = first.Commit();
  {
    RingSlotScope second(ring);
    lease.Release();
    lease = second.Commit();
  }
  lease.Release();  // its slot is the next one
  testing::internal::GetCapturedStderr();
  EXPECT_THAT(ErrorOf([&] { RingSlotScope slot(ring); }), HasSubstr("generation 1"));
}

// What several slots leak is one line for their ring.
TEST(RingGuard, WithoutSinksOneLineIsWritten) {
  RingWorkspace ring("ring", WorkspaceConfig::Ring(2));
  testing::internal::CaptureStderr();
  {
    RingSlotScope a(ring);
    BufferHandle array = New(64);
    SlotLease lease = a.Commit();
    BufferHandle other = Leak(ring);
    lease.Release();
  }
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_EQ(told.find("outlived"), told.rfind("outlived")) << told;
  EXPECT_THAT(told, HasSubstr("outlived"));
  EXPECT_EQ(ring.stats().leaked_arrays, 2u);
}

}  // namespace
}  // namespace tidepool
