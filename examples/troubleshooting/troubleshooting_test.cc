#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_tracing.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/cycle_detector.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/elementwise.h"

namespace tidepool {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

// [grows]
TEST(Troubleshooting, WhatGrows) {
  std::vector<NDArray> history;
  const MemorySnapshot before = MemoryTracker::Global().Snapshot();
  {
    MemoryOwnerScope owner("trainer");
    MemoryTagScope tag("history");
    for (int step = 0; step < 10; ++step) history.push_back(Zeros({1000}));
  }
  const MemoryDifference growth = Difference(before, MemoryTracker::Global().Snapshot());
  EXPECT_THAT(growth.ToString(), ContainsRegex("trainer #history +allocated +\\+40000"));
}
// [grows]

// [misses]
void Step(Workspace& workspace, int rows) {
  WorkspaceScope scope(workspace);
  Relu(Zeros({rows, 64}) + 1.0);
}

TEST(Troubleshooting, OnePlanForTwoShapes) {
  Workspace one("step", WorkspaceConfig::Training()),
      many("step");  // kOptimized; kTraining, the default
  for (Workspace* workspace : {&one, &many}) {
    for (int i = 0; i < 100; ++i) Step(*workspace, i % 2 == 0 ? 16 : 32);
  }
  EXPECT_GT(one.stats().misses, 50);  // most cycles leave the one plan there is
  EXPECT_LT(many.stats().misses, 5);  // only while it learned
  EXPECT_EQ(many.stats().plans_kept, 2);
}
// [misses]

// [leaks]
TEST(Troubleshooting, WhoLeaks) {
  std::vector<std::string> reports;
  SetLeakSink([&](const LeakReport& report) { reports.push_back(report.ToString()); });
  MemoryTracing::Enable();
  Workspace workspace("step");
  NDArray kept;
  {
    WorkspaceScope scope(workspace);
    MemoryTagScope tag("loss");
    kept = Full({2}, 0.5);
  }
  MemoryTracing::Disable();
  SetLeakSink(nullptr);
  ASSERT_EQ(reports.size(), 1);
  EXPECT_THAT(reports[0],
              HasSubstr("#loss"));  // whose it is, and below it the functions that made it
}
// [leaks]

// [out-of-memory]
TEST(Troubleshooting, WhatWouldHaveBeenEnough) {
  MemoryBudget::Global().SetOwnerLimit(MemoryOwner::Process().Child("loader"), Host(), 1 << 20);
  MemoryOwnerScope owner("loader");
  const NDArray images = Zeros({200000});
  try {
    Zeros({200000});
    FAIL() << "beyond the limit";
  } catch (const OutOfMemoryError& error) {
    EXPECT_THAT(error.message(), HasSubstr("more would have to go"));
    EXPECT_THAT(error.report(), HasSubstr("loader"));  // who holds what, as a table
  }
}
// [out-of-memory]

// [first-step]
TEST(Troubleshooting, AFirstStepThatKnows) {
  const std::string path = testing::TempDir() + "/step.plans";
  {
    Workspace workspace("step");
    for (int i = 0; i < 3; ++i) Step(workspace, 16);
    workspace.SavePlans(path);
  }
  Workspace workspace("step");  // of the next run of the program
  workspace.LoadPlans(path);
  Step(workspace, 16);
  EXPECT_EQ(workspace.stats().spills, 0);  // served from the pages, by the plan
}
// [first-step]

}  // namespace
}  // namespace tidepool
