// Scoped computations, returns of lists and budgets: what leaves a manager, and what does not.
#include <functional>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/manager/nd_list.h"
#include "tidepool/ndarray/manager/nd_manager.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/softmax.h"

namespace tidepool {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ScopedTest : public ::testing::Test {
 protected:
  ScopedTest()
      : root_(NDManager::NewRoot("test")),
        model_(root_.NewSubManager("model")),
        other_(root_.NewSubManager("other")),
        x_(model_.Full({4}, 2)),
        y_(other_.Full({4}, 3)),
        before_(root_.Snapshot()) {}
  std::string Growth() const { return ToString(Diff(before_, root_.Snapshot())); }

  NDManager root_, model_, other_;
  NDArray x_, y_;
  OwnershipSnapshot before_;
};

TEST_F(ScopedTest, InputsAreBackAndTheResultIsTheManagers) {
  NDManager inside;
  NDArray temporary;
  const NDArray z = model_.Scoped({x_, y_}, [&](NDManager& sub) {
    EXPECT_TRUE(sub.Manages(x_) && sub.Manages(y_));
    temporary = x_ + y_;
    EXPECT_TRUE(sub.Manages(temporary));
    return temporary * y_;
  });
  EXPECT_EQ(z.At<float>({0}), 15);
  EXPECT_TRUE(model_.Manages(z) && model_.Manages(x_) && other_.Manages(y_));
  EXPECT_TRUE(temporary.is_closed());
  EXPECT_EQ(Growth(), "test/model: managers 0, arrays +1, bytes +16, loans 0\n");
}

TEST_F(ScopedTest, AnInputThatIsReturnedStaysWhoseItIs) {
  const NDArray same = model_.Scoped({y_}, [&](NDManager&) { return y_; });
  EXPECT_TRUE(other_.Manages(same));
  const NDArray view = model_.Scoped({y_}, [&](NDManager&) { return y_.Reshape({2, 2}); });
  EXPECT_TRUE(other_.Manages(view));
  const NDList both = model_.Scoped({x_, y_}, [&](NDManager&) { return NDList{y_, x_, y_}; });
  EXPECT_TRUE(other_.Manages(both[0]) && model_.Manages(both[1]));
  EXPECT_EQ(Growth(), "");
}

TEST_F(ScopedTest, AListLeavesWhole) {
  NDList list = model_.Scoped({NDList{x_, y_}}, [&](NDManager&) {
    NDList result;
    result.Add(x_ + y_, "sum");
    result.Add(x_ * y_, "product");
    return result;
  });
  EXPECT_EQ(model_.arrays(), 3);
  EXPECT_EQ(list.Get("product").At<float>({1}), 6);
}

TEST_F(ScopedTest, AnExceptionRestoresEverything) {
  EXPECT_THROW(model_.Scoped({x_, y_},
                             [&](NDManager&) -> NDArray {
                               const NDArray z = x_ + y_;
                               throw std::runtime_error("half way");
                             }),
               std::runtime_error);
  EXPECT_EQ(Growth(), "");
  EXPECT_TRUE(model_.Manages(x_) && other_.Manages(y_));
  EXPECT_FALSE(NDManager::ManagerOf(Ones({2})));  // no scope is left entered
}

TEST_F(ScopedTest, ADeadInputIsAnErrorBeforeAnythingRuns) {
  NDArray dead = model_.Ones({2});
  dead.Close();
  bool ran = false;
  EXPECT_THROW(model_.Scoped({x_, dead},
                             [&](NDManager&) {
                               ran = true;
                               return x_;
                             }),
               Error);
  EXPECT_FALSE(ran);
  EXPECT_EQ(Growth(), "");
}

TEST_F(ScopedTest, AResultThatACappedManagerDoesNotTakeIsAnErrorAndInputsAreBack) {
  model_.Cap();
  EXPECT_THROW(model_.Scoped({x_}, [&](NDManager&) { return x_ + x_; }), Error);
  EXPECT_EQ(Growth(), "");
  // Nothing new: allowed.
  EXPECT_TRUE(model_.Manages(model_.Scoped({x_}, [&](NDManager&) { return x_; })));
}

TEST_F(ScopedTest, BelowABaseManagerResultsCanBeNested) {
  const NDArray z = model_.Scoped({x_}, [&](NDManager& sub) {
    const NDArray inner = sub.Scoped({x_}, [&](NDManager&) { return x_ + 1; });
    EXPECT_TRUE(sub.Manages(inner));
    EXPECT_TRUE(sub.Manages(x_));
    return inner * 2;
  });
  EXPECT_EQ(z.At<float>({0}), 6);
  EXPECT_EQ(Growth(), "test/model: managers 0, arrays +1, bytes +16, loans 0\n");
}

TEST_F(ScopedTest, AThousandTimesLeavesTheCounts) {
  NDArray state = model_.Zeros({4});
  before_ = root_.Snapshot();
  for (int i = 0; i < 1000; ++i) {
    state = model_.Scoped({state, x_}, [&](NDManager&) { return Softmax(state + x_); });
  }
  EXPECT_EQ(Growth(), "");
}

// ---- returns of lists -----------------------------------------------------------------------

TEST_F(ScopedTest, RetOfAListIsAllOrNothing) {
  NDManager sub = model_.NewSubManager("sub");
  NDList list = {sub.Ones({2}), sub.Ones({2}), sub.Ones({2})};
  list[1].Close();
  EXPECT_THROW(sub.Ret(list), Error);
  EXPECT_EQ(sub.arrays(), 2);
  EXPECT_EQ(model_.arrays(), 1);
  list[1] = sub.Ones({2});
  {
    ManagerCapScope cap(model_);
    EXPECT_THROW(sub.Ret(list), Error);
    EXPECT_EQ(sub.arrays(), 3);
  }
  sub.Ret(list);
  EXPECT_EQ(sub.arrays(), 0);
  EXPECT_EQ(model_.arrays(), 4);
}

TEST_F(ScopedTest, RetOfAListEndsLoansAsRetOfAnArrayDoes) {
  NDManager sub = model_.NewSubManager("sub");
  sub.TempAttachAll({x_, y_});
  sub.Ret(NDList{x_, y_});  // the one is the parent's, the other another's
  EXPECT_EQ(sub.loans(), 0);
  EXPECT_TRUE(model_.Manages(x_) && other_.Manages(y_));
}

// ---- budgets --------------------------------------------------------------------------------

TEST_F(ScopedTest, ABudgetsErrorNamesItAndHasTheDump) {
  NDManager small = root_.NewSubManager("small");
  small.SetBudget(100, 3);
  NDManager request = small.NewSubManager("request");
  const NDArray a = request.Ones({10});
  try {
    a + Ones({2, 10});
    FAIL() << "beyond the budget";
  } catch (const OutOfMemoryError& error) {
    EXPECT_THAT(std::string(error.message()),
                AllOf(HasSubstr("Op [add]: a result of shape [2, 10] f32 would belong where "
                                "argument X does"),
                      HasSubstr("80 bytes for owner [small/request] exceed a budget: owner "
                                "[small] has 1 arrays of 40 bytes below it, budget 100 bytes and 3 "
                                "arrays")));
    EXPECT_THAT(std::string(error.report()),
                AllOf(HasSubstr("small  host"), HasSubstr("  request  host"), HasSubstr(": 40 B")));
  }
  const NDArray b = request.Ones({1}), c = small.Ones({1});
  EXPECT_THROW(request.Ones({1}), OutOfMemoryError);  // a fourth
}

// What moves within a budget is counted once.
TEST_F(ScopedTest, AMoveBelowTheSameBudgetNeedsNoRoom) {
  NDManager small = root_.NewSubManager("small");
  small.SetBudget(100, 2);
  NDManager sub = small.NewSubManager("sub");
  const NDArray a = sub.Ones({20}), b = sub.Ones({5});
  sub.Ret(a);
  sub.Attach(a);
  sub.Ret(NDList{a, b});
  EXPECT_EQ(small.arrays(), 2);
  sub.AttachAll({a, b});
  EXPECT_EQ(sub.bytes(), 100);
  // From outside it does.
  EXPECT_THROW(sub.AttachAll({a, x_}), OutOfMemoryError);
  EXPECT_TRUE(model_.Manages(x_));
  const NDArray z = small.Scoped({a}, [&](NDManager&) { return a; });
  EXPECT_TRUE(sub.Manages(z));
}

TEST_F(ScopedTest, ABudgetIsGivenBackByCloseDetachAndMoves) {
  NDManager small = root_.NewSubManager("small");
  small.SetBudget(16);
  Workspace workspace("budget", WorkspaceConfig::Training());
  for (int i = 0; i < 3; ++i) {
    { const NDArray gone = small.Ones({4}); }
    NDArray closed = small.Ones({4});
    closed.Close();
    const NDArray detached = small.Ones({4});
    small.Detach(detached);
    const NDArray moved = small.Ones({4});
    model_.Attach(moved);
    NDManager cycle = small.NewCycleManager("cycle", workspace);
    const NDArray in_cycle = cycle.Ones({4});
    EXPECT_THROW(cycle.Ones({1}), OutOfMemoryError);
  }
  EXPECT_EQ(small.arrays(), 0);
}

// Switches that are there for debugging change where bytes are, never how long an array lives.
TEST_F(ScopedTest, WhatIsMovedOutOutlivesTheManagerInAllModes) {
  using Move = std::function<NDArray(NDManager & batch, const NDArray& x)>;
  const Move moves[] = {
      [](NDManager&, const NDArray& x) { return x.Detach(); },
      [](NDManager&, const NDArray& x) { return x.Transpose().Detach().Transpose(); },
      [](NDManager& batch, const NDArray& x) { return batch.Detach(x); },
      [](NDManager& batch, const NDArray& x) { return batch.Detach(x.Slice(0, 0, 3)); },
      [](NDManager&, const NDArray& x) { return x.Leverage(); },
      [](NDManager&, const NDArray& x) { return x.LeverageTo("outer"); },
      [](NDManager&, const NDArray& x) { return x.LeverageOrDetach("outer"); },
      [](NDManager&, const NDArray& x) { return x.LeverageOrDetach("closed"); },
      [](NDManager&, const NDArray& x) {
        const ScopeOutOfWorkspaces out;
        return x.Migrate(/*detach_if_none=*/true);
      },
  };
  for (const WorkspaceMode mode :
       {WorkspaceMode::kEnabled, WorkspaceMode::kSingle, WorkspaceMode::kNone}) {
    for (const DebugMode debug : {DebugMode::kDisabled, DebugMode::kSpillEverything,
                                  DebugMode::kBypassEverything, DebugMode::kGuard}) {
      WorkspaceConfig config = WorkspaceConfig::Training();
      config.workspace_mode = mode;
      config.debug_mode = debug;
      config.use_cycle_detector = false;
      if (mode == WorkspaceMode::kSingle) config.policy_learning = LearningPolicy::kFirstLoop;
      if (!config.Reasons().empty()) continue;
      Workspace outer("outer", config), workspace("cycle", config);
      for (size_t i = 0; i < std::size(moves); ++i) {
        SCOPED_TRACE(testing::Message() << "mode " << static_cast<int>(mode) << ", debug "
                                        << static_cast<int>(debug) << ", move " << i);
        const WorkspaceScope outer_scope(outer);
        NDArray left, moved;
        {
          NDManager batch = model_.NewCycleManager("batch", workspace);
          const ManagerScope scope(batch);
          left = Full({3}, 7);
          moved = moves[i](batch, Full({3}, 7));
          EXPECT_FALSE(NDManager::ManagerOf(moved));
        }
        EXPECT_FALSE(left.IsInScope());
        ASSERT_TRUE(moved.IsInScope());
        EXPECT_EQ(moved.At<float>({2}), 7);
      }
    }
  }
  EXPECT_EQ(Growth(), "");
}

// An array of a manager on the heap: detaching the array copies and leaves it where it is,
// detaching it from the manager takes it out.
TEST_F(ScopedTest, DetachingArraysOnTheHeap) {
  const NDArray copy = x_.Detach();
  EXPECT_TRUE(model_.Manages(x_));
  EXPECT_NE(copy.raw_data(), x_.raw_data());
  EXPECT_EQ(copy.Detach().raw_data(), copy.raw_data());
  const NDArray out = model_.Detach(x_);
  EXPECT_EQ(out.raw_data(), x_.raw_data());
  EXPECT_FALSE(NDManager::ManagerOf(x_));
  const NDArray others = model_.Detach(y_);
  EXPECT_TRUE(other_.Manages(y_));
  EXPECT_FALSE(NDManager::ManagerOf(others));
  other_.Close();
  model_.Close();
  EXPECT_EQ(copy.At<float>({0}) + out.At<float>({0}) + others.At<float>({0}), 2 + 2 + 3);
}

// What is its is closed at once; its cycle ends on the thread that began it, with its next scope.
TEST_F(ScopedTest, AManagerOfACycleMayEndOnAnotherThread) {
  Workspace workspace("cycle", WorkspaceConfig::Training());
  for (int i = 0; i < 3; ++i) {
    auto batch = std::make_unique<NDManager>(model_.NewCycleManager("batch", workspace));
    const NDArray x = batch->Ones({4});
    std::thread([&] { batch.reset(); }).join();
    EXPECT_TRUE(x.is_closed());
    EXPECT_TRUE(workspace.is_open());
    const ScopeOutOfWorkspaces next;
    EXPECT_FALSE(workspace.is_open());
    EXPECT_FALSE(x.IsInScope());
  }
  EXPECT_EQ(Growth(), "");
}

}  // namespace
}  // namespace tidepool
