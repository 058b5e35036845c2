// What the numbered behaviour (conformance/) leaves out: messages, scoped computations, budgets,
// places, default-made managers.
#include "tidepool/ndarray/manager/nd_manager.h"

#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/joining.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/softmax.h"
#include "tidepool/ndarray/ops/sorting.h"

namespace tidepool {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string MessageOf(const std::function<void()>& call,
                      absl::StatusCode code = absl::StatusCode::kFailedPrecondition) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.message();
    return std::string(error.message());
  }
  return "nothing was thrown";
}

class NdManagerTest : public ::testing::Test {
 protected:
  NdManagerTest() : root_(NDManager::NewRoot("test")), model_(root_.NewSubManager("model")) {}
  // What has changed below the root since the last call, or since the beginning.
  std::string Growth() {
    OwnershipSnapshot now = root_.Snapshot();
    std::string text = ToString(Diff(before_, now));
    before_ = std::move(now);
    return text;
  }
  NDManager root_, model_;
  OwnershipSnapshot before_;
};

// ---- messages -------------------------------------------------------------------------------

TEST_F(NdManagerTest, ACappedResultNamesOperatorOperandAndManager) {
  const NDArray x = model_.Ones({2, 3}), loose = Ones({2, 3});
  model_.Cap();
  EXPECT_EQ(MessageOf([&] { x + x; }),
            "Op [add]: a result of shape [2, 3] f32 would belong where argument X does: owner "
            "[model] is capped: what would stay in it is a leak; make it in a sub-manager, enter "
            "one with ManagerScope, or give an explicit destination");
  EXPECT_THAT(MessageOf([&] { loose * x; }),
              StartsWith("Op [multiply]: a result of shape [2, 3] f32 would belong where argument Y "
                         "does: owner [model] is capped: "));
  EXPECT_THAT(MessageOf([&] { model_.Zeros({5}, DType::kInt64); }),
              StartsWith("a new array of shape [5] i64: owner [model] is capped: "));
  ManagerScope scope(model_);
  EXPECT_THAT(MessageOf([&] { Zeros({5}); }), HasSubstr("owner [model] is capped"));
}

TEST_F(NdManagerTest, ACappedResultOfAListNamesTheNumber) {
  const NDArray list[] = {Ones({2}), model_.Ones({2})};
  model_.Cap();
  EXPECT_THAT(MessageOf([&] { Concat(list, 0); }),
              AllOf(HasSubstr("a result of shape [4] f32 would belong where argument 1 does"),
                    HasSubstr("owner [model] is capped")));
}

TEST_F(NdManagerTest, AClosedArrayNamesTheManagerThatClosedIt) {
  NDManager request = model_.NewSubManager("request");
  const NDArray x = request.Ones({2});
  request.Close();
  EXPECT_EQ(MessageOf([&] { x + x; }),
            "Op [add] X argument was closed before the call (shape [2]): by owner "
            "[model/request]");
  NDArray by_hand = model_.Ones({2});
  by_hand.Close();
  EXPECT_EQ(MessageOf([&] { by_hand + by_hand; }),
            "Op [add] X argument was closed before the call (shape [2])");
}

TEST_F(NdManagerTest, AnArrayThatEndsWithItsLastLoanNamesTheBorrower) {
  NDManager borrower = model_.NewSubManager("borrower"), owner = model_.NewSubManager("owner");
  const NDArray x = owner.Ones({2});
  borrower.TempAttach(x);
  owner.Close();
  borrower.Close();
  EXPECT_THAT(MessageOf([&] { x.Dup(); }), HasSubstr("by owner [model/borrower]"));
}

// Names of a manager whose parent has ended, and whose record another has now.
TEST_F(NdManagerTest, AStrangerIsNotTakenForTheParent) {
  NDManager child;
  {
    NDManager parent = root_.NewSubManager("parent");
    child = parent.NewSubManager("child");
  }
  const NDManager stranger = root_.NewSubManager("stranger");
  EXPECT_THAT(MessageOf([&] { child.Attach(Ones({2})); }),
              HasSubstr("owner [parent/child] is closed"));
}

TEST_F(NdManagerTest, ANewManagerHasNothingOfTheOneWhoseRecordItGot) {
  { model_.NewSubManager("large").Zeros({1 << 16}); }
  const NDManager root = NDManager::NewRoot("small");
  EXPECT_EQ(root.Snapshot()[0].peak_bytes, 0);
  { root_.NewSubManager("large").Zeros({1 << 16}); }
  EXPECT_EQ(root_.NewSubManager("small").Snapshot()[0].peak_bytes, 0);
}

TEST(DefaultMadeManager, IsNoManager) {
  NDManager none;
  EXPECT_FALSE(none.is_open());
  EXPECT_FALSE(none.ref());
  EXPECT_EQ(none.ref().ToString(), "no manager");
  EXPECT_EQ(none.name(), "");
  EXPECT_EQ(none.arrays() + none.bytes() + none.loans(), 0);
  EXPECT_TRUE(none.Snapshot().empty());
  const NDArray x = Ones({2});
  EXPECT_FALSE(none.Manages(x));
  EXPECT_THAT(MessageOf([&] { none.Attach(x); }), HasSubstr("moved from"));
  EXPECT_THAT(MessageOf([&] { none.Zeros({2}); }), HasSubstr("moved from"));
  EXPECT_THAT(MessageOf([&] { none.NewSubManager(); }), HasSubstr("moved from"));
  EXPECT_THAT(MessageOf([&] { none.Close(); }), HasSubstr("moved from"));
  EXPECT_THAT(MessageOf([&] { ManagerScope scope(none); }), HasSubstr("moved from"));
}

TEST_F(NdManagerTest, MovingAManagerMovesItsArraysAndClosesTheTargets) {
  NDManager a = model_.NewSubManager("a"), b = model_.NewSubManager("b");
  const NDArray x = a.Ones({2}), y = b.Ones({2});
  b = std::move(a);
  EXPECT_EQ(b.name(), "a");
  EXPECT_TRUE(b.Manages(x));
  EXPECT_TRUE(y.is_closed());
  EXPECT_FALSE(a.is_open());
}

// ---- whose results are ----------------------------------------------------------------------

TEST_F(NdManagerTest, AnExplicitDestinationWorksThoughTheOperandsManagerIsCapped) {
  NDManager out = root_.NewSubManager("out");
  const NDArray x = model_.Ones({2, 2});
  NDArray z = out.Zeros({2, 2});
  model_.Cap();
  AddInto(x, x, z);
  MatMulInto(x, x, z);
  EXPECT_TRUE(out.Manages(z));
  EXPECT_EQ(out.arrays(), 1);
}

TEST_F(NdManagerTest, CastsWithinOperatorsLeaveNothing) {
  NDManager step = root_.NewSubManager("step");
  const NDArray x = model_.Ones({4}), n = model_.Ones({4}, DType::kInt64);
  const NDArray b = model_.Ones({4}, DType::kBool);
  Growth();
  model_.Cap();
  {
    ManagerScope scope(step);
    for (int i = 0; i < 100; ++i) {
      const NDArray z = n + x;
      ASSERT_EQ(z.dtype(), DType::kFloat64);
      ASSERT_EQ(step.arrays(), 1);
      Mean(n);
      x / n - b * n;
    }
  }
  EXPECT_EQ(Growth(), "");
  EXPECT_LE(step.Snapshot()[0].peak_bytes, 4 * 32);  // results alone, never the operands cast
}

TEST_F(NdManagerTest, OperatorsOfSeveralResultsGiveAllToOne) {
  NDManager step = root_.NewSubManager("step");
  const NDArray x = model_.Ones({4});
  ManagerScope scope(step);
  const auto top = TopK(x, 2);
  EXPECT_TRUE(step.Manages(top.values) && step.Manages(top.places));
  EXPECT_EQ(step.arrays(), 2);
}

TEST_F(NdManagerTest, ViewsAndEmptyArraysAreNoArraysOfTheirOwn) {
  const NDArray x = model_.Ones({2, 3}), empty = model_.Zeros({0, 3});
  const NDArray view = x.Transpose().Index(0, 1);
  EXPECT_EQ(model_.arrays(), 1);
  EXPECT_TRUE(model_.Manages(view));
  EXPECT_FALSE(NDManager::ManagerOf(empty));
  model_.Attach(empty);
  model_.Detach(view);
  EXPECT_FALSE(NDManager::ManagerOf(x));
  EXPECT_EQ(model_.arrays(), 0);
}

TEST_F(NdManagerTest, AThousandRequestsLeaveTheCountsAsTheyWere) {
  const NDArray weights = model_.Ones({8, 4});
  model_.Cap();
  Growth();
  for (int i = 0; i < 1000; ++i) {
    NDManager request = model_.NewSubManager("request");
    ManagerScope scope(request);
    request.TempAttach(weights);
    const NDArray y = Softmax(MatMul(Ones({2, 8}), weights));
    ASSERT_EQ(request.arrays(), 1);
    ASSERT_EQ(request.loans(), 1);
  }
  EXPECT_EQ(Growth(), "");
}

// ---- places ---------------------------------------------------------------------------------

TEST_F(NdManagerTest, AScopeOfAManagerWithAWorkspaceMakesArraysThere) {
  Workspace workspace("place", WorkspaceConfig::Training());
  NDManager step = root_.NewSubManager("step", workspace);
  EXPECT_THAT(MessageOf([&] { ManagerScope scope(step); }),
              AllOf(HasSubstr("owner [step]"), HasSubstr("workspace [place]"),
                    HasSubstr("not open on this thread")));
  EXPECT_THAT(MessageOf([&] { step.Ones({2}); }), HasSubstr("workspace [place] is not open"));
  NDArray x;
  {
    WorkspaceScope open(workspace);
    const NDArray heap = Ones({2}, DType::kFloat32, Place::Heap());
    Workspace inner("inner", WorkspaceConfig::Training());
    WorkspaceScope current(inner);
    {
      ManagerScope scope(step);
      x = heap + heap;
      EXPECT_EQ(x.buffer()->owner->WorkspaceId(), "place");
      EXPECT_TRUE(step.Manages(x));
    }
    EXPECT_EQ(Ones({2}).buffer()->owner->WorkspaceId(), "inner");
    EXPECT_EQ(step.NewSubManager("sub").Ones({2}).buffer()->owner->WorkspaceId(), "place");
    EXPECT_EQ(step.arrays(), 1);
  }
  EXPECT_FALSE(x.IsInScope());  // the cycle has ended, the manager has not
  EXPECT_TRUE(step.is_open());
  EXPECT_EQ(step.Snapshot()[0].arrays, 0);
}

TEST_F(NdManagerTest, ACycleOfAManagerEndsWithIt) {
  Workspace workspace("cycles", WorkspaceConfig::Training());
  for (int i = 0; i < 5; ++i) {
    NDManager batch = model_.NewCycleManager("batch", workspace);
    ManagerScope scope(batch);
    const NDArray x = Ones({100}), y = x + x;
    EXPECT_EQ(y.buffer()->owner->WorkspaceId(), "cycles");
    EXPECT_EQ(batch.arrays(), 2);
  }
  EXPECT_FALSE(workspace.is_open());
  EXPECT_EQ(workspace.cycles(), 5u);
  EXPECT_EQ(workspace.stats().leaked_arrays, 0u);
}

TEST_F(NdManagerTest, AManagerWithoutAPlaceMakesArraysWhereTheThreadIs) {
  Workspace workspace("cycle", WorkspaceConfig::Training());
  NDArray lost, kept;
  {
    NDManager batch = root_.NewCycleManager("batch", workspace);
    lost = model_.Ones({2});
    EXPECT_EQ(lost.buffer()->owner->WorkspaceId(), "cycle");
    kept = lost.Detach();
    model_.Attach(kept);
  }
  EXPECT_FALSE(lost.IsInScope());
  EXPECT_TRUE(model_.Manages(kept));
  EXPECT_EQ(model_.Snapshot()[0].arrays, 1);
}

// Of the cycle a manager owns: they are dropped with it at once, so each way out of it counts.
TEST_F(NdManagerTest, ArraysOfACycleMoveLikeAnyButEndWithTheCycle) {
  Workspace workspace("cycle", WorkspaceConfig::Training());
  NDManager other = root_.NewSubManager("other");
  for (int i = 0; i < 3; ++i) {
    NDManager batch = model_.NewCycleManager("batch", workspace);
    NDArray attached = batch.Ones({4}), detached = batch.Ones({4}), lent = batch.Ones({4});
    NDArray closed = batch.Ones({4}), returned = batch.Ones({4}), left = batch.Ones({4});
    other.Attach(attached);
    batch.Detach(detached);
    other.TempAttach(lent);
    closed.Close();
    batch.Ret(returned);
    EXPECT_EQ(batch.arrays(), 2);
    EXPECT_EQ(batch.bytes(), 32);
    EXPECT_TRUE(other.Manages(attached) && other.Manages(lent) && model_.Manages(returned));
    batch.Attach(attached);
    EXPECT_EQ(batch.arrays(), 3);
    other.Attach(attached);
    batch.Close();
    for (const NDArray& x : {attached, detached, lent, closed, returned, left}) {
      EXPECT_FALSE(x.IsInScope());
    }
    EXPECT_EQ(other.Snapshot()[0].arrays + model_.Snapshot()[0].arrays, 0);
    EXPECT_THAT(MessageOf([&] { model_.Attach(attached); }), HasSubstr("workspace [cycle]"));
  }
  EXPECT_EQ(other.arrays() + model_.arrays() + other.loans(), 0);
}

}  // namespace
}  // namespace tidepool
