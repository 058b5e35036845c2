#include "tidepool/memory/workspace/workspace.h"

#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

using ::testing::HasSubstr;

BufferHandle New(size_t bytes) { return BufferHandle(AllocateHere(bytes)); }

WorkspaceConfig Strict(LearningPolicy learning, SpillPolicy spill = SpillPolicy::kExternal) {
  WorkspaceConfig config = WorkspaceConfig::Nd4j();
  config.policy_allocation = AllocationPolicy::kStrict;
  config.policy_learning = learning;
  config.policy_spill = spill;
  config.alignment = 16;
  return config;
}

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.message();
  }
  return "nothing was thrown";
}

TEST(Workspace, FirstLoopLearnsTheSumOfACycle) {
  Workspace workspace("w", Strict(LearningPolicy::kFirstLoop));
  {
    WorkspaceScope scope(workspace);
    BufferHandle a = New(800), b = New(75);
    EXPECT_EQ(workspace.size(), 0);
    EXPECT_EQ(workspace.offset(), 0);
    EXPECT_EQ(workspace.spilled_count(), 2);
  }
  EXPECT_EQ(workspace.size(), 880);
  EXPECT_EQ(workspace.offset(), 0);
  EXPECT_EQ(workspace.spilled_count(), 0);
  WorkspaceScope scope(workspace);
  BufferHandle a = New(800);
  EXPECT_EQ(workspace.offset(), 800);
  EXPECT_EQ(workspace.spilled_count(), 0);
}

TEST(Workspace, AnEmptyFirstCycleTeachesNothing) {
  Workspace workspace("w", Strict(LearningPolicy::kFirstLoop));
  { WorkspaceScope scope(workspace); }
  EXPECT_EQ(workspace.size(), 0);
  {
    WorkspaceScope scope(workspace);
    New(1000);
  }
  EXPECT_EQ(workspace.size(), 1008);
}

TEST(Workspace, OverTimeTakesTheLargestOfItsCycles) {
  WorkspaceConfig config = Strict(LearningPolicy::kOverTime, SpillPolicy::kReallocate);
  config.cycles_before_initialization = 3;
  Workspace workspace("w", config);
  std::vector<size_t> sizes;
  for (int i = 1; i <= 5; ++i) {
    WorkspaceScope scope(workspace);
    New(400 * i);
    scope.Close();
    sizes.push_back(workspace.size());
  }
  EXPECT_THAT(sizes, testing::ElementsAre(0, 0, 1200, 1600, 2000));
}

TEST(Workspace, OverallocationMinimumAndMaximum) {
  WorkspaceConfig config = WorkspaceConfig::Nd4j();
  config.alignment = 16;
  config.min_size = 1024;
  config.max_size = 8192;
  Workspace workspace("w", config);
  {
    WorkspaceScope scope(workspace);
    New(3000);
  }
  EXPECT_EQ(workspace.size(), 3008 + 902);
  config.initial_size = 1024;
  config.overallocation_limit = Overallocation::Ratio(1.0);
  EXPECT_EQ(Workspace("v", config).size(), 2048);
}

TEST(Workspace, IllegalConfigurationNamesEveryReason) {
  WorkspaceConfig config = WorkspaceConfig::Nd4j();
  config.alignment = 24;
  config.min_size = 10;
  config.max_size = 5;
  config.policy_spill = SpillPolicy::kFail;
  const std::string message = MessageOf([&] { Workspace workspace("bad", config); });
  EXPECT_THAT(message, HasSubstr("[bad]"));
  EXPECT_THAT(message, HasSubstr("alignment is 24"));
  EXPECT_THAT(message, HasSubstr("min_size 10 exceeds max_size 5"));
  EXPECT_THAT(message, HasSubstr("kFail"));
}

TEST(Workspace, FailRefusesAndNothingChanges) {
  WorkspaceConfig config = Strict(LearningPolicy::kNone, SpillPolicy::kFail);
  config.initial_size = 1 << 20;
  Workspace workspace("w", config);
  WorkspaceScope scope(workspace);
  BufferHandle a = New(40);
  EXPECT_EQ(workspace.offset(), 48);
  EXPECT_THAT(MessageOf([] { New(80000000); }), HasSubstr("workspace [w] is full"));
  EXPECT_EQ(workspace.offset(), 48);
  EXPECT_EQ(workspace.spilled_bytes(), 0);
  EXPECT_EQ(workspace.bytes_this_cycle(), 48);
  BufferHandle b = New(40);
  EXPECT_EQ(workspace.offset(), 96);
}

TEST(Workspace, ReallocateStopsAtMaxSizeWithNeedAndLimit) {
  WorkspaceConfig config = Strict(LearningPolicy::kFirstLoop, SpillPolicy::kReallocate);
  config.max_size = 1504;
  Workspace workspace("w", config);
  {
    WorkspaceScope scope(workspace);
    New(1000);
  }
  WorkspaceScope scope(workspace);
  BufferHandle a = New(1000);
  const std::string message = MessageOf([] { New(600); });
  EXPECT_THAT(message, HasSubstr("needs 1616 bytes"));
  EXPECT_THAT(message, HasSubstr("max_size is 1504"));
  BufferHandle b = New(496);
  scope.Close();
  EXPECT_EQ(workspace.size(), 1504);
}

// A stack of activations released in reverse, with short temporaries: the plan must need only what
// is alive at once, and later cycles must come from the pages alone.
TEST(Workspace, OptimizedPlansLifetimes) {
  Workspace workspace("w", Strict(LearningPolicy::kOptimized));
  auto cycle = [] {
    std::vector<BufferHandle> kept;
    for (int i = 0; i < 10; ++i) {
      BufferHandle temporary = New(4096);
      std::memset(temporary->data, i, 4096);
      kept.push_back(New(1024));
      std::memset(kept.back()->data, i, 1024);
    }
    for (int i = 9; i >= 0; --i) {
      EXPECT_EQ(static_cast<int>(kept[i]->data[1023]), i);
      kept.pop_back();
    }
  };
  for (int i = 0; i < 3; ++i) {
    WorkspaceScope scope(workspace);
    cycle();
  }
  const WorkspaceStats stats = workspace.stats();
  EXPECT_EQ(stats.plans, 1);
  EXPECT_EQ(stats.live_lower_bound_bytes, 4096 + 10 * 1024);
  EXPECT_EQ(stats.planned_peak_bytes, 4096 + 10 * 1024);
  EXPECT_EQ(stats.requested_bytes, 10 * (4096 + 1024));
  EXPECT_EQ(stats.hits, 40);
  EXPECT_EQ(stats.spills, 20);  // the learning cycle
  EXPECT_EQ(stats.misses, 0);
}

TEST(Workspace, SteadyCyclesAskTheSystemForNothing) {
  Workspace workspace("w", WorkspaceConfig::Training());
  auto cycle = [&] {
    WorkspaceScope scope(workspace);
    BufferHandle a = New(100000);
    BufferHandle b = New(50);
    a.Reset();
    BufferHandle c = New(70000);
  };
  cycle();
  cycle();
  const int64_t before = MemoryTracker::Global().system_allocations();
  for (int i = 0; i < 1000; ++i) cycle();
  EXPECT_EQ(MemoryTracker::Global().system_allocations(), before);
}

// The plan assumes that `first` is gone when `second` comes. When it is not, the bytes must differ.
TEST(Workspace, APlanIsNotTrustedWhenATenantStays) {
  Workspace workspace("w", Strict(LearningPolicy::kOptimized));
  for (int i = 0; i < 2; ++i) {
    WorkspaceScope scope(workspace);
    New(4096);
    New(4096);
  }
  EXPECT_EQ(workspace.stats().planned_peak_bytes, 4096);
  WorkspaceScope scope(workspace);
  BufferHandle first = New(4096);
  BufferHandle second = New(4096);
  std::memset(first->data, 1, 4096);
  std::memset(second->data, 2, 4096);
  EXPECT_EQ(static_cast<int>(first->data[4095]), 1);
  EXPECT_EQ(workspace.stats().misses, 1);
}

// Request 1 misses (another size) while request 0 stays alive; request 2 was planned on the range
// that 0 and then 1 had. It must see through the miss.
TEST(Workspace, AMissDoesNotHideAnEarlierTenant) {
  Workspace workspace("w", Strict(LearningPolicy::kOptimized));
  {
    WorkspaceScope scope(workspace);
    New(4096);
    New(4096);
    New(4096);
  }
  WorkspaceScope scope(workspace);
  BufferHandle zero = New(4096);
  BufferHandle one = New(8192);
  BufferHandle two = New(4096);
  EXPECT_NE(zero->data, two->data);
  EXPECT_EQ(workspace.stats().misses, 2);
}

TEST(Workspace, PlansAreMadeAnewAfterMissingCycles) {
  Workspace workspace("w", WorkspaceConfig::Training());
  auto cycle = [&](size_t bytes) {
    WorkspaceScope scope(workspace);
    BufferHandle a = New(bytes);
    BufferHandle b = New(bytes / 2);
  };
  cycle(1000);
  cycle(1000);
  for (int i = 0; i < 4; ++i) cycle(90000);
  const WorkspaceStats before = workspace.stats();
  cycle(90000);
  EXPECT_EQ(workspace.stats().misses, before.misses);
  EXPECT_EQ(workspace.stats().plans, 2);
  EXPECT_EQ(workspace.stats().hits, before.hits + 2);
}

TEST(Workspace, AFailedCycleTeachesNothing) {
  Workspace workspace("w", WorkspaceConfig::Training());
  try {
    WorkspaceScope scope(workspace);
    BufferHandle a = New(100);
    throw std::runtime_error("step failed");
  } catch (const std::runtime_error&) {
  }
  EXPECT_FALSE(workspace.is_open());
  EXPECT_EQ(CurrentPlace(), nullptr);
  EXPECT_EQ(workspace.stats().plans, 0);
  EXPECT_EQ(workspace.stats().failed_cycles, 1);
  EXPECT_EQ(workspace.size(), 0);
}

TEST(Workspace, StaleBuffersAreRecognisedForEver) {
  auto workspace = std::make_unique<Workspace>("LOOP", WorkspaceConfig::Training());
  BufferHandle leaked;
  {
    WorkspaceScope scope(*workspace);
    leaked = New(100);
    EXPECT_TRUE(leaked->IsAlive());
  }
  EXPECT_FALSE(leaked->IsAlive());
  EXPECT_THAT(leaked->owner->DescribeStale(leaked->stamp),
              HasSubstr("leaked workspace pointer from workspace [LOOP]"));
  {
    WorkspaceScope scope(*workspace);
    EXPECT_FALSE(leaked->IsAlive());
    EXPECT_THAT(leaked->owner->DescribeStale(leaked->stamp),
                HasSubstr("outdated workspace pointer from workspace [LOOP] (made in generation 1; "
                          "the workspace is in generation 2)"));
  }
  EXPECT_EQ(workspace->stats().leaked_arrays, 1);
  workspace->Destroy();
  EXPECT_FALSE(leaked->IsAlive());
  workspace.reset();
  EXPECT_FALSE(leaked->IsAlive());
  EXPECT_THAT(leaked->owner->DescribeStale(leaked->stamp), HasSubstr("was destroyed"));
}

TEST(Workspace, LearnsAfreshAfterDestroy) {
  Workspace workspace("w", WorkspaceConfig::Training());
  for (int i = 0; i < 2; ++i) {
    WorkspaceScope scope(workspace);
    New(5000);
  }
  EXPECT_GT(workspace.size(), 0);
  workspace.Destroy();
  EXPECT_EQ(workspace.size(), 0);
  {
    WorkspaceScope scope(workspace);
    New(5000);
    EXPECT_THROW(workspace.Destroy(), Error);
  }
  EXPECT_EQ(workspace.stats().plans, 2);
}

TEST(Workspace, TheLedgerReturnsToWhereItWas) {
  auto total = [] { return MemoryTracker::Global().Snapshot()[Host()].total.current_bytes; };
  const int64_t before = total();
  {
    Workspace workspace("w", WorkspaceConfig::Training());
    for (int i = 0; i < 3; ++i) {
      WorkspaceScope scope(workspace);
      BufferHandle a = New(3 << 20);
      const DeviceMemory host = MemoryTracker::Global().Snapshot()[Host()];
      EXPECT_GE(host[MemoryKind::kAllocated].current_bytes, 3 << 20);
    }
    EXPECT_GT(total(), before);
    BufferHandle heap = New(1000);
  }
  EXPECT_EQ(total(), before);
}

TEST(Workspace, ReleasesFromAnotherThreadAreTakenBack) {
  Workspace workspace("w", WorkspaceConfig::Training());
  for (int cycle = 0; cycle < 200; ++cycle) {
    WorkspaceScope scope(workspace);
    std::vector<BufferHandle> handles;
    for (int i = 0; i < 20; ++i) handles.push_back(New(256));
    std::thread other([moved = std::move(handles)]() mutable { moved.clear(); });
    BufferHandle mine = New(512);
    other.join();
  }
  EXPECT_EQ(workspace.stats().leaked_arrays, 0);
}

TEST(Workspace, BuffersMayOutliveTheWorkspaceOnAnotherThread) {
  for (int round = 0; round < 200; ++round) {
    std::vector<BufferHandle> leaked;
    auto workspace = std::make_unique<Workspace>("w");
    {
      WorkspaceScope scope(*workspace);
      for (int i = 0; i < 8; ++i) leaked.push_back(New(64));
    }
    std::thread other([moved = std::move(leaked)]() mutable { moved.clear(); });
    workspace.reset();
    other.join();
  }
}

TEST(Workspace, AlwaysGivesFreshMemoryThatDiesWithTheCycle) {
  WorkspaceConfig config = WorkspaceConfig::Nd4j();
  config.policy_allocation = AllocationPolicy::kAlways;
  Workspace workspace("w", config);
  const int64_t before = MemoryTracker::Global().Snapshot()[Host()].total.current_bytes;
  BufferHandle kept;
  for (int i = 0; i < 3; ++i) {
    WorkspaceScope scope(workspace);
    kept = New(10000);
    New(20000);
  }
  EXPECT_EQ(workspace.size(), 0);
  EXPECT_EQ(workspace.stats().spills, 6);
  EXPECT_FALSE(kept->IsAlive());
  const DeviceMemory host = MemoryTracker::Global().Snapshot()[Host()];
  EXPECT_LT(host.total.current_bytes - before, 20000);  // records of the workspace only
}

TEST(Workspace, ModeNoneAndBypassAreTransparent) {
  for (bool bypass : {false, true}) {
    WorkspaceConfig config = WorkspaceConfig::Nd4j();
    if (bypass) config.debug_mode = DebugMode::kBypassEverything;
    if (!bypass) config.workspace_mode = WorkspaceMode::kNone;
    Workspace workspace("w", config);
    BufferHandle kept;
    {
      WorkspaceScope scope(workspace);
      kept = New(100);
      EXPECT_FALSE(kept->attached);
    }
    EXPECT_TRUE(kept->IsAlive());
  }
}

TEST(Workspace, TrimGivesBackWhatTheLastCycleDidNotNeed) {
  WorkspaceConfig config = Strict(LearningPolicy::kFirstLoop, SpillPolicy::kReallocate);
  Workspace workspace("w", config);
  auto cycle = [&](size_t bytes) {
    WorkspaceScope scope(workspace);
    New(bytes);
  };
  cycle(1000);
  cycle(64000);
  EXPECT_EQ(workspace.size(), 64000);
  cycle(1600);
  workspace.Trim();
  EXPECT_EQ(workspace.size(), 1600);
  cycle(1600);
  EXPECT_EQ(workspace.size(), 1600);
}

}  // namespace
}  // namespace tidepool
