#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/testing/matchers.h"
#include "tidepool/memory/testing/ownership_matchers.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/manager/nd_manager.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/reduction.h"

namespace {

using tidepool::AllocatesNothing;
using tidepool::LeaksNothing;
using tidepool::PeakAtMost;
using tidepool::StaysInPlan;

// The code under test: one step of some work.
class Smoother {
 public:
  void Step(double value) {
    tidepool::WorkspaceScope scope(workspace_);
    tidepool::NDArray x = tidepool::Full({1024, 256}, value);
    tidepool::NDArray y = tidepool::Relu(x * 2.0);
    total_ += tidepool::Sum(y, 0);
  }
  // A mistake: the array lives in the workspace, whose cycle ends here.
  tidepool::NDArray StepAndReturn() {
    tidepool::WorkspaceScope scope(workspace_);
    return tidepool::Ones({16});
  }
  const tidepool::Workspace& workspace() const { return workspace_; }

 private:
  tidepool::Workspace workspace_{"smoother", tidepool::WorkspaceConfig::Training()};
  tidepool::NDArray total_ =
      tidepool::Zeros({256}, tidepool::DType::kFloat32, tidepool::Place::Heap());
};

// [steady]
TEST(Smoother, ASteadyStepTakesNoMemory) {
  Smoother smoother;
  for (int i = 0; i < 2; ++i) smoother.Step(i);  // learns
  EXPECT_THAT([&] { smoother.Step(2); }, AllocatesNothing());
  EXPECT_THAT([&] { smoother.Step(3); }, StaysInPlan(smoother.workspace()));
}
// [steady]

// [peak]
TEST(Smoother, AStepUsesThreeMatricesAtMost) {
  Smoother smoother;
  for (int i = 0; i < 2; ++i) smoother.Step(i);
  constexpr int64_t kMatrix = 1024 * 256 * sizeof(float);
  EXPECT_THAT([&] { smoother.Step(2); }, PeakAtMost(3 * kMatrix + 4096));
}
// [peak]

// [leaks]
TEST(Smoother, LeavesNothingBehind) {
  Smoother smoother;
  smoother.Step(0);
  EXPECT_THAT([&] { smoother.Step(1); }, LeaksNothing());
}
// [leaks]

// [manager]
TEST(Smoother, RequestsLeaveNothingWithTheModel) {
  tidepool::NDManager model = tidepool::NDManager::NewBaseManager(tidepool::Host(), "model");
  tidepool::NDArray weights = model.Ones({16});
  auto request = [&] {
    tidepool::NDManager manager = model.NewSubManager("request");
    tidepool::ManagerScope scope(manager);
    tidepool::Relu(weights * 2.0);
  };
  EXPECT_THAT(
      [&] {
        for (int i = 0; i < 100; ++i) request();
      },
      tidepool::GrowsNothingIn(model.ref()));
}
// [manager]

// [failure]
TEST(Smoother, WhatAFailureSays) {
  tidepool::NDArray kept;
  auto action = [&] {
    tidepool::MemoryOwnerScope owner("smoother");
    tidepool::MemoryTagScope tag("history");
    kept = tidepool::Zeros({1000}, tidepool::DType::kFloat32, tidepool::Place::Heap());
  };
  testing::StringMatchResultListener why;
  EXPECT_FALSE(ExplainMatchResult(AllocatesNothing(), action, &why));
  EXPECT_EQ(why.str(),
            "which asked the system 1 time for tensor memory; at most 4000 bytes more were held "
            "on the host:\n"
            "  on host, smoother #history: 1 request of 4000 bytes in all\n"
            "  still held:\n"
            "  on host, process: allocated +4000\n"
            "  on host, smoother: allocated +4000\n"
            "  on host, smoother #history: allocated +4000");
}
// [failure]

// [opposite]
TEST(Smoother, AnArrayThatIsReturnedFromItsCycleIsALeak) {
  Smoother smoother;
  tidepool::NDArray stale;
  EXPECT_THAT([&] { stale = smoother.StepAndReturn(); }, testing::Not(LeaksNothing()));
}
// [opposite]

}  // namespace
