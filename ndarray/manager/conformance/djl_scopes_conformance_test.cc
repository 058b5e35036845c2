// DJL's behaviour of NDScope, 3.5 of its numbered list, by the one mechanism there is: a manager that
// is entered (ManagerScope), whose arrays end with it. What leaves it is returned, attached elsewhere
// or detached, which is one step where DJL needs two.
//
// No test: 103 (copies that a second engine caches: there is none).
#include <stdexcept>
#include <thread>
#include <type_traits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/manager/conformance/djl_places.h"
#include "tidepool/ndarray/manager/nd_manager.h"
#include "tidepool/ndarray/ops/elementwise.h"

namespace tidepool::djl {
namespace {

using ::testing::HasSubstr;

class DjlScopes : public DjlPlaces {
 protected:
  DjlScopes() : model_(New("model")), weights_(In(model_, 2)) {}
  NDManager model_;
  NDArray weights_;
};
TIDEPOOL_ON_EVERY_PLACE(DjlScopes);

TEST_P(DjlScopes, DjlCase093ArraysMadeInTheBlockEndWithIt) {
  NDArray y, z;
  {
    NDManager block = model_.NewSubManager("block");
    ManagerScope scope(block);
    y = weights_ + weights_;
    z = Zeros({4});
    EXPECT_TRUE(block.Manages(y) && block.Manages(z));
  }
  EXPECT_FALSE(Alive(y) || Alive(z));
  EXPECT_TRUE(Holds(weights_, 2));
  EXPECT_EQ(model_.arrays(), 1);
}

TEST_P(DjlScopes, DjlCase094WhatIsReturnedIsKeptByTheParent) {
  NDArray y;
  {
    NDManager block = model_.NewSubManager("block");
    ManagerScope scope(block);
    y = block.Ret(weights_ + weights_);
  }
  EXPECT_TRUE(model_.Manages(y));
  EXPECT_TRUE(Holds(y, 4));
}

TEST_P(DjlScopes, DjlCase095ClosingAnArrayInsideIsFine) {
  NDManager block = model_.NewSubManager("block");
  ManagerScope scope(block);
  NDArray y = weights_ + weights_;
  y.Close();
  EXPECT_EQ(block.arrays(), 0);
}

TEST_P(DjlScopes, DjlCase096WhatIsDetachedSurvivesScopeAndManager) {
  NDArray y;
  {
    NDManager block = NewUnrelated("block");
    const NDArray loose = In(block, 3);
    ManagerScope scope(block);
    y = loose;
    block.Detach(y);
  }
  model_.Close();
  EXPECT_TRUE(Holds(y, 3));
  EXPECT_FALSE(NDManager::ManagerOf(y));
}

// DJL's scope closes arrays that were detached. Here there is one owner, and detached has none.
TEST_P(DjlScopes, DjlCase097DetachAloneIsEnough) {
  NDManager block = model_.NewSubManager("block");
  const NDArray y = In(block, 3);
  {
    ManagerScope scope(block);
    block.Detach(y);
  }
  block.Close();
  EXPECT_TRUE(Holds(y, 3));
}

TEST_P(DjlScopes, DjlCase098AnInnerScopeTakesItsOwnAlone) {
  NDManager outer = model_.NewSubManager("outer");
  ManagerScope outer_scope(outer);
  const NDArray x = weights_ + weights_;
  NDArray y;
  {
    NDManager inner = outer.NewSubManager("inner");
    ManagerScope inner_scope(inner);
    y = x + x;
    EXPECT_TRUE(inner.Manages(y));
  }
  EXPECT_FALSE(Alive(y));
  EXPECT_TRUE(Holds(x, 4));
  EXPECT_TRUE(outer.Manages(x + x));
}

// DJL: nothing happens, and the array dies with the outer scope.
TEST_P(DjlScopes, DjlCase099AnArrayOfTheOuterScopeIsKeptFromWithinTheInnerOne) {
  NDArray x;
  {
    NDManager outer = model_.NewSubManager("outer");
    ManagerScope outer_scope(outer);
    x = weights_ + weights_;
    NDManager inner = outer.NewSubManager("inner");
    ManagerScope inner_scope(inner);
    model_.Attach(x);
  }
  EXPECT_TRUE(Holds(x, 4));
  EXPECT_TRUE(model_.Manages(x));
}

TEST_P(DjlScopes, DjlCase100ArraysOfOtherThreadsAreUntouched) {
  NDArray there;
  {
    NDManager block = model_.NewSubManager("block");
    ManagerScope scope(block);
    std::thread([&] { there = Full({4}, 5); }).join();
    EXPECT_FALSE(NDManager::ManagerOf(there));
  }
  EXPECT_TRUE(Holds(there, 5));
}

// DJL: a scope closed on another thread goes on catching arrays of the first. Here a scope neither
// moves nor leaves its block, and of a manager that was closed meanwhile it makes an error.
TEST_P(DjlScopes, DjlCase101AScopeStaysInItsBlockAndAClosedManagerCatchesNothing) {
  static_assert(!std::is_copy_constructible_v<ManagerScope>);
  static_assert(!std::is_move_constructible_v<ManagerScope>);
  NDManager block = model_.NewSubManager("block");
  {
    ManagerScope scope(block);
    std::thread([&] { block.Close(); }).join();
    EXPECT_THAT(ErrorOf([&] { weights_ + weights_; }), HasSubstr("is closed"));
  }
  EXPECT_THAT(ErrorOf([&] { ManagerScope again(block); }), HasSubstr("is closed"));
  EXPECT_TRUE(model_.Manages(weights_ + weights_));
}

TEST_P(DjlScopes, DjlCase101AnExceptionEndsTheScope) {
  NDManager block = model_.NewSubManager("block");
  try {
    ManagerScope scope(block);
    throw std::runtime_error("half way");
  } catch (const std::runtime_error&) {
  }
  EXPECT_TRUE(model_.Manages(weights_ + weights_));
}

// DJL: every old value stays until the manager closes.
TEST_P(DjlScopes, DjlCase102AValueCarriedThroughALoopIsFreedWhenItIsReplaced) {
  NDManager block = model_.NewSubManager("block");
  ManagerScope scope(block);
  NDArray state = weights_ * 1;
  for (int i = 0; i < 1000; ++i) {
    state = state * 0.5 + weights_;
    ASSERT_EQ(block.arrays(), 1);
  }
  EXPECT_NEAR(state.At<float>({0}), 4, 1e-5);
  EXPECT_LE(block.Snapshot()[0].peak_bytes, 48);
}

}  // namespace
}  // namespace tidepool::djl
