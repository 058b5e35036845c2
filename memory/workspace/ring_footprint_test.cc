// What slots hold comes down to what batches need, and batches in turns are learned.
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/ring.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// `count` arrays of 64 KiB; `at_once`: each goes before the next one is made.
void Batch(RingWorkspace& ring, int count, bool at_once) {
  SlotLease lease;
  std::vector<BufferHandle> arrays;
  {
    RingSlotScope slot(ring);
    for (int i = 0; i < count; ++i) {
      if (at_once) arrays.clear();
      arrays.emplace_back(AllocateHere(kMiB / 16));
    }
    lease = slot.Commit();
  }
  arrays.clear();
}

int64_t Held() { return MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kUnreferenced); }

WorkspaceConfig Config(LearningPolicy learning) {
  WorkspaceConfig config = WorkspaceConfig::Ring(3);
  config.policy_learning = learning;
  config.use_cycle_detector = false;
  return config;
}

// One large batch, then what its plan serves as well: fewer requests, or the same with shorter lives.
TEST(RingFootprint, SlotsComeDownToBatchesThatNeedLess) {
  for (const LearningPolicy learning : {LearningPolicy::kOptimized, LearningPolicy::kTraining}) {
    for (const bool at_once : {false, true}) {
      for (const int before : {1, 30, 600}) {
        RingWorkspace ring("r", Config(learning));
        for (int i = 0; i < before; ++i) Batch(ring, 40, false);
        for (int i = 0; i < 2 * before + 500; ++i) Batch(ring, at_once ? 40 : 4, at_once);
        EXPECT_EQ(ring.stats().slot_bytes, at_once ? kMiB / 16 : 4 * kMiB / 16)
            << "before " << before << " at once " << at_once;
        const uint64_t misses = ring.stats().misses;
        for (int i = 0; i < 20; ++i) Batch(ring, at_once ? 40 : 4, at_once);
        EXPECT_EQ(ring.stats().misses, misses);
      }
    }
  }
}

// A slot that is idle keeps blocks of a batch that spilled no longer than one that is used.
TEST(RingFootprint, IdleSlotsGiveBlocksBack) {
  RingWorkspace ring("r", Config(LearningPolicy::kOptimized));
  for (int i = 0; i < 5; ++i) Batch(ring, 1, false);
  const int64_t before = Held();
  {
    RingSlotScope outer(ring);  // so that it is another slot
    {
      RingSlotScope slot(ring);
      const BufferHandle outlier(AllocateHere(100 * kMiB));
      slot.Discard();
    }
    outer.Discard();
  }
  EXPECT_GT(Held(), before + static_cast<int64_t>(99 * kMiB));
  for (int i = 0; i < 200; ++i) Batch(ring, 1, false);
  EXPECT_LT(Held(), before + static_cast<int64_t>(kMiB));
}

// Slots that wait for a queue that never gets so deep take no pages, and so no mappings, for what
// is learned.
TEST(RingFootprint, IdleSlotsTakePagesOnceTheyAreUsed) {
  const int64_t before = Held();
  const auto slots_with = [&](int64_t bytes) { return (Held() - before + bytes - 1) / bytes; };
  WorkspaceConfig config = WorkspaceConfig::Ring(2000);
  config.huge_pages = false;
  config.policy_learning = LearningPolicy::kOptimized;
  RingWorkspace ring("r", config);
  const auto at_once = [&](int slots) {
    std::vector<SlotLease> leases;
    for (int i = 0; i < slots; ++i) {
      RingSlotScope slot(ring);
      BufferHandle(AllocateHere(kMiB / 16)).Reset();
      leases.push_back(slot.Commit());
    }
  };
  constexpr int64_t kSmall = kMiB / 16, kLarge = 4 * kMiB;
  for (int i = 0; i < 100; ++i) Batch(ring, 1, false);
  EXPECT_EQ(slots_with(2 * kSmall), 1);
  const uint64_t spills = ring.stats().spills;
  at_once(3);
  EXPECT_EQ(ring.stats().spills, spills);  // each took what was learned when it was opened
  EXPECT_GE(slots_with(2 * kSmall), 2);
  EXPECT_LE(slots_with(2 * kSmall), 3);
  // Those of the last batches take what is learned while they are idle.
  for (int i = 0; i < 100; ++i) Batch(ring, 64, false);
  EXPECT_EQ(slots_with(kLarge + 2 * kSmall), 3);
  // The others do not, but give back what is needed no more.
  at_once(3);
  for (int i = 0; i < 1100; ++i) Batch(ring, 1, false);
  EXPECT_LE(slots_with(2 * kSmall), 3);
  for (int i = 0; i < 100; ++i) Batch(ring, 64, false);
  EXPECT_EQ(slots_with(kLarge + 4 * kSmall), 1);
}

// What was used for a deep queue once comes back at Trim(), down to the initial size, and is taken again when it is needed.
TEST(RingFootprint, TrimGivesBackPagesOfSlotsThatWereNotUsedLately) {
  for (const LearningPolicy learning :
       {LearningPolicy::kFirstLoop, LearningPolicy::kOptimized, LearningPolicy::kTraining}) {
    for (const size_t initial : {size_t{0}, kMiB / 8}) {
      SCOPED_TRACE(initial);
      constexpr int64_t kSlot = kMiB;
      const int64_t before = Held();
      WorkspaceConfig config = Config(learning);
      config.ring_slots = 100;
      config.huge_pages = false;
      config.initial_size = initial;
      RingWorkspace ring("r", config);
      const auto at_once = [&](int slots) {
        std::vector<SlotLease> leases;
        for (int i = 0; i < slots; ++i) {
          RingSlotScope slot(ring);
          std::vector<BufferHandle> arrays;
          for (int j = 0; j < 16; ++j) arrays.emplace_back(AllocateHere(kMiB / 16));
          arrays.clear();
          leases.push_back(slot.Commit());
        }
      };
      const auto idle = static_cast<int64_t>(100 * initial);
      for (int i = 0; i < 20; ++i) at_once(3);
      for (int i = 0; i < 10; ++i) at_once(80);
      EXPECT_GT(Held() - before, 80 * kSlot);
      ring.Trim();  // all of them had one of the last batches
      EXPECT_GT(Held() - before, 80 * kSlot);
      for (int i = 0; i < 400; ++i) at_once(3);
      ring.Trim();
      EXPECT_LE(Held() - before, 4 * kSlot + idle);
      EXPECT_GE(Held() - before, 3 * kSlot);
      for (int i = 0; i < 400; ++i) at_once(3);
      EXPECT_LE(Held() - before, 4 * kSlot + idle);
      const RingStats trimmed = ring.stats();
      at_once(80);
      EXPECT_GT(Held() - before, 80 * kSlot);
      EXPECT_EQ(ring.stats().spills, trimmed.spills);
      EXPECT_EQ(ring.stats().misses, trimmed.misses);
      EXPECT_EQ(ring.stats().slot_bytes, kMiB);
    }
  }
}

// Also the slot that has not had a batch since.
TEST(RingFootprint, AfterDestroySlotsFollowWhatIsLearnedBeyondTheInitialSize) {
  WorkspaceConfig config = Config(LearningPolicy::kTraining);
  config.initial_size = 4096;
  RingWorkspace ring("r", config);
  for (const bool destroyed : {false, true}) {
    SCOPED_TRACE(destroyed);
    if (destroyed) ring.Destroy();
    for (int i = 0; i < 5; ++i) Batch(ring, 4, false);
    const uint64_t spills = ring.stats().spills;
    std::vector<SlotLease> leases;
    for (int i = 0; i < 3; ++i) {
      RingSlotScope slot(ring);
      std::vector<BufferHandle> arrays;
      for (int j = 0; j < 4; ++j) arrays.emplace_back(AllocateHere(kMiB / 16));
      arrays.clear();
      leases.push_back(slot.Commit());
    }
    EXPECT_EQ(ring.stats().spills, spills);
  }
}

// Kinds with the same sizes, and of these beginnings, whose arrays live shorter and longer: the places of the
// beginning have to be right for all of them.
TEST(KindsInTurns, StopMissing) {
  struct Step {
    size_t bytes;  // 0: releases
    size_t which = 0;
  };
  using Kind = std::vector<Step>;
  const std::vector<std::vector<Kind>> sets = {{{{378}, {0, 0}, {63}, {0, 1}, {68}, {21}},
                                                {{378}, {63}, {0, 1}, {68}},
                                                {{378}, {63}, {68}, {21}},
                                                {{378}, {63}, {68}}},
                                               {{{7784}, {10003}, {12031}, {4280}},
                                                {{2507}, {0, 0}, {210789}, {9775}, {7951}},
                                                {{2507}, {210789}, {0, 1}, {9775}},
                                                {{2507}, {210789}, {0, 1}, {9775}, {7951}}}};
  const auto make = [](const Kind& kind, std::vector<BufferHandle>& arrays) {
    for (const Step& step : kind) {
      if (step.bytes > 0) {
        arrays.emplace_back(AllocateHere(step.bytes));
      } else {
        arrays[step.which].Reset();
      }
    }
  };
  for (const auto& kinds : sets) {
    RingWorkspace ring("r", Config(LearningPolicy::kTraining));
    Workspace workspace("w", WorkspaceConfig::Inference());
    for (int round = 0; round < 300; ++round) {
      for (const Kind& kind : kinds) {
        {
          WorkspaceScope scope(workspace);
          std::vector<BufferHandle> arrays;
          make(kind, arrays);
        }
        SlotLease lease;
        std::vector<BufferHandle> arrays;
        RingSlotScope slot(ring);
        make(kind, arrays);
        lease = slot.Commit();
        arrays.clear();
      }
    }
    EXPECT_LE(ring.stats().misses, 12u);
    EXPECT_LE(ring.stats().plans, 12u);
    EXPECT_LE(workspace.stats().misses, 12u);
    EXPECT_LE(workspace.stats().plans, 12u);
  }
}

}  // namespace
}  // namespace tidepool
