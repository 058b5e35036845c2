// DJL's behaviour of ownership and its moves, 3.2 of its numbered list up to 46;
// djl_arrays_conformance_test.cc goes on. Where DJL's is a defect, the behaviour tested is the mended
// one, and the comment says which it was.
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/manager/conformance/djl_places.h"
#include "tidepool/ndarray/manager/nd_list.h"
#include "tidepool/ndarray/manager/nd_manager.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/indexing.h"
#include "tidepool/ndarray/ops/joining.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/unary.h"

namespace tidepool::djl {
namespace {

class DjlMoves : public DjlPlaces {};
TIDEPOOL_ON_EVERY_PLACE(DjlMoves);

TEST_P(DjlMoves, DjlCase025AnArrayIsItsCreators) {
  NDManager manager = New("a");
  const NDArray x = In(manager, 2);
  EXPECT_TRUE(manager.Manages(x));
  EXPECT_TRUE(NDManager::ManagerOf(x) == manager.ref());
  EXPECT_TRUE(manager.Manages(x.Reshape({2, 2})));  // its bytes are owned, views have no owner
  EXPECT_EQ(manager.arrays(), 1);
}

TEST_P(DjlMoves, DjlCase026AResultIsItsOperandsManagers) {
  NDManager manager = New("a");
  const NDArray x = In(manager, 2), y = Abs(x);
  EXPECT_TRUE(manager.Manages(y));
  manager.Close();
  EXPECT_FALSE(Alive(y));
}

// DJL knows operands alone: an entered manager goes before them.
TEST_P(DjlMoves, DjlCase026AResultIsTheEnteredManagersFirst) {
  NDManager manager = New("a"), step = New("step");
  const NDArray x = In(manager, 2);
  ManagerScope scope(step);
  const NDArray y = Abs(x);
  EXPECT_TRUE(step.Manages(y));
  EXPECT_EQ(manager.arrays(), 1);
}

TEST_P(DjlMoves, DjlCase027AResultOfManyIsTheFirstOperandsThatHasAManager) {
  NDManager a = New("a"), b = New("b");
  const NDArray x = In(a, 2), y = In(b, 3), loose = Loose(4);
  EXPECT_TRUE(a.Manages(x + y));
  EXPECT_TRUE(b.Manages(y + x));
  EXPECT_TRUE(b.Manages(loose + y));
  EXPECT_FALSE(NDManager::ManagerOf(loose + loose));
  const NDArray list[] = {loose, y, x};
  EXPECT_TRUE(b.Manages(Concat(list, 0)));
}

// DJL has the form for indexing alone.
TEST_P(DjlMoves, DjlCase028AnExplicitDestinationTakesTheResult) {
  NDManager a = New("a"), b = New("b");
  const NDArray x = In(a, 2);
  NDArray z = In(b, 0);
  AddInto(x, x, z);
  EXPECT_TRUE(b.Manages(z));
  EXPECT_TRUE(Holds(z, 4));
  EXPECT_TRUE(b.Manages(x.Slice(0, 1, 3).CopyTo(b)));
  EXPECT_TRUE(b.Manages(b.CopyOf(x)));
  EXPECT_EQ(a.arrays(), 1);
  EXPECT_EQ(b.arrays(), 1);  // the copies are gone with their handles
}

TEST_P(DjlMoves, DjlCase029AnExplicitDestinationWorksThoughTheOperandsManagerIsCapped) {
  NDManager a = New("a"), b = New("b");
  const NDArray x = In(a, 2);
  NDArray z = In(b, 0);
  a.Cap();
  AddInto(x, x, z);
  EXPECT_TRUE(Holds(z, 4));
  EXPECT_TRUE(Holds(x.CopyTo(b), 2));
  ManagerScope scope(b);
  EXPECT_TRUE(b.Manages(x + x));
}

TEST_P(DjlMoves, DjlCase030AResultThatWouldBelongToACappedManagerIsAnError) {
  NDManager manager = New("a");
  const NDArray x = In(manager, 2);
  manager.Cap();
  ExpectRefused(top(), [&] { x + x; });
  ExpectRefused(top(), [&] { Sum(x); });
  EXPECT_TRUE(Holds(x, 2));
}

TEST_P(DjlMoves, DjlCase031AttachMovesTheArray) {
  NDManager a = New("a"), b = New("b");
  const NDArray x = In(a, 2);
  b.Attach(x);
  EXPECT_TRUE(b.Manages(x));
  EXPECT_EQ(a.arrays(), 0);
  EXPECT_EQ(b.bytes(), 16);
  a.Close();
  EXPECT_TRUE(Holds(x, 2));
  b.Close();
  EXPECT_FALSE(Alive(x));
}

TEST_P(DjlMoves, DjlCase032AttachWorksBetweenTreesThatAreNotRelated) {
  NDManager a = New("a"), b = NewUnrelated("b");
  const NDArray x = In(a, 2);
  const void* bytes = x.raw_data();
  b.Attach(x);
  a.Close();
  EXPECT_TRUE(Holds(x, 2));
  EXPECT_EQ(x.raw_data(), bytes);
  b.Close();
  EXPECT_FALSE(Alive(x));
}

TEST_P(DjlMoves, DjlCase033AttachToTheOwnerChangesNothing) {
  NDManager a = New("a");
  const NDArray x = In(a, 2);
  for (int i = 0; i < 3; ++i) a.Attach(x);
  EXPECT_EQ(a.arrays(), 1);
  a.Cap();
  a.Attach(x);  // nothing new
  a.Close();
  EXPECT_FALSE(Alive(x));
}

// DJL detaches before it looks: the array is in no list then.
TEST_P(DjlMoves, DjlCase034AnAttachThatFailsLeavesTheArrayWhereItWas) {
  NDManager owner = New("owner"), borrower = New("borrower");
  NDManager closed = New("closed"), capped = New("capped"), small = New("small");
  closed.Close();
  capped.Cap();
  small.SetBudget(15);
  const NDArray x = In(owner, 2);
  borrower.TempAttach(x);
  ExpectRefused(top(), [&] { closed.Attach(x); });
  ExpectRefused(top(), [&] { capped.Attach(x); });
  EXPECT_THROW(small.Attach(x), OutOfMemoryError);
  EXPECT_TRUE(borrower.Manages(x));
  borrower.Close();
  EXPECT_TRUE(owner.Manages(x));
  owner.Close();
  EXPECT_FALSE(Alive(x));
}

// DJL: detached arrays are closed by hand or never. Here they are their handles'.
TEST_P(DjlMoves, DjlCase035ADetachedArraySurvivesItsManagerAndGoesWithItsHandles) {
  NDManager a = New("a");
  const NDArray x = In(a, 2);
  a.Detach(x);
  EXPECT_FALSE(NDManager::ManagerOf(x));
  EXPECT_EQ(a.arrays(), 0);
  a.Close();
  EXPECT_TRUE(Holds(x, 2));
}  // TearDown counts that it went

TEST_P(DjlMoves, DjlCase036DetachTwiceIsFine) {
  NDManager a = New("a"), other = New("other");
  const NDArray x = In(a, 2);
  a.Detach(x);
  a.Detach(x);
  other.Detach(x);  // not its own: nothing
  EXPECT_TRUE(Holds(x, 2));
  a.Close();
  a.Detach(x);
  EXPECT_TRUE(Holds(x, 2));
}

// DJL registers it with the root, which never closes.
TEST_P(DjlMoves, DjlCase037AResultOfADetachedArrayIsItsHandles) {
  NDManager a = New("a");
  const NDArray x = In(a, 2);
  a.Detach(x);
  const OwnershipSnapshot before = NDManager::System().Snapshot();
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(NDManager::ManagerOf(x + x));
  EXPECT_EQ(ToString(Diff(before, NDManager::System().Snapshot())), "");
}

TEST_P(DjlMoves, DjlCase038AttachAfterDetachManagesAgain) {
  NDManager a = New("a"), b = New("b");
  const NDArray x = In(a, 2);
  a.Detach(x);
  b.Attach(x);
  EXPECT_TRUE(b.Manages(x));
  b.Close();
  EXPECT_FALSE(Alive(x));
}

TEST_P(DjlMoves, DjlCase039RetMovesToTheParentAndGivesTheSameArray) {
  NDManager parent = New("parent"), child = parent.NewSubManager("child");
  const NDArray x = In(child, 2);
  const NDArray y = child.Ret(x);
  EXPECT_EQ(y.raw_data(), x.raw_data());
  child.Close();
  EXPECT_TRUE(Holds(x, 2));
  EXPECT_TRUE(parent.Manages(y));
  parent.Close();
  EXPECT_FALSE(Alive(y));
}

TEST_P(DjlMoves, DjlCase040RetOfAListMovesAllOfIt) {
  NDManager parent = New("parent"), child = parent.NewSubManager("child");
  NDList list = {In(child, 1), In(child, 2), In(child, 3)};
  list.SetName(1, "middle");
  const NDList same = child.Ret(list);
  child.Close();
  EXPECT_EQ(parent.arrays(), 3);
  EXPECT_TRUE(Holds(same.Get("middle"), 2));
}

// DJL gives it to the root, which never closes.
TEST_P(DjlMoves, DjlCase041RetFromABaseManagerGivesItToItsHandles) {
  NDManager base = NewUnrelated("base");
  const NDArray x = In(top(), 2), y = In(top(), 3);
  base.Attach(x);
  base.Attach(y);
  const OwnershipSnapshot before = NDManager::System().Snapshot();
  base.Ret(x);
  base.Ret(NDList{y});
  EXPECT_FALSE(NDManager::ManagerOf(x) || NDManager::ManagerOf(y));
  base.Close();
  EXPECT_TRUE(Holds(x, 2) && Holds(y, 3));
  EXPECT_EQ(NDManager::System().Snapshot()[0].arrays, before[0].arrays);
}

TEST_P(DjlMoves, DjlCase042AttachAllTakesArraysAndLists) {
  NDManager a = New("a"), b = New("b");
  const NDArray x = In(a, 1);
  const NDList list = {In(a, 2), In(a, 3)};
  b.AttachAll({x, list, x});
  EXPECT_EQ(a.arrays(), 0);
  EXPECT_EQ(b.arrays(), 3);
  NDManager c = New("c");
  c.TempAttachAll({list, x});
  EXPECT_EQ(c.loans(), 3);
}

// DJL moves what is before the one that fails, and loses that one.
TEST_P(DjlMoves, DjlCase043AttachAllIsAllOrNothing) {
  NDManager a = New("a"), b = New("b"), parent = New("parent");
  const NDArray x = In(a, 1), y = In(a, 2);
  NDArray dead = In(a, 3);
  dead.Close();
  ExpectRefused(top(), [&] { b.AttachAll({x, dead, y}); });
  ExpectRefused(top(), [&] { b.TempAttachAll({x, y, dead}); });
  b.SetBudget(16);
  EXPECT_THROW(b.AttachAll({x, y}), OutOfMemoryError);
  EXPECT_EQ(a.arrays(), 2);
  NDManager child = parent.NewSubManager("child");
  const NDList list = {In(child, 1), In(child, 2)};
  parent.Cap();
  ExpectRefused(top(), [&] { child.Ret(list); });
  EXPECT_EQ(child.arrays(), 2);
}

TEST_P(DjlMoves, DjlCase044ClosingAnArrayTakesItOutOfItsManager) {
  NDManager a = New("a");
  NDArray x = In(a, 2);
  x.Close();
  EXPECT_FALSE(Alive(x));
  EXPECT_EQ(a.arrays(), 0);
  EXPECT_EQ(a.bytes(), 0);
  a.Close();
}  // TearDown counts that it went once

TEST_P(DjlMoves, DjlCase045ClosingAnArrayTwiceIsFine) {
  NDManager a = New("a");
  NDArray x = In(a, 2), same = x;
  x.Close();
  x.Close();
  same.Close();
  a.Close();
  x.Close();
}

TEST_P(DjlMoves, DjlCase046ClosingAListClosesAllAndEmptiesIt) {
  NDManager a = New("a");
  const NDArray x = In(a, 1), y = In(a, 2);
  NDList list = {x, y};
  list.Close();
  EXPECT_TRUE(list.empty());
  EXPECT_FALSE(Alive(x) || Alive(y));
  EXPECT_EQ(a.arrays(), 0);
}

}  // namespace
}  // namespace tidepool::djl
