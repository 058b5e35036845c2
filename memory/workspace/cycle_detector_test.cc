#include "tidepool/memory/workspace/cycle_detector.h"

#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_charge.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_tracing.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_registry.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

BufferHandle New(size_t bytes) { return BufferHandle(AllocateHere(bytes)); }

class Detector : public ::testing::Test {
 protected:
  Detector() {
    SetLeakSink([this](const LeakReport& report) { leaks_.push_back(report); });
    SetCycleFindingSink([this](const CycleFinding& finding) { findings_.push_back(finding); });
  }
  ~Detector() override {
    SetLeakSink(nullptr);
    SetCycleFindingSink(nullptr);
    MemoryTracing::Disable();
  }
  std::vector<CycleFindingKind> Kinds() const {
    std::vector<CycleFindingKind> kinds;
    for (const CycleFinding& finding : findings_) kinds.push_back(finding.kind);
    return kinds;
  }

  std::vector<LeakReport> leaks_;
  std::vector<CycleFinding> findings_;
};

TEST_F(Detector, ACycleReportsWhatOutlivedIt) {
  const int64_t before = MemoryTracker::Global().Snapshot().leaked_arrays;
  Workspace workspace("step", WorkspaceConfig::Training());
  std::vector<BufferHandle> kept;
  for (int cycle = 0; cycle < 3; ++cycle) {
    WorkspaceScope scope(workspace);
    BufferHandle dies = New(4096);
    if (cycle == 1) {
      for (int i = 0; i < 10; ++i) kept.push_back(New(100));
    }
  }
  ASSERT_EQ(leaks_.size(), 1u);
  EXPECT_EQ(leaks_[0].workspace, "step");
  EXPECT_EQ(leaks_[0].generation, 2u);
  EXPECT_EQ(leaks_[0].count, 10);
  EXPECT_EQ(leaks_[0].bytes, 1280);
  ASSERT_EQ(leaks_[0].arrays.size(), static_cast<size_t>(LeakReport::kMostArrays));
  EXPECT_EQ(leaks_[0].arrays[0].request, 1u);
  EXPECT_EQ(leaks_[0].arrays[0].bytes, 100u);
  EXPECT_THAT(leaks_[0].arrays[0].site, IsEmpty());
  EXPECT_THAT(leaks_[0].ToString(), HasSubstr("10 arrays of 1280 bytes outlived the cycle"));
  EXPECT_THAT(Kinds(), ElementsAre(CycleFindingKind::kLeakedArrays));
  EXPECT_EQ(workspace.stats().findings, 1u);
  EXPECT_EQ(MemoryTracker::Global().Snapshot().leaked_arrays - before, 10);
}

TEST_F(Detector, TracingNamesOwnerTagAndSite) {
  MemoryTracing::Enable();
  Workspace workspace("traced", WorkspaceConfig::Training());
  std::optional<BufferHandle> kept;
  for (int cycle = 0; cycle < 4; ++cycle) {
    WorkspaceScope scope(workspace);
    MemoryOwnerScope owner("net");
    MemoryTagScope tag("layer conv2");
    BufferHandle dies = New(64);
    if (cycle == 3) kept = New(100);  // a planned cycle, by then
  }
  ASSERT_EQ(leaks_.size(), 1u);
  EXPECT_EQ(leaks_[0].arrays[0].owner, "net #layer conv2");
  EXPECT_THAT(leaks_[0].arrays[0].site, HasSubstr(" < "));
  EXPECT_THAT(leaks_[0].ToString(), HasSubstr("made for net #layer conv2, at "));
  EXPECT_THAT(findings_[0].text, HasSubstr("the first was made at"));
}

TEST_F(Detector, WithoutItLeaksAreCountedAndGivenToTheSinkOnly) {
  WorkspaceConfig config = WorkspaceConfig::Training();
  config.use_cycle_detector = false;
  Workspace workspace("quiet", config);
  BufferHandle kept;
  {
    WorkspaceScope scope(workspace);
    kept = New(8);
  }
  EXPECT_EQ(leaks_.size(), 1u);
  EXPECT_THAT(Kinds(), IsEmpty());
  EXPECT_EQ(workspace.stats().leaked_arrays, 1u);
  EXPECT_EQ(workspace.stats().findings, 0u);
}

TEST_F(Detector, TheFirstFindingOfAWorkspaceIsALineOnStderr) {
  SetLeakSink(nullptr);
  SetCycleFindingSink(nullptr);
  Workspace workspace("loud", WorkspaceConfig::Training());
  std::vector<BufferHandle> kept;
  testing::internal::CaptureStderr();
  for (int cycle = 0; cycle < 3; ++cycle) {
    WorkspaceScope scope(workspace);
    kept.push_back(New(8));
  }
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  EXPECT_THAT(text, HasSubstr("workspace [loud], generation 1: 1 array of 64 bytes outlived"));
}

TEST_F(Detector, AFailedCycleIsNotReported) {
  Workspace workspace("fails", WorkspaceConfig::Training());
  BufferHandle kept;
  try {
    WorkspaceScope scope(workspace);
    kept = New(8);
    throw std::runtime_error("x");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(workspace.stats().leaked_arrays, 1u);
  EXPECT_THAT(leaks_, IsEmpty());
}

TEST_F(Detector, EnteringThroughAnotherWorkspaceIsFoundAndBorrowingIsNot) {
  Workspace outer("outer", WorkspaceConfig::Training());
  Workspace inner("inner", WorkspaceConfig::Training());
  {
    WorkspaceScope a(outer);
    WorkspaceScope again(outer);
    WorkspaceScope b(inner);
    BorrowScope borrowed(outer);
  }
  EXPECT_THAT(Kinds(), IsEmpty());
  WorkspaceScope a(outer);
  WorkspaceScope b(inner);
  WorkspaceScope c(outer);
  ASSERT_THAT(Kinds(), ElementsAre(CycleFindingKind::kReentry));
  EXPECT_THAT(findings_[0].text, HasSubstr("[outer], generation 2: entered again from inside the "
                                           "scope of workspace [inner]"));
}

TEST_F(Detector, GrowthInEachOfTheLastCyclesIsFoundAndLessIsNot) {
  WorkspaceConfig config = WorkspaceConfig::Nd4j();
  config.policy_learning = LearningPolicy::kNone;  // everything spills
  Workspace workspace("grows", config);
  auto cycle = [&](size_t bytes) {
    WorkspaceScope scope(workspace);
    New(bytes);
  };
  for (int i = 1; i < kGrowingCycles; ++i) cycle(64 * i);
  cycle(64);  // the streak ends
  for (int i = 2; i <= kGrowingCycles; ++i) cycle(64 * i);
  EXPECT_THAT(Kinds(), IsEmpty());
  cycle(64 * (kGrowingCycles + 1));
  ASSERT_THAT(Kinds(), ElementsAre(CycleFindingKind::kGrowingSpills));
  EXPECT_THAT(findings_[0].text,
              HasSubstr("spilled bytes have grown in each of the last 8 cycles"));
}

TEST_F(Detector, GrowingExternalMemoryIsFound) {
  Workspace workspace("w", WorkspaceConfig::Training());
  std::vector<MemoryCharge> imported;
  for (int i = 0; i <= kGrowingCycles; ++i) {
    WorkspaceScope scope(workspace);
    imported.push_back(MemoryCharge::Imported(10));
    New(64);
  }
  EXPECT_THAT(Kinds(), ElementsAre(CycleFindingKind::kGrowingExternal));
}

TEST_F(Detector, AWorkspacePerCycleIsFound) {
  WorkspaceRegistry& registry = WorkspaceRegistry::ForCurrentThread();
  Workspace workspace("main", WorkspaceConfig::Training());
  for (int i = 0; i <= kGrowingCycles; ++i) {
    WorkspaceScope scope(workspace);
    registry.Get("extra " + std::to_string(i), WorkspaceConfig::Training());
  }
  EXPECT_THAT(Kinds(), ElementsAre(CycleFindingKind::kGrowingWorkspaces));
  EXPECT_THAT(registry.DestroyAll(), IsEmpty());
}

TEST_F(Detector, DestroyedWhileOpenIsFound) {
  auto workspace = std::make_unique<Workspace>("open", WorkspaceConfig::Training());
  WorkspaceScope scope(*workspace);
  workspace.reset();
  EXPECT_THAT(Kinds(), ElementsAre(CycleFindingKind::kNeverLeft));
}

TEST_F(Detector, GuardModeThrowsTheFirstFindingAtTheNextEnter) {
  WorkspaceConfig config = WorkspaceConfig::Training();
  config.debug_mode = DebugMode::kGuard;
  Workspace workspace("guarded", config);
  BufferHandle kept;
  {
    WorkspaceScope scope(workspace);
    kept = New(8);
  }
  try {
    WorkspaceScope scope(workspace);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(error.message(), HasSubstr("[guarded], generation 1: 1 array"));
  }
  EXPECT_FALSE(workspace.is_open());
  WorkspaceScope scope(workspace);  // thrown once
  New(8);
}

TEST_F(Detector, WhatASinkThrowsIsDroppedAndItMayNotEnterTheWorkspace) {
  Workspace workspace("sink", WorkspaceConfig::Training());
  int calls = 0;
  std::string refused;
  SetLeakSink([&](const LeakReport&) {
    ++calls;
    EXPECT_GE(workspace.stats().cycles, 1u);
    New(16);  // goes to the heap
    try {
      WorkspaceScope scope(workspace);
    } catch (const Error& error) {
      refused = error.message();
      throw;
    }
  });
  for (int cycle = 0; cycle < 2; ++cycle) {
    BufferHandle kept;
    WorkspaceScope scope(workspace);
    kept = New(8);
    // `scope` ends first: declared last.
  }
  EXPECT_EQ(calls, 2);
  EXPECT_THAT(refused, HasSubstr("reports"));
}

// Only the thread that is told of the findings is told that a sink may not enter.
TEST(DetectorThreads, AThreadThatEntersWhileAnotherReportsIsToldThatItIsOpenElsewhere) {
  Workspace workspace("busy", WorkspaceConfig::Training());
  std::string elsewhere, here;
  const auto enter = [&](std::string* message) {
    try {
      WorkspaceScope scope(workspace);
    } catch (const Error& error) {
      *message = error.message();
    }
  };
  SetLeakSink([&](const LeakReport&) {
    std::thread(enter, &elsewhere).join();
    enter(&here);
  });
  BufferHandle outlives;
  {
    WorkspaceScope scope(workspace);
    outlives = New(64);
  }
  SetLeakSink(nullptr);
  EXPECT_THAT(elsewhere, HasSubstr("is open on another thread"));
  EXPECT_THAT(here, HasSubstr("a sink may not enter it"));
}

}  // namespace
}  // namespace tidepool
