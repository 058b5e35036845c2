// Where the pages are: mapped files, addresses that stay, pages touched ahead.
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/machine_memory.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr size_t kMiB = size_t{1} << 20;

BufferHandle New(size_t bytes) { return BufferHandle(AllocateHere(bytes)); }

std::string NewPath(const char* name) {
  const std::string path = testing::TempDir() + "/workspace_location_" + name;
  unlink(path.c_str());
  return path;
}

WorkspaceConfig Mapped(const std::string& path, size_t initial_size) {
  WorkspaceConfig config = WorkspaceConfig::MappedFile(path);
  config.initial_size = initial_size;
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

DeviceMemory Ledger() { return MemoryTracker::Global().Snapshot()[Host()]; }

int64_t MinorFaults() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

// ---- mapped files ---------------------------------------------------------------------------

TEST(WorkspaceMapped, EachCycleFindsWhatTheLastOneWrote) {
  const std::string path = NewPath("cycles");
  for (int opened = 0; opened < 3; ++opened) {
    Workspace workspace("w", Mapped(path, 8192));
    for (int cycle = 0; cycle < 3; ++cycle) {
      WorkspaceScope scope(workspace);
      BufferHandle first = New(100), counter = New(sizeof(int));
      int value;
      std::memcpy(&value, counter->data, sizeof value);
      EXPECT_EQ(value, 3 * opened + cycle);
      ++value;
      std::memcpy(counter->data, &value, sizeof value);
    }
  }
}

TEST(WorkspaceMapped, ACrashKeepsANamedFileAndLeavesNoOther) {
  const std::string path = NewPath("crash");
  const pid_t child = fork();
  if (child == 0) {
    Workspace workspace("w", Mapped(path, 8192));
    WorkspaceScope scope(workspace);
    std::memset(New(8192)->data, 7, 8192);
    _exit(0);  // nothing is destroyed
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_EQ(status, 0);
  Workspace workspace("w", Mapped(path, 0));
  WorkspaceScope scope(workspace);
  EXPECT_EQ(New(8192)->data[8191], std::byte{7});
}

TEST(WorkspaceMapped, EveryReasonAgainstACombinationIsNamed) {
  WorkspaceConfig config = Mapped(NewPath("reasons"), 4096);
  config.policy_learning = LearningPolicy::kOptimized;
  config.policy_reset = ResetPolicy::kEndOfBufferReached;
  config.policy_allocation = AllocationPolicy::kAlways;
  config.debug_mode = DebugMode::kGuard;
  EXPECT_THAT(MessageOf([&] { Workspace("w", config); }),
              AllOf(HasSubstr("kMmap needs policy_learning kNone"),
                    HasSubstr("kMmap needs policy_reset kBlockLeft"),
                    HasSubstr("kAlways serves every request outside of the file"),
                    HasSubstr("whose contents would not be seen")));
  EXPECT_THAT(MessageOf([] { Workspace("w", Mapped("", 0)); }),
              HasSubstr("kMmap without temp_file_path needs an initial_size"));
  const Device device{DeviceType::kCuda, 0};
  config = Mapped("x", 4096);
  EXPECT_THAT(MessageOf([&] { config.Validate("w", device); }),
              HasSubstr("kMmap is host memory: on cuda:0 it needs policy_mirroring kHostOnly"));
  config.policy_mirroring = MirroringPolicy::kHostOnly;
  EXPECT_TRUE(config.Reasons(device).empty());
  // A temporary file has no contents to be missed, so it may be debugged.
  config = Mapped("", 4096);
  config.debug_mode = DebugMode::kGuard;
  EXPECT_TRUE(config.Reasons().empty());
}

TEST(WorkspaceMapped, IsOwnedMemoryInTheLedger) {
  const DeviceMemory before = Ledger();
  {
    Workspace workspace("w", Mapped("", kMiB));
    const DeviceMemory mapped = Ledger();
    EXPECT_GE(mapped[MemoryKind::kUnreferenced].current_bytes -
                  before[MemoryKind::kUnreferenced].current_bytes,
              static_cast<int64_t>(kMiB));
    WorkspaceScope scope(workspace);
    BufferHandle a = New(4096);
    EXPECT_EQ(Ledger()[MemoryKind::kAllocated].current_bytes -
                  before[MemoryKind::kAllocated].current_bytes,
              4096);
    EXPECT_EQ(Ledger()[MemoryKind::kExternal].current_bytes,
              before[MemoryKind::kExternal].current_bytes);
  }
  EXPECT_EQ(Ledger().total.current_bytes, before.total.current_bytes);
}

TEST(WorkspaceMapped, TruncationIsAnErrorOfTheNextCycleAndDestroyHeals) {
  const std::string path = NewPath("truncated");
  Workspace workspace("w", Mapped(path, 2 * kMiB));
  { WorkspaceScope scope(workspace); }
  ASSERT_EQ(truncate(path.c_str(), 5), 0);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(MessageOf([&] { WorkspaceScope scope(workspace); }),
                HasSubstr("was truncated to 5 bytes"));
    EXPECT_FALSE(workspace.is_open());
    EXPECT_EQ(CurrentPlace(), nullptr);
  }
  workspace.Destroy();
  WorkspaceScope scope(workspace);
  std::memset(New(2 * kMiB)->data, 1, 2 * kMiB);
  EXPECT_EQ(workspace.spilled_count(), 0);
}

TEST(WorkspaceMapped, OneFileServesOneWorkspaceAtATime) {
  const std::string path = NewPath("shared");
  Workspace first("a", Mapped(path, 4096));
  EXPECT_THAT(MessageOf([&] { Workspace("b", Mapped(path, 4096)); }),
              AllOf(HasSubstr("workspace [b]"), HasSubstr("mapped by another workspace")));
  first.Destroy();
  {
    Workspace second("b", Mapped(path, 4096));
    EXPECT_THAT(MessageOf([&] { WorkspaceScope scope(first); }), HasSubstr("mapped by another"));
    EXPECT_FALSE(first.is_open());
  }
  WorkspaceScope scope(first);
  EXPECT_EQ(first.size(), 4096);
}

TEST(WorkspaceMapped, FailAndMaximumHold) {
  const std::string path = NewPath("fail");
  { Workspace("w", Mapped(path, 64 * 1024)); }
  WorkspaceConfig config = Mapped(path, 0);
  config.policy_spill = SpillPolicy::kFail;
  config.max_size = 16 * 1024;
  Workspace workspace("w", config);
  EXPECT_EQ(workspace.size(), 16 * 1024);
  WorkspaceScope scope(workspace);
  BufferHandle all = New(16 * 1024);
  EXPECT_THROW(New(1), OutOfMemoryError);
}

// ---- addresses and first touch --------------------------------------------------------------

TEST(WorkspacePages, GrowthBetweenCyclesKeepsTheBase) {
  for (LearningPolicy learning : {LearningPolicy::kFirstLoop, LearningPolicy::kOptimized}) {
    WorkspaceConfig config = WorkspaceConfig::Nd4j();
    config.policy_learning = learning;
    config.policy_spill = SpillPolicy::kReallocate;
    config.policy_allocation = AllocationPolicy::kStrict;
    Workspace workspace("w", config);
    const std::byte* base = nullptr;
    for (size_t bytes = 1000; bytes < 200 * kMiB; bytes *= 5) {
      for (int cycle = 0; cycle < 4; ++cycle) {
        WorkspaceScope scope(workspace);
        BufferHandle a = New(bytes);
        if (cycle < 3) continue;
        EXPECT_EQ(workspace.spilled_count(), 0) << bytes;
        if (base == nullptr) base = a->data;
        EXPECT_EQ(a->data, base) << bytes;
      }
    }
    EXPECT_EQ(workspace.stats().relocations, 0);
  }
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // shadow memory faults
// A generous initial_size costs what is used of it.
TEST(WorkspacePages, AnInitialSizeIsTouchedAsItIsUsed) {
  for (LearningPolicy learning :
       {LearningPolicy::kNone, LearningPolicy::kFirstLoop, LearningPolicy::kOptimized}) {
    WorkspaceConfig config = WorkspaceConfig::Nd4j();
    config.initial_size = size_t{4} << 30;
    config.policy_learning = learning;
    rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    Workspace workspace("w", config);
    getrusage(RUSAGE_SELF, &after);
    // 64 MiB are 32 huge pages or 16384 small ones; 4 GiB would be 64 times as many.
    EXPECT_LT(after.ru_minflt - before.ru_minflt, 20000);
    auto cycle = [&] {
      WorkspaceScope scope(workspace);
      BufferHandle large = New(100 * kMiB);
      std::memset(large->data, 1, 100 * kMiB);
      BufferHandle small = New(5 * kMiB);
      std::memset(small->data, 2, 5 * kMiB);
    };
    cycle();
    cycle();
    const int64_t faults = MinorFaults();
    for (int i = 0; i < 5; ++i) cycle();
    EXPECT_EQ(MinorFaults() - faults, 0);
    EXPECT_EQ(workspace.spilled_count(), 0);
  }
}

// The first cycle uses little of what it asked for; what it asked for is touched at its end.
TEST(WorkspacePages, WhatACycleAskedForIsTouchedAtItsEnd) {
  WorkspaceConfig config = WorkspaceConfig::Nd4j();
  config.initial_size = size_t{1} << 30;
  Workspace workspace("w", config);
  {
    WorkspaceScope scope(workspace);
    New(150 * kMiB);
  }
  WorkspaceScope scope(workspace);
  BufferHandle all = New(150 * kMiB);
  const int64_t faults = MinorFaults();
  std::memset(all->data, 1, 150 * kMiB);
  EXPECT_EQ(MinorFaults() - faults, 0);
}

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// A table that stays nearly empty may be larger than what is free: what nobody touched is not touched ahead.
TEST(WorkspacePages, WhatIsHardlyTouchedIsNotTouchedAhead) {
  for (const bool first_loop : {false, true}) {
    const int64_t before = ResidentBytes();
    Workspace workspace("sparse", first_loop ? WorkspaceConfig::Nd4j() : WorkspaceConfig());
    for (int cycle = 0; cycle < 4; ++cycle) {
      WorkspaceScope scope(workspace);
      BufferHandle table = New(4096 * kMiB);
      table->data[0] = table->data[table->bytes - 1] = std::byte{1};
    }
    EXPECT_GE(workspace.size(), 4096 * kMiB);
    EXPECT_EQ(workspace.spilled_count(), 0u);
    EXPECT_LT(ResidentBytes() - before, 2048 * static_cast<int64_t>(kMiB));
    EXPECT_THAT(workspace.PlanReport(), HasSubstr("pages are touched when they are first used"));
  }
}

// However many there are, each a little larger: what is touched ahead for one does not let more be for the next.
TEST(WorkspacePages, TablesThatComeOneAfterAnotherAreNotTouchedFurtherAndFurther) {
  const int64_t before = ResidentBytes();
  Workspace workspace("outliers");
  int64_t most = 0;
  for (size_t round = 0; round < 12; ++round) {
    for (int cycle = 0; cycle < 3; ++cycle) {
      WorkspaceScope scope(workspace);
      BufferHandle table = New(cycle == 0 ? 4096 * kMiB + round * 4096 : 1000);
      table->data[0] = std::byte{1};
    }
    most = std::max(most, ResidentBytes() - before);
  }
  EXPECT_LT(most, 1024 * static_cast<int64_t>(kMiB));
}

// As of malloc: more than the machine can ever have is refused, and nobody else is made to give back for it.
TEST(WorkspacePages, MoreThanTheMachineHasIsRefusedAsByMalloc) {
  const size_t bytes = size_t{1} << 40;
  if (void* const block = std::malloc(bytes)) {
    std::free(block);
    GTEST_SKIP() << "the system grants everything (vm.overcommit_memory)";
  }
  Workspace other("other");
  for (int cycle = 0; cycle < 3; ++cycle) {
    WorkspaceScope scope(other);
    New(kMiB);
  }
  const size_t held = other.size();
  Workspace workspace("huge");
  for (int cycle = 0; cycle < 3; ++cycle) {
    WorkspaceScope scope(workspace);
    EXPECT_THROW(New(bytes), OutOfMemoryError);
    New(1000);
  }
  {
    ScopeOutOfWorkspaces out;
    EXPECT_THROW(New(bytes), OutOfMemoryError);
  }
  EXPECT_LT(workspace.size(), kMiB);
  EXPECT_EQ(other.size(), held);
}

// Each of them is granted, and all of them in one range may not be: then they go on as they came.
TEST(WorkspacePages, TablesThatTogetherAreMoreThanTheMachineHas) {
  const auto table = static_cast<size_t>(MachineMemoryAndSwapBytes()) / 8 * 5;
  Workspace workspace("tables");
  for (int cycle = 0; cycle < 6; ++cycle) {
    WorkspaceScope scope(workspace);
    BufferHandle one = New(table), other = New(table);
    one->data[0] = other->data[table - 1] = std::byte{1};
  }
}

TEST(WorkspacePages, WhatWasTouchedIsTouchedAhead) {
  Workspace workspace("dense");
  const auto cycle = [&] {
    WorkspaceScope scope(workspace);
    BufferHandle table = New(700 * kMiB);
    std::memset(table->data, 1, table->bytes);
  };
  cycle();
  const int64_t faults = MinorFaults();
  cycle();
  EXPECT_LT(MinorFaults() - faults, 10);
  EXPECT_EQ(workspace.PlanReport(), "");
}

TEST(WorkspacePages, WithoutPrefaultNothingIsTouched) {
  WorkspaceConfig config = WorkspaceConfig::Nd4j();
  config.prefault = false;
  config.huge_pages = false;
  config.initial_size = 32 * kMiB;
  const int64_t before = MinorFaults();
  Workspace workspace("w", config);
  {
    WorkspaceScope scope(workspace);
    New(32 * kMiB);
  }
  EXPECT_LT(MinorFaults() - before, 1000);
}
#endif

}  // namespace
}  // namespace tidepool
