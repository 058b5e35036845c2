// Sizes at their limits: what a workspace may own, may be asked for, and gives back.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/test_device.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

using ::testing::HasSubstr;

BufferHandle New(size_t bytes) { return BufferHandle(AllocateHere(bytes)); }

WorkspaceConfig Strict(LearningPolicy learning, SpillPolicy spill) {
  WorkspaceConfig config = WorkspaceConfig::Nd4j();
  config.policy_allocation = AllocationPolicy::kStrict;
  config.policy_learning = learning;
  config.policy_spill = spill;
  config.alignment = 16;
  return config;
}

int64_t LedgerBytes() { return LedgerTotal(); }

// A size that rounds to 0 is not the mark of a request that the plan sends outside of the pages.
TEST(WorkspaceLimits, ARequestThatCannotExistIsRefusedWhereThePlanHasOneOutside) {
  WorkspaceConfig config = Strict(LearningPolicy::kOptimized, SpillPolicy::kExternal);
  config.initial_size = 4096;
  Workspace workspace("w", config, TestDevice());
  for (int cycle = 0; cycle < 4; ++cycle) {
    WorkspaceScope scope(workspace);
    BufferHandle outside = New(1 << 16);
    EXPECT_NE(outside->request.spill, nullptr);
  }
  for (size_t bytes : {SIZE_MAX, SIZE_MAX - 5, SIZE_MAX - 14}) {
    WorkspaceScope scope(workspace);
    EXPECT_THROW(New(bytes), OutOfMemoryError) << bytes;
    EXPECT_EQ(workspace.bytes_this_cycle(), 0);
  }
}

TEST(WorkspaceLimits, SizesThatWereNegativeAreRefused) {
  const auto refused = [](size_t WorkspaceConfig::*field) {
    WorkspaceConfig config = WorkspaceConfig::Nd4j();
    config.*field = static_cast<size_t>(-4096);
    std::string message = "nothing was thrown";
    try {
      Workspace workspace("negative", config);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
      message = error.message();
    }
    return message;
  };
  const auto expect = [](const char* name) {
    return HasSubstr(std::string(name) + " is -4096, expected 0 or more");
  };
  EXPECT_THAT(refused(&WorkspaceConfig::initial_size), expect("initial_size"));
  EXPECT_THAT(refused(&WorkspaceConfig::min_size), expect("min_size"));
  EXPECT_THAT(refused(&WorkspaceConfig::max_size), expect("max_size"));
  EXPECT_THAT(refused(&WorkspaceConfig::temp_block_size), expect("temp_block_size"));
  EXPECT_THAT(refused(&WorkspaceConfig::helper_min_size), expect("helper_min_size"));
  for (const int64_t bytes : {int64_t{-1}, int64_t{-4096}}) {
    WorkspaceConfig config = WorkspaceConfig::Nd4j();
    config.overallocation_limit = Overallocation::Bytes(bytes);
    EXPECT_THAT(config.Reasons(),
                testing::ElementsAre(testing::AllOf(HasSubstr("overallocation_limit is negative"),
                                                    HasSubstr(absl::StrCat("found ", bytes)))));
  }
}

// What no machine has: who asked is in the message, and may go on.
TEST(WorkspaceLimits, ARefusalOfMemoryNamesTheWorkspace) {
  const auto refusal = [](const auto& call) {
    try {
      call();
    } catch (const OutOfMemoryError& error) {
      return error.message();
    }
    return std::string("nothing was thrown");
  };
  for (const int bits : {46, 50}) {
    const size_t bytes = size_t{1} << bits;
    WorkspaceConfig config = WorkspaceConfig::Training();
    config.initial_size = bytes;
    EXPECT_THAT(refusal([&] { Workspace workspace("huge", config); }),
                testing::StartsWith("workspace [huge]: pages: "));
    Workspace workspace("small");
    WorkspaceScope scope(workspace);
    EXPECT_THAT(
        refusal([&] { AllocateHere(bytes); }),
        testing::StartsWith(absl::StrCat("workspace [small]: a request of ", bytes, " bytes: ")));
    EXPECT_TRUE(BufferHandle(AllocateHere(100)));
  }
}

TEST(WorkspaceLimits, PoliciesThatThereAreNotAreRefused) {
  const auto expect_refused = [](const char* name, auto WorkspaceConfig::*field, auto last) {
    using Policy = std::remove_reference_t<decltype(std::declval<WorkspaceConfig>().*field)>;
    const int values = static_cast<int>(last) + 1;
    for (const int value : {values, 77, 255}) {
      WorkspaceConfig config = WorkspaceConfig::Nd4j();
      config.*field = static_cast<Policy>(value);
      EXPECT_THAT(config.Reasons(), testing::Contains(absl::StrCat(
                                        name, " is ", value, ", expected 0 to ", values - 1)));
    }
    for (int value = 0; value < values; ++value) {
      WorkspaceConfig config = WorkspaceConfig::Nd4j();
      config.*field = static_cast<Policy>(value);
      EXPECT_THAT(config.Reasons(),
                  testing::Each(testing::Not(HasSubstr(absl::StrCat(name, " is ")))));
    }
  };
  expect_refused("policy_allocation", &WorkspaceConfig::policy_allocation,
                 AllocationPolicy::kAlways);
  expect_refused("policy_learning", &WorkspaceConfig::policy_learning, LearningPolicy::kTraining);
  expect_refused("policy_mirroring", &WorkspaceConfig::policy_mirroring,
                 MirroringPolicy::kHostOnly);
  expect_refused("policy_spill", &WorkspaceConfig::policy_spill, SpillPolicy::kExternal);
  expect_refused("policy_reset", &WorkspaceConfig::policy_reset, ResetPolicy::kEndOfBufferReached);
  expect_refused("policy_location", &WorkspaceConfig::policy_location, LocationPolicy::kMmap);
  expect_refused("workspace_mode", &WorkspaceConfig::workspace_mode, WorkspaceMode::kNone);
  expect_refused("debug_mode", &WorkspaceConfig::debug_mode, DebugMode::kGuard);
  expect_refused("policy_ring_full", &WorkspaceConfig::policy_ring_full, RingFullPolicy::kSpill);
}

TEST(WorkspaceLimits, BlocksThatNoMachineHasAreRefused) {
  WorkspaceConfig config = WorkspaceConfig::Nd4j();
  constexpr size_t kMost = size_t{1} << 36;
  config.temp_block_size = kMost;
  EXPECT_THAT(config.Reasons(), testing::IsEmpty());
  for (const size_t bytes : {kMost + 1, size_t{1} << 40, size_t{1} << 50}) {
    config.temp_block_size = bytes;
    EXPECT_THAT(config.Reasons(), testing::ElementsAre(absl::StrCat("temp_block_size is ", bytes,
                                                                    ", expected 4096 to ", kMost)));
  }
}

TEST(WorkspaceLimits, SwitchedOffWorkspacesKeepTheirAlignment) {
  for (const size_t alignment : {size_t{64}, size_t{256}, size_t{4096}}) {
    for (const bool bypass : {false, true}) {
      WorkspaceConfig config = WorkspaceConfig::Nd4j();
      config.alignment = alignment;
      if (bypass) config.debug_mode = DebugMode::kBypassEverything;
      if (!bypass) config.workspace_mode = WorkspaceMode::kNone;
      Workspace workspace("off", config);
      const WorkspaceScope scope(workspace);
      std::vector<BufferHandle> held;
      for (int i = 0; i < 20; ++i) {
        held.push_back(New(100 + i));
        EXPECT_EQ(reinterpret_cast<uintptr_t>(held.back()->data) % alignment, 0u) << alignment;
      }
    }
  }
}

TEST(WorkspaceLimits, RequestsThatCannotExistAreRefusedAndChangeNothing) {
  for (LearningPolicy learning : {LearningPolicy::kFirstLoop, LearningPolicy::kOptimized}) {
    for (SpillPolicy spill :
         {SpillPolicy::kFail, SpillPolicy::kExternal, SpillPolicy::kReallocate}) {
      WorkspaceConfig config = Strict(learning, spill);
      config.initial_size = 4096;
      config.max_size = 1 << 20;
      Workspace workspace("w", config, TestDevice());
      for (int cycle = 0; cycle < 3; ++cycle) {
        WorkspaceScope scope(workspace);
        BufferHandle first = New(100);
        for (size_t bytes : {SIZE_MAX, SIZE_MAX - 14, SIZE_MAX - 15, SIZE_MAX - 112, SIZE_MAX - 127,
                             SIZE_MAX / 2, SIZE_MAX / 4}) {
          EXPECT_THROW(New(bytes), OutOfMemoryError) << bytes;
        }
        EXPECT_EQ(workspace.offset(), 112);
        EXPECT_EQ(workspace.bytes_this_cycle(), 112);
        EXPECT_EQ(workspace.spilled_count(), 0);
        BufferHandle second = New(100);
        EXPECT_EQ(second->data, first->data + 112);
      }
      EXPECT_EQ(workspace.stats().misses, 0);
    }
  }
}

TEST(WorkspaceLimits, InitialSizesThatCannotExistAreRefused) {
  for (size_t bytes : {SIZE_MAX / 2, SIZE_MAX / 2 - 100, size_t{1} << 60}) {
    WorkspaceConfig config = WorkspaceConfig::Nd4j();
    config.initial_size = bytes;
    EXPECT_THROW(Workspace("w", config, TestDevice()), OutOfMemoryError) << bytes;
    config.overallocation_limit = Overallocation::Ratio(100);
    EXPECT_THROW(Workspace("w", config, TestDevice()), OutOfMemoryError) << bytes;
    config.overallocation_limit = Overallocation::Bytes(INT64_MAX);
    EXPECT_THROW(Workspace("w", config, TestDevice()), OutOfMemoryError) << bytes;
  }
}

// What counts against max_size is what is alive at once when lifetimes are learned.
TEST(WorkspaceLimits, OptimizedCompletesCyclesWhoseLiveBytesFitMaxSize) {
  WorkspaceConfig config = Strict(LearningPolicy::kOptimized, SpillPolicy::kReallocate);
  config.max_size = 8192;
  Workspace workspace("w", config, TestDevice());
  for (int cycle = 0; cycle < 3; ++cycle) {
    WorkspaceScope scope(workspace);
    for (int i = 0; i < 10; ++i) {
      BufferHandle a = New(4096), b = New(4096);
      try {
        New(16);
        FAIL();
      } catch (const OutOfMemoryError& error) {
        EXPECT_THAT(error.message(), HasSubstr("8208 bytes"));
        EXPECT_THAT(error.message(), HasSubstr("max_size is 8192"));
      }
    }
  }
  EXPECT_EQ(workspace.size(), 8192);
  EXPECT_EQ(workspace.stats().planned_peak_bytes, 8192);
  EXPECT_EQ(workspace.stats().hits, 40);
}

// kExternal never grows; what does not fit the given pages is planned outside of them.
TEST(WorkspaceLimits, OptimizedPlansIntoAnInitialSizeThatIsTooSmall) {
  for (SpillPolicy spill : {SpillPolicy::kExternal, SpillPolicy::kReallocate}) {
    WorkspaceConfig config = Strict(LearningPolicy::kOptimized, spill);
    config.initial_size = 4096;
    Workspace workspace("w", config, TestDevice());
    for (int cycle = 0; cycle < 5; ++cycle) {
      WorkspaceScope scope(workspace);
      std::vector<BufferHandle> live;
      for (int i = 0; i < 10; ++i) live.push_back(New(1024));
    }
    const WorkspaceStats stats = workspace.stats();
    EXPECT_EQ(stats.plans, 1);
    EXPECT_EQ(stats.misses, 0);
    if (spill == SpillPolicy::kExternal) {
      EXPECT_EQ(workspace.size(), 4096);
      EXPECT_EQ(stats.spills, 5 * 6);
    } else {
      EXPECT_EQ(workspace.size(), 10240);
      EXPECT_EQ(stats.spills, 6);
    }
  }
}

TEST(WorkspaceLimits, AnInitialSizeThatHoldsThePlanStays) {
  WorkspaceConfig config = Strict(LearningPolicy::kOptimized, SpillPolicy::kReallocate);
  config.policy_allocation = AllocationPolicy::kOverallocate;
  config.overallocation_limit = Overallocation::Ratio(0.5);
  config.initial_size = 1024;
  Workspace workspace("w", config, TestDevice());
  EXPECT_EQ(workspace.size(), 1536);
  for (int cycle = 0; cycle < 2; ++cycle) {
    WorkspaceScope scope(workspace);
    New(1200);
    New(1200);
  }
  EXPECT_EQ(workspace.size(), 1536);
}

TEST(WorkspaceLimits, InitializeKeepsAPlansSize) {
  Workspace workspace("w", WorkspaceConfig::Training(), TestDevice());
  {
    WorkspaceScope scope(workspace);
    for (int i = 0; i < 10; ++i) New(4096);
  }
  EXPECT_EQ(workspace.size(), 4096);
  workspace.Initialize();
  EXPECT_EQ(workspace.size(), 4096);
}

TEST(WorkspaceLimits, AfterDestroyTheInitialSizeComesBackWithTheNextCycle) {
  WorkspaceConfig config = Strict(LearningPolicy::kNone, SpillPolicy::kFail);
  config.initial_size = 1000;
  Workspace workspace("w", config, TestDevice());
  workspace.Destroy();
  EXPECT_EQ(workspace.size(), 0);
  WorkspaceScope scope(workspace);
  EXPECT_EQ(workspace.size(), 992);
  BufferHandle a = New(990);
  FillBuffer(*a.get(), 1);
  EXPECT_EQ(workspace.offset(), 992);
}

TEST(WorkspaceLimits, DestroyForgetsTheCyclesSeenButNotTheGeneration) {
  WorkspaceConfig config = Strict(LearningPolicy::kOverTime, SpillPolicy::kExternal);
  config.cycles_before_initialization = 3;
  Workspace workspace("w", config, TestDevice());
  std::vector<size_t> sizes;
  for (int i = 0; i < 8; ++i) {
    if (i == 4) {
      workspace.Destroy();
      EXPECT_EQ(workspace.generation(), 4);
    }
    WorkspaceScope scope(workspace);
    New(i < 4 ? 320 : 160);
    scope.Close();
    sizes.push_back(workspace.size());
  }
  EXPECT_THAT(sizes, testing::ElementsAre(0, 0, 320, 320, 0, 0, 160, 160));
  EXPECT_EQ(workspace.generation(), 8);
}

// Growing to min_size fails at the end of the cycle; the workspace goes on from kept blocks and
// the ledger knows what it owns.
TEST(WorkspaceLimits, AFailedGrowthLeavesLedgerAndWorkspaceRight) {
  const int64_t before = LedgerBytes();
  WorkspaceConfig config = WorkspaceConfig::Nd4j();
  config.min_size = size_t{1} << 60;
  auto workspace = std::make_unique<Workspace>("w", config, TestDevice());
  for (int cycle = 0; cycle < 3; ++cycle) {
    WorkspaceScope scope(*workspace);
    BufferHandle a = New(3 << 20);
    FillBuffer(*a.get(), 5);
    a.Reset();
    scope.Close();
    EXPECT_EQ(workspace->size(), 0);
    EXPECT_EQ(workspace->bytes_last_cycle(), 3 << 20);
    const int64_t owned = LedgerBytes() - before;
    // Without blocks kept, only the records of buffers remain.
    EXPECT_LT(owned, 1 << 20);
  }
  workspace.reset();
  EXPECT_EQ(LedgerBytes(), before);
}

// Every second cycle spills: the blocks for it are kept over the cycle that does not.
TEST(WorkspaceLimits, KeptBlocksOutliveShortCycles) {
  WorkspaceConfig config = Strict(LearningPolicy::kNone, SpillPolicy::kExternal);
  config.initial_size = 4096;
  Workspace workspace("w", config, TestDevice());
  auto cycle = [&](size_t bytes) {
    WorkspaceScope scope(workspace);
    New(bytes);
  };
  cycle(8192);
  const int64_t allocations = MemoryTracker::Global().system_allocations();
  const int64_t with_blocks = LedgerBytes();
  for (int i = 0; i < 20; ++i) cycle(i % 2 == 0 ? 100 : 8192);
  EXPECT_EQ(MemoryTracker::Global().system_allocations(), allocations);
  for (int i = 0; i < 20; ++i) cycle(100);
  EXPECT_LE(LedgerBytes(), with_blocks - (1 << 20));
}

TEST(WorkspaceLimits, AnArrayClosedOnAnotherThreadIsNotLeaked) {
  Workspace workspace("w", WorkspaceConfig::Training(), TestDevice());
  WorkspaceScope scope(workspace);
  BufferHandle a = New(100), b = New(200);
  std::thread([&] { a->Close(); }).join();
  scope.Close();
  EXPECT_EQ(workspace.stats().leaked_arrays, 1);
}

}  // namespace
}  // namespace tidepool
