// Workspaces under budgets and the Reclaimer: what is given back, when, and never during a cycle.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/ring.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

using ::testing::HasSubstr;

constexpr size_t kMiB = size_t{1} << 20;

BufferHandle New(size_t bytes) { return BufferHandle(AllocateHere(bytes)); }
int64_t Unreferenced() {
  return MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kUnreferenced);
}
int64_t TakenBy(const MemoryOwner& owner) {
  return MemoryBudget::Global().Of(owner, Host()).taken_bytes;
}
int64_t Taken() { return MemoryBudget::Global().Of(Host()).taken_bytes; }

void Cycle(Workspace& workspace, size_t bytes) {
  WorkspaceScope scope(workspace);
  BufferHandle a = New(bytes);
  std::memset(a->data, 1, bytes);
  BufferHandle b = New(64);
}

class WorkspaceReclaim : public ::testing::Test {
 protected:
  ~WorkspaceReclaim() override {
    MemoryBudget::Global().SetProcessLimit(MemoryBudget::kUnlimited);
    MemoryBudget::Global().SetDeviceLimit(Host(), MemoryBudget::kUnlimited);
    Reclaimer::Global().set_window(absl::ZeroDuration());
  }
};

// What pages have grown ahead of what grows is spare memory: a step that would fit without it does not fail for it, or
// once where a limit is set so that it leaves less than that.
TEST_F(WorkspaceReclaim, PagesThatHaveGrownAheadAreNotHeldAgainstTheirOwnSteps) {
  enum class Limit { kBehind, kBefore, kBehindAndAsked };
  for (const Limit limit : {Limit::kBehind, Limit::kBefore, Limit::kBehindAndAsked}) {
    constexpr size_t kArrays = 6, kCycles = 155, kOther = 2000000, kSpare = 150000;
    const auto bytes = [=](size_t cycle) { return 1200000 + 4096 * std::min(cycle, kCycles); };
    constexpr auto kPages = static_cast<int64_t>(kArrays * (1200000 + 4096 * kCycles + 64));
    MemoryOwner& owner =
        MemoryOwner::Process().Child(absl::StrCat("grown ahead ", static_cast<int>(limit)));
    MemoryOwnerScope as(owner);
    Workspace workspace("ahead");
    int failed = 0;
    const auto step = [&](size_t cycle, bool other) {
      try {
        WorkspaceScope scope(workspace);
        std::vector<BufferHandle> arrays;
        for (size_t i = 0; i < kArrays; ++i) arrays.push_back(New(bytes(cycle)));
        if (other) BufferHandle(NewHeapBuffer(kOther));
      } catch (const OutOfMemoryError&) {
        ++failed;
        if (limit == Limit::kBehindAndAsked) Reclaimer::Global().RunNow();
      }
    };
    const auto set = [&](int64_t most) {
      MemoryBudget::Global().SetOwnerLimit(owner, Host(), most);
    };
    if (limit == Limit::kBefore) set(kPages + kOther + kSpare + static_cast<int64_t>(kMiB));
    for (size_t cycle = 0; cycle < kCycles; ++cycle) step(cycle, false);
    EXPECT_EQ(failed, 0);
    if (limit != Limit::kBefore) {
      EXPECT_GT(workspace.size(), kArrays * bytes(kCycles - 1) + kSpare) << "grown ahead";
    }
    set(kPages + kOther + kSpare);
    for (int i = 0; i < 100; ++i) step(kCycles - 1, true);
    EXPECT_LE(failed, limit == Limit::kBefore ? 0 : 1) << static_cast<int>(limit);
    set(MemoryBudget::kUnlimited);
  }
}

// What a cycle has no plan for takes of the pages what its plan keeps free, rather than memory that a limit refuses: a cycle
// that fits failed for ever.
TEST_F(WorkspaceReclaim, CyclesThatFitThePagesLeaveTheirPlanBeforeALimitRefuses) {
  MemoryOwner& owner = MemoryOwner::Process().Child("leaves its plan");
  for (const bool of_the_process : {false, true}) {
    const MemoryOwnerScope as(owner);
    Workspace workspace("leaves");
    const auto cycle = [&](std::initializer_list<size_t> sizes) {
      WorkspaceScope scope(workspace);
      std::vector<BufferHandle> arrays;
      for (const size_t bytes : sizes) {
        arrays.push_back(New(bytes));
        std::memset(arrays.back()->data, static_cast<int>(arrays.size()), bytes);
      }
      for (size_t i = 0; i < arrays.size(); ++i)
        EXPECT_EQ(arrays[i]->data[arrays[i]->bytes - 1], std::byte(i + 1));
    };
    for (int i = 0; i < 4; ++i) cycle({1000000, 500000, 1500000});
    const int64_t limit = (of_the_process ? Taken() : TakenBy(owner)) + 400000;
    if (of_the_process) {
      MemoryBudget::Global().SetProcessLimit(limit);
    } else {
      MemoryBudget::Global().SetOwnerLimit(owner, Host(), limit);
    }
    const uint64_t spills = workspace.stats().spills;
    for (int i = 0; i < 20; ++i) {
      EXPECT_NO_THROW(cycle({900000, 600000, 600000})) << i;
      EXPECT_NO_THROW(cycle({1000000, 500000, 1500000})) << i;
    }
    EXPECT_EQ(workspace.stats().spills, spills);
    EXPECT_LE(workspace.size(), 3100000u);
    MemoryBudget::Global().SetOwnerLimit(owner, Host(), MemoryBudget::kUnlimited);
    MemoryBudget::Global().SetProcessLimit(MemoryBudget::kUnlimited);
  }
}

TEST_F(WorkspaceReclaim, RunNowGivesIdlePagesBackAndTheNextCycleTakesThemAgain) {
  Workspace workspace("idle", WorkspaceConfig::Training());
  for (int i = 0; i < 3; ++i) Cycle(workspace, 4 * kMiB);
  const WorkspaceStats before = workspace.stats();
  ASSERT_GE(Unreferenced(), static_cast<int64_t>(4 * kMiB));
  EXPECT_GE(Reclaimer::Global().RunNow(), static_cast<int64_t>(4 * kMiB));
  EXPECT_EQ(Unreferenced(), 0);
  EXPECT_EQ(Taken(), 0);
  EXPECT_EQ(workspace.size(), before.size_bytes);  // it knows what it will need
  EXPECT_EQ(Reclaimer::Global().RunNow(), 0);
  Cycle(workspace, 4 * kMiB);
  EXPECT_EQ(workspace.stats().hits - before.hits, 2u);  // the plan holds
  EXPECT_EQ(workspace.stats().misses, before.misses);
}

TEST_F(WorkspaceReclaim, TrimInitializeAndDestroyWorkOnAReclaimedWorkspace) {
  WorkspaceConfig config = WorkspaceConfig::Nd4j();
  config.initial_size = 8 * kMiB;
  config.policy_allocation = AllocationPolicy::kStrict;
  Workspace workspace("w", config);
  Cycle(workspace, kMiB);
  Reclaimer::Global().RunNow();
  workspace.Trim();
  workspace.Initialize();
  EXPECT_EQ(workspace.size(), 8 * kMiB);
  EXPECT_EQ(Taken(), 0);
  Cycle(workspace, 2 * kMiB);
  Reclaimer::Global().RunNow();
  workspace.Destroy();
  Cycle(workspace, 2 * kMiB);
  EXPECT_EQ(workspace.size(), 8 * kMiB);
}

TEST_F(WorkspaceReclaim, AnOpenWorkspaceGivesItsSpareBlocksBackAtTheEndOfItsCycle) {
  WorkspaceConfig config = WorkspaceConfig::Nd4j();
  config.policy_learning = LearningPolicy::kNone;
  Workspace workspace("open", config);
  {
    WorkspaceScope scope(workspace);
    BufferHandle a = New(kMiB);
    std::memset(a->data, 7, kMiB);
    EXPECT_EQ(Reclaimer::Global().RunNow(), 0);
    for (size_t i = 0; i < kMiB; ++i) ASSERT_EQ(a->data[i], std::byte{7});
    EXPECT_GT(Taken(), 0);
  }
  EXPECT_EQ(Taken(), 0);
  Cycle(workspace, 100);
  EXPECT_GT(Taken(), 0);  // asked once, honoured once
}

TEST_F(WorkspaceReclaim, PressureTakesFromTheIdleForTheBusy) {
  Workspace idle("idle", WorkspaceConfig::Training());
  Workspace busy("busy", WorkspaceConfig::Training());
  for (int i = 0; i < 2; ++i) Cycle(idle, 8 * kMiB);
  Reclaimer::Global().ReclaimUnderPressure(1);  // spare blocks go; the plan's pages are no spare
  MemoryBudget::Global().SetDeviceLimit(Host(), static_cast<int64_t>(12 * kMiB));
  {
    WorkspaceScope scope(busy);
    BufferHandle a = New(6 * kMiB);
    EXPECT_LE(Taken(), static_cast<int64_t>(12 * kMiB));
  }
  EXPECT_THROW(
      {
        WorkspaceScope outer(busy);
        BufferHandle held = New(6 * kMiB);
        Cycle(idle, 8 * kMiB);  // its pages cannot be had while the other works
      },
      OutOfMemoryError);
  EXPECT_FALSE(idle.is_open());
  Cycle(idle, 8 * kMiB);
}

// A limit that comes later than what was learned: smaller cycles are served, and learned.
TEST_F(WorkspaceReclaim, UnderALaterLimitSmallCyclesAreServed) {
  for (const bool has_initial : {false, true}) {
    WorkspaceConfig config;
    if (has_initial) config.initial_size = 64 << 10;
    Workspace workspace("w", config);
    for (int i = 0; i < 3; ++i) Cycle(workspace, 40 * kMiB);
    MemoryBudget::Global().SetProcessLimit(8 * kMiB);
    for (int i = 0; i < 10; ++i) Cycle(workspace, kMiB);
    const WorkspaceStats before = workspace.stats();
    EXPECT_LE(workspace.size(), 2 * kMiB);
    for (int i = 0; i < 3; ++i) Cycle(workspace, kMiB);
    EXPECT_EQ(workspace.stats().spills, before.spills) << "it was learned";
    EXPECT_THROW(Cycle(workspace, 40 * kMiB), OutOfMemoryError);
    MemoryBudget::Global().SetProcessLimit(MemoryBudget::kUnlimited);
    for (int i = 0; i < 3; ++i) Cycle(workspace, 40 * kMiB);
  }
}

TEST_F(WorkspaceReclaim, TheErrorNamesTheWorkspaceThatHoldsTheMemory) {
  MemoryOwnerScope owner("net");
  Workspace workspace("step", WorkspaceConfig::Training());
  WorkspaceScope scope(workspace);
  BufferHandle held = New(4 * kMiB);
  MemoryBudget::Global().SetProcessLimit(Taken() + 1000);
  const WorkspaceStats before = workspace.stats();
  try {
    New(4 * kMiB);
    FAIL();
  } catch (const OutOfMemoryError& error) {
    EXPECT_THAT(error.message(), HasSubstr("[net/workspace step] needs"));
    EXPECT_THAT(error.message(), HasSubstr("held by net/workspace step"));
    EXPECT_THAT(error.report(), HasSubstr("net/workspace step"));
  }
  EXPECT_EQ(workspace.stats().spills, before.spills);
  EXPECT_THROW(BufferHandle(NewHeapBuffer(2000)), OutOfMemoryError);
  BufferHandle small(NewHeapBuffer(900));
}

TEST_F(WorkspaceReclaim, GuardedPagesAreInTheBudget) {
  WorkspaceConfig config = WorkspaceConfig::Training();
  config.debug_mode = DebugMode::kGuard;
  Workspace workspace("guard", config);
  WorkspaceScope scope(workspace);
  const int64_t before = Taken();
  BufferHandle a = New(10000);
  EXPECT_GE(Taken() - before, 10000);
  MemoryBudget::Global().SetProcessLimit(MemoryBudget::Global().process().taken_bytes);
  EXPECT_THROW(New(10), OutOfMemoryError);
  a.Reset();
  EXPECT_EQ(Taken(), before);
}

// Threads work in their own workspaces while the Reclaimer runs as often as it can and budgets
// change. Contents must hold; ThreadSanitizer watches the hand-shake.
TEST_F(WorkspaceReclaim, WorkspacesInUseAreNeverTouched) {
  Reclaimer::Global().set_window(absl::Microseconds(20));
  std::atomic<bool> stop{false};
  std::thread presser([&] {
    while (!stop) {
      Reclaimer::Global().RunNow();
      Reclaimer::Global().ReclaimUnderPressure(1 << 20);
      std::this_thread::yield();
    }
  });
  std::vector<std::thread> workers;
  for (int t = 0; t < 3; ++t) {
    workers.emplace_back([t] {
      for (int life = 0; life < 6; ++life) {
        auto workspace =
            std::make_unique<Workspace>("w" + std::to_string(t), WorkspaceConfig::Training());
        for (int cycle = 0; cycle < 40; ++cycle) {
          {
            WorkspaceScope scope(*workspace);
            std::vector<BufferHandle> live;
            for (int i = 0; i < 20; ++i) {
              live.push_back(New(1000 + 300 * i));
              std::memset(live.back()->data, t * 20 + i, live.back()->bytes);
            }
            for (int i = 0; i < 20; ++i) {
              for (size_t b = 0; b < live[i]->bytes; b += 97) {
                ASSERT_EQ(live[i]->data[b], static_cast<std::byte>(t * 20 + i));
              }
            }
          }
          ASSERT_FALSE(workspace->is_open());
          ASSERT_GT(workspace->stats().size_bytes, 0u);
          if (cycle % 7 == 6) workspace->Trim();
          if (cycle % 11 == 10) workspace->Destroy();
          if (cycle % 5 == 4) workspace->Initialize();
        }
        EXPECT_EQ(workspace->stats().misses, 0u);
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  stop = true;
  presser.join();
  EXPECT_EQ(Taken(), 0);
}

TEST_F(WorkspaceReclaim, PeriodicRunsTakeWhatWasIdleForAWholeWindow) {
  Workspace workspace("idle", WorkspaceConfig::Training());
  for (int i = 0; i < 2; ++i) Cycle(workspace, kMiB);
  Reclaimer::Global().set_window(absl::Milliseconds(2));
  for (int i = 0; i < 10000 && Taken() > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(Taken(), 0);
}

SlotLease Fill(RingWorkspace& ring, size_t bytes, BufferHandle* array) {
  RingSlotScope slot(ring);
  *array = New(bytes);
  std::memset(array->get()->data, static_cast<int>(slot.generation()), bytes);
  return slot.Commit();
}

TEST_F(WorkspaceReclaim, IdleSlotsOfARingGiveTheirPagesBackAndLeasedOnesKeepThem) {
  RingWorkspace ring("batches", WorkspaceConfig::Ring(3));
  for (int i = 0; i < 6; ++i) {  // of two slots: one that never had a batch has no pages
    BufferHandle first, second;
    const SlotLease lease = Fill(ring, kMiB, &first);
    const SlotLease next = Fill(ring, kMiB, &second);
    first.Reset();
    second.Reset();
  }
  BufferHandle kept;
  const SlotLease lease = Fill(ring, kMiB, &kept);
  const auto value = kept->data[0];
  const int64_t before = Taken();
  EXPECT_GE(before, static_cast<int64_t>(2 * kMiB));
  EXPECT_GT(Reclaimer::Global().RunNow(), 0);
  EXPECT_LT(Taken(), before);
  EXPECT_GE(Taken(), static_cast<int64_t>(kMiB));
  EXPECT_EQ(std::count(kept->data, kept->data + kMiB, value), static_cast<int64_t>(kMiB));
  for (int i = 0; i < 4; ++i) {
    BufferHandle array;
    const SlotLease next = Fill(ring, kMiB, &array);
    EXPECT_EQ(array->data[0], array->data[kMiB - 1]);
    array.Reset();
  }
  EXPECT_EQ(kept->data[kMiB / 2], value);
}

// The Reclaimer runs all the while; under ThreadSanitizer this is the test of what it may touch.
TEST_F(WorkspaceReclaim, ARingWorksWhileTheReclaimerRuns) {
  RingWorkspace ring("busy", WorkspaceConfig::Ring(3));
  std::atomic<bool> done{false};
  std::thread reclaimer([&] {
    while (!done.load()) Reclaimer::Global().RunNow();
  });
  for (int i = 0; i < 2000; ++i) {
    BufferHandle array;
    SlotLease lease = Fill(ring, 4096 + i % 5 * 4096, &array);
    ASSERT_EQ(array->data[0], array->data[4095]) << i;
    if (i % 7 == 0) ring.Trim();
    array.Reset();
  }
  done.store(true);
  reclaimer.join();
  EXPECT_EQ(ring.stats().idle, 3);
}

}  // namespace
}  // namespace tidepool
