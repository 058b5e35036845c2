#include "tidepool/memory/workspace/ring.h"

#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace.h"

namespace tidepool {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

BufferHandle New(size_t bytes) { return BufferHandle(AllocateHere(bytes)); }

struct Batch {
  SlotLease lease;  // first: it goes last
  std::vector<BufferHandle> arrays;
};

Batch Make(RingWorkspace& ring, const std::vector<size_t>& sizes, std::string_view tag = {}) {
  RingSlotScope slot(ring);
  Batch batch;
  for (size_t bytes : sizes) {
    batch.arrays.push_back(New(bytes));
    std::memset(batch.arrays.back()->data, static_cast<int>(slot.generation()), bytes);
  }
  batch.lease = slot.Commit(tag);
  return batch;
}

Error ErrorOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return Error(absl::StatusCode::kOk, "nothing was thrown");
}

std::string StaleText(const BufferHandle& buffer) {
  return buffer->owner->DescribeStale(buffer->stamp);
}
struct Bytes {
  int64_t allocated, unreferenced, total;
};
Bytes Ledger() {
  const MemorySnapshot snapshot = MemoryTracker::Global().Snapshot();
  const DeviceMemory& host = snapshot[Host()];
  return {host[MemoryKind::kAllocated].current_bytes, host[MemoryKind::kUnreferenced].current_bytes,
          host.total.current_bytes};
}

TEST(Ring, ABatchLivesAsLongAsItsLeaseOnAnyThread) {
  RingWorkspace ring("ring", WorkspaceConfig::Ring(2));
  Batch batch = Make(ring, {1000, 5000});
  EXPECT_EQ(CurrentPlace(), nullptr);
  EXPECT_EQ(batch.lease.generation(), 1);
  Batch next = Make(ring, {1000, 5000});
  std::thread reader([&] {
    for (const BufferHandle& array : batch.arrays) {
      EXPECT_TRUE(array->IsAlive());
      EXPECT_EQ(array->owner->WorkspaceId(), "ring");
      EXPECT_EQ(static_cast<int>(array->data[array->bytes - 1]), 1);
    }
    batch.lease.Release();
    for (const BufferHandle& array : batch.arrays) EXPECT_FALSE(array->IsAlive());
  });
  reader.join();
  EXPECT_TRUE(next.arrays[0]->IsAlive());
}

TEST(Ring, CopiesOfALeaseShareTheSlot) {
  RingWorkspace ring("ring", WorkspaceConfig::Ring(1));
  Batch batch = Make(ring, {64});
  SlotLease copy = batch.lease;
  SlotLease moved = std::move(batch.lease);
  EXPECT_FALSE(batch.lease);
  moved = copy;
  moved.Release();
  moved.Release();
  EXPECT_TRUE(batch.arrays[0]->IsAlive());
  EXPECT_EQ(copy.generation(), 1);
  EXPECT_FALSE(RingSlotScope::TryOpen(ring));
  copy = SlotLease();
  EXPECT_FALSE(batch.arrays[0]->IsAlive());
  EXPECT_TRUE(RingSlotScope::TryOpen(ring));
  EXPECT_EQ(ring.stats().refused, 1);
}

TEST(Ring, StaleArraysNameBothGenerations) {
  auto ring = std::make_unique<RingWorkspace>("ring", WorkspaceConfig::Ring(2));
  Make(*ring, {64});
  Make(*ring, {64});
  Batch batch = Make(*ring, {64});
  EXPECT_EQ(StaleText(batch.arrays[0]), "");
  batch.lease.Release();
  EXPECT_EQ(StaleText(batch.arrays[0]),
            "leaked workspace pointer from workspace [ring] (made in generation 3; its ring slot "
            "was released; the slot is free after generation 3)");
  Batch next = Make(*ring, {64});
  EXPECT_EQ(StaleText(batch.arrays[0]),
            "outdated workspace pointer from workspace [ring] (made in generation 3; its ring slot "
            "was released; the slot is in generation 4)");
  next.lease.Release();
  ring.reset();
  EXPECT_THAT(StaleText(batch.arrays[0]), HasSubstr("made in generation 3; the workspace was "
                                                    "destroyed"));
}

// Temporaries of the decoder share their bytes; the arrays of the batch do not.
TEST(Ring, LifetimesAreLearnedOnceForAllSlots) {
  RingWorkspace ring("ring", WorkspaceConfig::Ring(3));
  auto make = [&] {
    RingSlotScope slot(ring);
    Batch batch;
    for (int i = 0; i < 4; ++i) {
      New(10240);
      batch.arrays.push_back(New(1024));
    }
    batch.lease = slot.Commit();
    return batch;
  };
  make();
  EXPECT_EQ(ring.slot_size(), 10240 + 3 * 1024);  // the last temporary goes before the last array
  const uint64_t spills = ring.stats().spills;
  EXPECT_EQ(spills, 8);
  {
    std::vector<Batch> all;
    for (int i = 0; i < 3; ++i) all.push_back(make());
  }
  const int64_t before = MemoryTracker::Global().system_allocations();
  for (int i = 0; i < 100; ++i) {
    std::vector<Batch> all;
    for (int j = 0; j <= i % 3; ++j) all.push_back(make());
  }
  EXPECT_EQ(MemoryTracker::Global().system_allocations(), before);
  EXPECT_EQ(ring.stats().spills, spills);
  EXPECT_EQ(ring.stats().misses, 0);
  EXPECT_EQ(ring.stats().plans, 1);
}

TEST(Ring, ALargerBatchSpillsAndTheSlotsGrow) {
  WorkspaceConfig config = WorkspaceConfig::Ring(2);
  config.policy_learning = LearningPolicy::kFirstLoop;
  RingWorkspace ring("ring", config);
  Make(ring, {1024, 1024});
  EXPECT_EQ(ring.slot_size(), 2048);
  Batch large = Make(ring, {1024, 8192});
  EXPECT_EQ(static_cast<int>(large.arrays[1]->data[8191]), 2);
  EXPECT_EQ(ring.stats().spills, 3);
  EXPECT_EQ(ring.slot_size(), 9216);
  large = Make(ring, {1024, 8192});
  EXPECT_EQ(ring.stats().spills, 3);
  large = Batch();
  for (int i = 0; i < 200; ++i) Make(ring, {512});
  EXPECT_EQ(ring.slot_size(), 512);  // the outlier is forgotten
}

TEST(Ring, VaryingBatchesComeFromTheSlots) {
  RingWorkspace ring("ring", WorkspaceConfig::Ring(4));
  for (size_t i = 0; i < 300; ++i)
    Make(ring, {64 * (1 + i * 7 % 100), 640, 64 * (1 + i * 13 % 50)});
  const RingStats warm = ring.stats();
  for (size_t i = 0; i < 300; ++i)
    Make(ring, {64 * (1 + i * 7 % 100), 640, 64 * (1 + i * 13 % 50)});
  EXPECT_EQ(ring.stats().spills, warm.spills);
  EXPECT_EQ(ring.stats().hits, warm.hits + 900);
}

TEST(Ring, TheLedgerFollowsSlotsAndArrays) {
  const Bytes before = Ledger();
  {
    RingWorkspace ring("ring", WorkspaceConfig::Ring(2));
    Make(ring, {4096, 4096});
    Make(ring, {4096, 4096});
    EXPECT_EQ(Ledger().allocated, before.allocated);
    const int64_t idle = Ledger().unreferenced;
    Batch batch = Make(ring, {4096, 4096});
    EXPECT_EQ(Ledger().allocated, before.allocated + 8192);
    EXPECT_EQ(Ledger().unreferenced, idle - 8192);
    // A reader drops an array early: at once, though the slot stays leased.
    std::thread([&] { batch.arrays.pop_back(); }).join();
    EXPECT_EQ(Ledger().allocated, before.allocated + 4096);
    std::thread([&] { batch.arrays[0]->Close(); }).join();
    EXPECT_EQ(Ledger().allocated, before.allocated);
    EXPECT_TRUE(batch.lease);
    batch.arrays.clear();
    batch.lease.Release();
    EXPECT_EQ(Ledger().unreferenced, idle);
    Batch leaked = Make(ring, {4096, 4096});
    leaked.lease.Release();
    EXPECT_EQ(Ledger().allocated, before.allocated);
    EXPECT_EQ(ring.stats().leaked_arrays, 2);
  }
  EXPECT_EQ(Ledger().total, before.total);
}

TEST(Ring, SpillingOpensTemporarySlotsUpToTheirLimit) {
  const Bytes before = Ledger();
  {
    WorkspaceConfig config = WorkspaceConfig::Ring(2);
    config.policy_ring_full = RingFullPolicy::kSpill;
    config.ring_max_temporary = 2;
    config.policy_learning = LearningPolicy::kOverTime;
    config.cycles_before_initialization = 3;  // the ring's: temporary slots learn nothing
    RingWorkspace ring("ring", config);
    std::vector<Batch> batches;
    for (int i = 0; i < 4; ++i) batches.push_back(Make(ring, {100000}));
    EXPECT_EQ(ring.stats().temporary, 2);
    EXPECT_EQ(ring.stats().leased, 4);
    EXPECT_FALSE(RingSlotScope::TryOpen(ring));
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(static_cast<int>(batches[i].arrays[0]->data[99999]), i + 1);
    }
    batches.erase(batches.begin() + 2);
    EXPECT_THAT(ring.Dump(), HasSubstr("temporary slot 3 generation 4 leased"));
    batches.clear();
    EXPECT_EQ(ring.stats().idle, 2);
  }
  EXPECT_EQ(Ledger().total, before.total);
}

TEST(Ring, ADumpHasALineForEachSlotWhateverItsBatchIsCalled) {
  RingWorkspace ring("two\nlines", WorkspaceConfig::Ring(2));
  const Batch batch = Make(ring, {1000}, "kept\nslot 7 idle");
  EXPECT_THAT(ring.Dump(),
              AllOf(HasSubstr("ring [two\\nlines] "), HasSubstr("[kept\\nslot 7 idle]\n")));
}

TEST(Ring, AnExceptionInTheProducerGivesTheSlotBack) {
  RingWorkspace ring("ring", WorkspaceConfig::Ring(1));
  BufferHandle leaked;
  for (int i = 0; i < 3; ++i) {
    EXPECT_THROW(
        {
          RingSlotScope slot(ring);
          leaked = New(1000);
          throw std::runtime_error("decoder");
        },
        std::runtime_error);
    EXPECT_EQ(CurrentPlace(), nullptr);
    EXPECT_FALSE(leaked->IsAlive());
  }
  EXPECT_EQ(ring.stats().discarded, 3);
  EXPECT_EQ(ring.slot_size(), 0);  // a failed batch teaches nothing
  Make(ring, {64});
  EXPECT_EQ(ring.slot_size(), 64);
}

TEST(Ring, ASlotWhoseScopeIsDestroyedOnAnotherThreadComesBackWithItsOwnThreadsNextScope) {
  RingWorkspace ring("ring", WorkspaceConfig::Ring(1));
  for (int i = 0; i < 3; ++i) {
    auto slot = std::make_unique<RingSlotScope>(ring);
    std::thread([&] { slot.reset(); }).join();
    EXPECT_EQ(ring.stats().open, 1);  // this thread still allocates from it
    { ScopeOutOfWorkspaces out; }
    EXPECT_EQ(ring.stats().open, 0);
  }
  std::unique_ptr<RingSlotScope> left;
  std::thread([&] { left = std::make_unique<RingSlotScope>(ring); }).join();
  EXPECT_EQ(ring.stats().open, 0);  // its thread has ended
  EXPECT_THAT(ErrorOf([&] { (void)left->Commit(); }).message(), HasSubstr("has ended"));
  left.reset();
  EXPECT_EQ(ring.stats().discarded, 4);
  Make(ring, {64});
}

TEST(Ring, ScopesEndOnceInnermostFirst) {
  RingWorkspace ring("ring", WorkspaceConfig::Ring(2));
  Workspace inner("inner");
  RingSlotScope slot(ring);
  {
    WorkspaceScope scope(inner);
    EXPECT_THAT(ErrorOf([&] { (void)slot.Commit(); }).message(), HasSubstr("[inner]"));
    EXPECT_THAT(ErrorOf([&] { slot.Discard(); }).message(), HasSubstr("[inner]"));
  }
  std::thread([&] {
    EXPECT_THAT(ErrorOf([&] { (void)slot.Commit(); }).message(), HasSubstr("another thread"));
  }).join();
  EXPECT_EQ(slot.generation(), 1);
  BufferHandle array = New(64);
  SlotLease lease = slot.Commit();
  EXPECT_TRUE(array->IsAlive());
  EXPECT_EQ(ErrorOf([&] { (void)slot.Commit(); }).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ErrorOf([&] { slot.Discard(); }).code(), absl::StatusCode::kFailedPrecondition);
  RingSlotScope second(ring);
  BufferHandle other = New(64);
  second.Discard();
  EXPECT_FALSE(other->IsAlive());
  EXPECT_EQ(ring.stats().idle, 1);
}

// Inside a slot, another workspace, the heap and another ring's slot can be used as ever.
TEST(Ring, SlotsNestLikeScopes) {
  RingWorkspace a("a", WorkspaceConfig::Ring(1)), b("b", WorkspaceConfig::Ring(1));
  RingSlotScope outer(a);
  BufferHandle x = New(64);
  SlotLease inner_lease;
  BufferHandle y;
  {
    RingSlotScope inner(b);
    y = New(64);
    inner_lease = inner.Commit();
  }
  EXPECT_EQ(y->owner->WorkspaceId(), "b");
  {
    ScopeOutOfWorkspaces out;
    EXPECT_FALSE(New(64)->attached);
  }
  EXPECT_EQ(New(64)->owner->WorkspaceId(), "a");
}

TEST(Ring, DestroyingTheRingLeavesLeasedBatchesValid) {
  const Bytes before = Ledger();
  auto ring = std::make_unique<RingWorkspace>("ring", WorkspaceConfig::Ring(3));
  Make(*ring, {4096});
  Batch first = Make(*ring, {4096}), second = Make(*ring, {4096});
  BufferHandle outlives = first.arrays[0];
  ring.reset();
  EXPECT_TRUE(first.arrays[0]->IsAlive());
  EXPECT_EQ(static_cast<int>(first.arrays[0]->data[4095]), 2);
  std::thread([&] { first = Batch(); }).join();
  EXPECT_FALSE(outlives->IsAlive());
  EXPECT_EQ(static_cast<int>(second.arrays[0]->data[4095]), 3);
  second = Batch();
  outlives.Reset();
  EXPECT_EQ(Ledger().total, before.total);
}

TEST(Ring, DestroyAndTrim) {
  const Bytes before = Ledger();
  RingWorkspace ring("ring", WorkspaceConfig::Ring(2));
  Batch batch = Make(ring, {100000}, "kept one");
  const Error error = ErrorOf([&] { ring.Destroy(); });
  EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(error.message(), HasSubstr("slot 0 generation 1 leased [kept one]"));
  const BufferHandle old = std::exchange(batch, Batch()).arrays[0];
  ring.Trim();  // the blocks of the learning batch go
  EXPECT_LE(Ledger().unreferenced - before.unreferenced, 2 * (100000 + 8192));
  ring.Destroy();
  EXPECT_EQ(ring.slot_size(), 0);
  EXPECT_EQ(Ledger().unreferenced, before.unreferenced);
  EXPECT_FALSE(old->IsAlive());
  Make(ring, {64});
  EXPECT_EQ(ring.slot_size(), 64);
}

TEST(Ring, DebugModesWorkInSlots) {
  for (DebugMode mode :
       {DebugMode::kGuard, DebugMode::kSpillEverything, DebugMode::kBypassEverything}) {
    WorkspaceConfig config = WorkspaceConfig::Ring(2);
    config.debug_mode = mode;
    RingWorkspace ring("ring", config);
    for (int i = 0; i < 5; ++i) {
      Batch batch = Make(ring, {1000, 70000});
      EXPECT_EQ(batch.arrays[0]->attached, mode != DebugMode::kBypassEverything);
      std::thread([&] {
        EXPECT_EQ(static_cast<int>(batch.arrays[1]->data[69999]), i + 1);
        batch.arrays.clear();
        batch.lease.Release();
      }).join();
    }
    EXPECT_EQ(ring.slot_size(), 0);
  }
}

TEST(Ring, IllegalConfigurations) {
  EXPECT_THAT(ErrorOf([] { RingWorkspace ring("r", WorkspaceConfig()); }).message(),
              AllOf(HasSubstr("ring [r]"), HasSubstr("WorkspaceConfig::Ring(slots)")));
  EXPECT_THAT(ErrorOf([] { RingWorkspace ring("r", WorkspaceConfig::Ring(0)); }).message(),
              HasSubstr("ring_slots is 0, expected 1 to 65536"));
  WorkspaceConfig config = WorkspaceConfig::Ring(2);
  config.initial_size = 1000;
  config.policy_spill = SpillPolicy::kFail;
  config.policy_ring_full = RingFullPolicy::kSpill;
  config.ring_max_kept = -1;
  EXPECT_THAT(ErrorOf([&] { RingWorkspace ring("r", config); }).message(),
              AllOf(HasSubstr("policy_ring_full kSpill"), HasSubstr("ring_max_kept -1")));
  EXPECT_THAT(ErrorOf([] { Workspace workspace("w", WorkspaceConfig::Ring(2)); }).message(),
              AllOf(HasSubstr("workspace [w]"), HasSubstr("use RingWorkspace")));
  WorkspaceConfig scoped;
  scoped.ring_slots = 2;
  EXPECT_THAT(ErrorOf([&] { Workspace workspace("w", scoped); }).message(),
              HasSubstr("ring_slots is 2, which needs"));
}

}  // namespace
}  // namespace tidepool
