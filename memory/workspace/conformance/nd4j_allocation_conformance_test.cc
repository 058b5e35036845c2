// Groups A (bump allocation and rounding), D (spilling and failing) and the native cases of I.
#include <cstring>
#include <functional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/conformance/nd4j_cases.h"

namespace tidepool::nd4j {
namespace {

using ::testing::HasSubstr;

// ---- A ----

TEST(Nd4jBump, Nd4jCase001_FiveDoublesTake48Bytes) {
  Workspace workspace("w", Basic());
  WorkspaceScope scope(workspace);
  BufferHandle a = D(5);
  EXPECT_EQ(workspace.offset(), 48);
  EXPECT_EQ(a->bytes, 40);
}

TEST(Nd4jBump, Nd4jCase002_ADuplicateFollowsIt) {
  Workspace workspace("w", Basic());
  WorkspaceScope scope(workspace);
  BufferHandle a = D(5), b = D(5);
  EXPECT_EQ(workspace.offset(), 96);
  EXPECT_EQ(b->data, a->data + 48);
}

TEST(Nd4jBump, Nd4jCase003_AThousandDoublesAndTheirDuplicate) {
  Workspace workspace("w", Basic());
  WorkspaceScope scope(workspace);
  BufferHandle a = D(1000);
  EXPECT_EQ(workspace.offset(), 8000);
  double* values = reinterpret_cast<double*>(a->data);
  double sum = 0;
  for (int i = 0; i < 1000; ++i) sum += values[i] = i;
  BufferHandle b = D(1000);
  EXPECT_EQ(workspace.offset(), 16000);
  std::memcpy(b->data, a->data, 8000);
  double sum_of_copy = 0;
  for (int i = 0; i < 1000; ++i) sum_of_copy += reinterpret_cast<double*>(b->data)[i];
  EXPECT_EQ(sum_of_copy, sum);
}

TEST(Nd4jBump, Nd4jCase004_RoundingTable) {
  Workspace workspace("w", Basic());
  const size_t table[][2] = {{1, 16},  {8, 16},  {16, 16},   {17, 32},   {40, 48},  {41, 48},
                             {80, 80}, {88, 96}, {100, 112}, {400, 400}, {404, 416}};
  for (const auto& [bytes, cursor] : table) {
    WorkspaceScope scope(workspace);
    Bytes(bytes);
    EXPECT_EQ(workspace.offset(), cursor) << bytes;
  }
}

TEST(Nd4jBump, Nd4jCase005_MixedWidthsAreAligned) {
  Workspace workspace("w", Basic());
  WorkspaceScope scope(workspace);
  for (size_t count = 1; count < 200; ++count) {
    const size_t width = size_t{1} << count % 4;
    BufferHandle a = Bytes(width * count);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a->data) % 16, 0);
    std::memset(a->data, 1, a->bytes);
  }
}

// ---- D ----

TEST(Nd4jSpill, Nd4jCase037_FailThrowsAndTheCursorStays) {
  WorkspaceConfig config = Strict(LearningPolicy::kNone, SpillPolicy::kFail);
  config.initial_size = kMiB;
  Workspace workspace("w", config);
  WorkspaceScope scope(workspace);
  BufferHandle a = D(5);
  EXPECT_EQ(workspace.offset(), 48);
  EXPECT_THROW(D(10000000), OutOfMemoryError);
  EXPECT_EQ(workspace.offset(), 48);
  // ND4J raises the spill counter before it throws; here a refused request changes nothing.
  EXPECT_EQ(workspace.spilled_bytes(), 0);
  BufferHandle b = D(5);
  EXPECT_EQ(workspace.offset(), 96);
}

TEST(Nd4jSpill, Nd4jCase038_ALearningCycleSpillsAndGivesBack) {
  Workspace workspace("w", First());
  WorkspaceScope scope(workspace);
  std::vector<BufferHandle> held;
  for (size_t count = 1; count <= 5; ++count) held.push_back(D(count));
  EXPECT_EQ(workspace.spilled_count(), 5);
  EXPECT_EQ(workspace.spilled_bytes(), 16 + 16 + 32 + 32 + 48);
  scope.Close();
  EXPECT_EQ(workspace.spilled_count(), 0);
  EXPECT_EQ(workspace.spilled_bytes(), 0);
}

TEST(Nd4jSpill, Nd4jCase039_ALargerCycleSpillsWithRightValues) {
  Workspace workspace("w", First());
  Cycle(workspace, {800});
  WorkspaceScope scope(workspace);
  BufferHandle a = D(100), b = D(500);
  EXPECT_EQ(workspace.spilled_count(), 1);
  std::memset(a->data, 1, 800);
  std::memset(b->data, 2, 4000);
  EXPECT_EQ(static_cast<int>(a->data[799]), 1);
  EXPECT_EQ(static_cast<int>(b->data[3999]), 2);
  scope.Close();
  EXPECT_EQ(workspace.spilled_count(), 0);
}

// Memory from outside a workspace while it is open is asked for with ScopeOutOfWorkspaces, the
// counterpart of ND4J's switch.
TEST(Nd4jSpill, Nd4jCase041_WhatIsMadeOutsideIsNotLearned) {
  Workspace workspace("w", First());
  {
    WorkspaceScope scope(workspace);
    BufferHandle a = D(100);
    {
      ScopeOutOfWorkspaces out;
      EXPECT_FALSE(D(100)->attached);
    }
    BufferHandle b = D(100);
  }
  EXPECT_EQ(workspace.size(), 1600);
  WorkspaceScope scope(workspace);
  BufferHandle a = D(100);
  EXPECT_EQ(workspace.offset(), 800);
  {
    ScopeOutOfWorkspaces out;
    D(100);
  }
  BufferHandle b = D(100);
  EXPECT_EQ(workspace.offset(), 1600);
}

TEST(Nd4jSpill, Nd4jCase043_SpillEverythingSpillsAndNeverLearns) {
  WorkspaceConfig config = Basic();
  config.debug_mode = DebugMode::kSpillEverything;
  Workspace sized("sized", config);
  {
    WorkspaceScope scope(sized);
    BufferHandle a = D(100);
    EXPECT_TRUE(a->attached);
    EXPECT_EQ(sized.offset(), 0);
    EXPECT_EQ(sized.spilled_bytes(), 800);
  }
  config.initial_size = 0;
  Workspace unsized("unsized", config);
  Cycle(unsized, {800});
  WorkspaceScope scope(unsized);
  EXPECT_EQ(unsized.size(), 0);
  EXPECT_EQ(unsized.spilled_bytes(), 0);
}

TEST(Nd4jSpill, Nd4jCase044_BypassEverythingMakesHeapArrays) {
  WorkspaceConfig config = Basic();
  config.debug_mode = DebugMode::kBypassEverything;
  Workspace workspace("w", config);
  BufferHandle a;
  {
    WorkspaceScope scope(workspace);
    a = D(100);
    EXPECT_FALSE(a->attached);
  }
  EXPECT_TRUE(a->IsAlive());
}

// ---- I, the native workspace ----

TEST(Nd4jNative, Nd4jCase103_AnInitialSizeIsTakenAtOnce) {
  WorkspaceConfig config = Strict(LearningPolicy::kNone);
  config.initial_size = 1024;
  Workspace workspace("w", config);
  EXPECT_EQ(workspace.size(), 1024);
  EXPECT_EQ(workspace.offset(), 0);
}

// The native workspace grows to the largest cycle: kReallocate.
TEST(Nd4jNative, Nd4jCase104_ItGrowsToItsLargestCycle) {
  WorkspaceConfig config = Strict(LearningPolicy::kFirstLoop, SpillPolicy::kReallocate);
  config.initial_size = 128;
  Workspace workspace("w", config);
  {
    WorkspaceScope scope(workspace);
    std::vector<BufferHandle> held;
    for (int i = 0; i < 10; ++i) held.push_back(Bytes(128));
    EXPECT_EQ(workspace.offset(), 128);
    EXPECT_EQ(workspace.spilled_bytes(), 1152);
  }
  WorkspaceScope scope(workspace);
  EXPECT_EQ(workspace.size(), 1280);
  EXPECT_EQ(workspace.spilled_bytes(), 0);
}

TEST(Nd4jNative, Nd4jCase105_CyclesThatFitKeepTheSize) {
  WorkspaceConfig config = Strict(LearningPolicy::kFirstLoop, SpillPolicy::kReallocate);
  config.initial_size = 65536;
  Workspace workspace("w", config);
  for (int i = 0; i < 5; ++i) {
    WorkspaceScope scope(workspace);
    EXPECT_EQ(workspace.offset(), 0);
    Bytes(1000 * (i + 1));
    EXPECT_EQ(workspace.size(), 65536);
  }
}

TEST(Nd4jNative, Nd4jCase108_OnlyAnEnteredWorkspaceGetsTheArrays) {
  Workspace workspace("w", Basic());
  BufferHandle inside;
  {
    WorkspaceScope scope(workspace);
    inside = F(100);
    EXPECT_TRUE(inside->attached);
    EXPECT_EQ(inside->owner->WorkspaceId(), "w");
  }
  EXPECT_FALSE(F(100)->attached);
}

TEST(Nd4jNative, Nd4jCase109_SpillsAreGoneInTheNextCycle) {
  WorkspaceConfig config = Strict(LearningPolicy::kNone);
  config.initial_size = 128;
  Workspace workspace("w", config);
  BufferHandle spilled;
  {
    WorkspaceScope scope(workspace);
    spilled = Bytes(4096);
    EXPECT_EQ(workspace.spilled_count(), 1);
  }
  WorkspaceScope scope(workspace);
  EXPECT_EQ(workspace.spilled_count(), 0);
  EXPECT_FALSE(spilled->IsAlive());
}

// ND4J refuses 0 bytes. Here they are a request like any other: an address of its own, one
// alignment of the cursor. Empty arrays never ask (case 7).
TEST(Nd4jNative, Nd4jCase110_ZeroBytesAreServed) {
  Workspace workspace("w", Basic());
  WorkspaceScope scope(workspace);
  BufferHandle a = Bytes(0), b = Bytes(0);
  EXPECT_EQ(a->bytes, 0);
  EXPECT_NE(a->data, b->data);
  EXPECT_EQ(workspace.offset(), 32);
  try {
    Workspace device("d", Basic(), Device{DeviceType::kCuda, 0});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), HasSubstr("no memory provider is linked"));
  }
}

}  // namespace
}  // namespace tidepool::nd4j
