// Groups A (arrays in a workspace), E, F (moving data) and G (misuse) of ND4J's behaviour. Where
// ND4J's cases use doubles, these use i64: the same eight bytes.
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/conformance/nd4j_cases.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/reduction.h"

namespace tidepool::nd4j {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

NDArray OneToFive() { return FromValues(std::vector<int64_t>{1, 2, 3, 4, 5}, {5}); }
int64_t Total(const NDArray& array) {
  int64_t sum = 0;
  for (int64_t value : array.ToVector<int64_t>()) sum += value;
  return sum;
}
std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.message();
  }
  return "nothing was thrown";
}

// ---- A ----

TEST(Nd4jArrays, Nd4jCase001_002_OffsetsOfArraysAndDuplicates) {
  Workspace workspace("w", Basic());
  WorkspaceScope scope(workspace);
  NDArray a = OneToFive();
  EXPECT_EQ(workspace.offset(), 48);
  NDArray b = a.Dup();
  EXPECT_EQ(workspace.offset(), 96);
  EXPECT_EQ(Total(b), 15);
}

TEST(Nd4jArrays, Nd4jCase006_ZerosAreZeroInReusedMemory) {
  Workspace workspace("w", Basic());
  for (int i = 0; i < 10; ++i) {
    WorkspaceScope scope(workspace);
    NDArray a = Zeros({4});
    EXPECT_EQ(Sum(a).Item<float>(), 0);
    a += 1;
    EXPECT_EQ(Sum(a).Item<float>(), 4);
  }
}

TEST(Nd4jArrays, Nd4jCase007_EmptyArraysTakeNothing) {
  Workspace workspace("w", Basic());
  WorkspaceScope scope(workspace);
  NDArray a = Zeros({0, 3});
  NDArray b = a.Dup();
  AddInto(a, b, b);
  EXPECT_EQ(workspace.offset(), 0);
  EXPECT_EQ(workspace.bytes_this_cycle(), 0);
}

TEST(Nd4jArrays, Nd4jCase008_AScalarResultTakesOneAlignment) {
  Workspace workspace("w", Over());
  {
    WorkspaceScope scope(workspace);
    NDArray a = Zeros({20});
    NDArray sum = Sum(a);
    EXPECT_TRUE(sum.IsAttached());
    EXPECT_EQ(workspace.bytes_this_cycle(), 96);
  }
  workspace.Initialize();
  EXPECT_EQ(workspace.size(), 96);
}

TEST(Nd4jArrays, Nd4jCase009_ResultsAreAttachedInPlaceTakesNothing) {
  Workspace workspace("w", Basic());
  WorkspaceScope scope(workspace);
  NDArray a = Ones({20});
  EXPECT_EQ(workspace.offset(), 80);
  a += 1;
  EXPECT_EQ(workspace.offset(), 80);
  NDArray mean = Mean(a);
  EXPECT_TRUE(mean.IsAttached());
  EXPECT_EQ(mean.buffer()->owner->WorkspaceId(), "w");
  EXPECT_EQ(mean.Item<float>(), 2);
}

TEST(Nd4jArrays, Nd4jCase010_ViewsAreAttachedAndTakeNothing) {
  Workspace workspace("w", Basic());
  WorkspaceScope scope(workspace);
  NDArray a = Ones({10, 2});
  const size_t offset = workspace.offset();
  for (const NDArray& view : {a.Slice(0, 2, 5), a.Index(0, 3), a.Transpose(), a.Reshape({20})}) {
    EXPECT_TRUE(view.IsAttached());
  }
  EXPECT_EQ(workspace.offset(), offset);
}

// ---- E ----

TEST(Nd4jArrays, Nd4jCase057_ScopeOutInsideABorrow) {
  Workspace first("first", Basic()), second("second", Basic());
  WorkspaceScope a(first);
  WorkspaceScope b(second);
  BorrowScope borrowed(first);
  {
    ScopeOutOfWorkspaces out;
    EXPECT_FALSE(OneToFive().IsAttached());
  }
  EXPECT_EQ(OneToFive().buffer()->owner->WorkspaceId(), "first");
  borrowed.Close();
  EXPECT_EQ(OneToFive().buffer()->owner->WorkspaceId(), "second");
}

TEST(Nd4jArrays, Nd4jCase058_ScopeOut) {
  Workspace workspace("w", Basic());
  WorkspaceScope scope(workspace);
  NDArray a = OneToFive();
  EXPECT_EQ(workspace.offset(), 48);
  {
    ScopeOutOfWorkspaces out;
    EXPECT_FALSE(a.Dup().IsAttached());
  }
  NDArray b = a.Dup();
  EXPECT_EQ(workspace.offset(), 96);
}

// ---- F ----

TEST(Nd4jMovers, Nd4jCase065_LeverageGoesToTheParent) {
  Workspace outer("outer", Basic()), inner("inner", Basic());
  WorkspaceScope a(outer);
  WorkspaceScope b(inner);
  NDArray array = OneToFive();
  EXPECT_EQ(inner.offset(), 48);
  EXPECT_EQ(outer.offset(), 0);
  NDArray leveraged = array.Leverage();
  EXPECT_EQ(outer.offset(), 48);
  EXPECT_TRUE(leveraged.IsAttached());
  EXPECT_EQ(Total(leveraged), 15);
  b.Close();
  EXPECT_TRUE(leveraged.IsInScope());
  EXPECT_FALSE(array.IsInScope());
}

TEST(Nd4jMovers, Nd4jCase067_LeverageToAnUnsizedWorkspace) {
  Workspace outer("outer", Over()), inner("inner", Basic());
  WorkspaceScope a(outer);
  NDArray leveraged;
  {
    WorkspaceScope b(inner);
    NDArray array = OneToFive();
    leveraged = array.LeverageTo("outer");
    array.mutable_data<int64_t>()[0] = 100;
  }
  EXPECT_EQ(outer.size(), 0);
  WorkspaceScope again(inner);
  NDArray other = Full({5}, 7, DType::kInt64);
  EXPECT_EQ(Total(leveraged), 15);
}

TEST(Nd4jMovers, Nd4jCase068_AViewBecomesDense) {
  Workspace outer("outer", Basic()), inner("inner", Basic());
  WorkspaceScope a(outer);
  WorkspaceScope b(inner);
  NDArray array = Ones({10, 8}, DType::kInt64);
  NDArray leveraged = array.Slice(1, 2, 6).Leverage();
  EXPECT_TRUE(leveraged.is_dense());
  EXPECT_EQ(Total(leveraged), 40);
  EXPECT_EQ(outer.offset(), 320);
}

TEST(Nd4jMovers, Nd4jCase069_ADetachedArrayStays) {
  NDArray array = OneToFive();
  Workspace workspace("w", Basic());
  WorkspaceScope scope(workspace);
  for (const NDArray& moved :
       {array.LeverageTo("w"), array.Leverage(), array.LeverageOrDetach("w")}) {
    EXPECT_FALSE(moved.IsAttached());
    EXPECT_EQ(moved.raw_data(), array.raw_data());
  }
}

// ND4J copies into a workspace that is not open and returns the source when there is none; here
// the workspace must be open.
TEST(Nd4jMovers, Nd4jCase070_LeverageToTheWorkspaceItLivesIn) {
  Workspace workspace("w", Basic()), closed("closed", Basic());
  WorkspaceScope scope(workspace);
  NDArray array = OneToFive();
  EXPECT_EQ(array.LeverageTo("w").raw_data(), array.raw_data());
  EXPECT_EQ(workspace.offset(), 48);
  EXPECT_THAT(MessageOf([&] { array.LeverageTo("closed"); }),
              AllOf(HasSubstr("[closed] is not open"), HasSubstr("open: w")));
  EXPECT_FALSE(array.LeverageOrDetach("closed").IsAttached());
}

TEST(Nd4jMovers, Nd4jCase071_DetachCopiesToTheHeap) {
  Workspace workspace("w", Basic());
  WorkspaceScope scope(workspace);
  NDArray array = OneToFive();
  NDArray detached = array.Detach();
  EXPECT_FALSE(detached.IsAttached());
  EXPECT_TRUE(array.IsAttached());
  EXPECT_TRUE(array.IsInScope());
  EXPECT_EQ(workspace.offset(), 48);
  EXPECT_NE(detached.raw_data(), array.raw_data());
  scope.Close();
  EXPECT_EQ(Total(detached), 15);
}

TEST(Nd4jMovers, Nd4jCase072_DetachOfDetachedIsItself) {
  NDArray array = OneToFive();
  EXPECT_EQ(array.Detach().raw_data(), array.raw_data());
}

TEST(Nd4jMovers, Nd4jCase073_DetachedCreationTakesNothing) {
  Workspace workspace("w", Basic());
  WorkspaceScope scope(workspace);
  NDArray array = OneToFive();
  for (DType dtype : {DType::kFloat32, DType::kInt64}) {
    EXPECT_FALSE(Empty({100}, dtype, Place::Heap()).IsAttached());
    EXPECT_FALSE(Full({}, 3, dtype, Place::Heap()).IsAttached());
  }
  EXPECT_EQ(workspace.offset(), 48);
}

TEST(Nd4jMovers, Nd4jCase075_TypesAreKept) {
  Workspace outer("outer", Basic()), inner("inner", Basic());
  WorkspaceScope a(outer);
  WorkspaceScope b(inner);
  for (DType dtype : {DType::kFloat32, DType::kInt64}) {
    NDArray array = Full({3, 2}, 5, dtype);
    NDArray heap = array.Detach();
    for (const NDArray& moved : {array.Leverage(), array.LeverageTo("outer"), heap, array.Migrate(),
                                 array.LeverageOrDetach("outer"), array.Dup(), heap.Migrate()}) {
      EXPECT_EQ(moved.dtype(), dtype);
      EXPECT_EQ(moved.shape(), array.shape());
      EXPECT_EQ(std::memcmp(moved.raw_data(), array.raw_data(), 6 * DTypeBytes(dtype)), 0);
    }
    EXPECT_TRUE(heap.Migrate().IsAttached());
    EXPECT_EQ(array.Migrate().raw_data(), array.raw_data());
  }
}

TEST(Nd4jMovers, Nd4jCase076_IsAttachedAndIsInScope) {
  Workspace workspace("w", Basic());
  NDArray heap = OneToFive();
  NDArray inside;
  {
    WorkspaceScope scope(workspace);
    inside = OneToFive();
    EXPECT_TRUE(inside.IsAttached());
    EXPECT_TRUE(inside.IsInScope());
  }
  EXPECT_TRUE(inside.IsAttached());
  EXPECT_FALSE(inside.IsInScope());
  {
    WorkspaceScope scope(workspace);  // ND4J does not compare generations here
    EXPECT_FALSE(inside.IsInScope());
  }
  EXPECT_FALSE(heap.IsAttached());
  EXPECT_TRUE(heap.IsInScope());
}

TEST(Nd4jMovers, Nd4jCase077_ScopesOfALearningWorkspace) {
  Workspace workspace("w", First());
  NDArray array;
  {
    WorkspaceScope scope(workspace);
    array = Zeros({100}, DType::kInt64);
    EXPECT_EQ(workspace.size(), 0);
  }
  EXPECT_FALSE(array.IsInScope());
  {
    WorkspaceScope scope(workspace);
    array = Zeros({100}, DType::kInt64);
    EXPECT_EQ(workspace.offset(), 800);
    EXPECT_TRUE(array.IsInScope());
  }
  EXPECT_FALSE(array.IsInScope());
}

TEST(Nd4jMovers, Nd4jCase079_CopiesBetweenWorkspaceAndHeap) {
  Workspace workspace("w", Basic());
  WorkspaceScope scope(workspace);
  NDArray inside = OneToFive();
  NDArray heap = Empty({5}, DType::kInt64, Place::Heap());
  CopyInto(inside, heap);
  EXPECT_EQ(heap.ToVector<int64_t>(), inside.ToVector<int64_t>());
  NDArray back = Zeros({5}, DType::kInt64);
  CopyInto(heap, back);
  EXPECT_EQ(back.ToVector<int64_t>(), inside.ToVector<int64_t>());
}

// ---- G ----

std::map<std::string, std::function<void(const NDArray&)>> Uses() {
  return {{"leverage", [](const NDArray& x) { x.Leverage(); }},
          {"leverage_to", [](const NDArray& x) { x.LeverageTo("outer"); }},
          {"leverage_or_detach", [](const NDArray& x) { x.LeverageOrDetach("outer"); }},
          {"detach", [](const NDArray& x) { x.Detach(); }},
          {"migrate", [](const NDArray& x) { x.Migrate(); }},
          {"migrate, detached", [](const NDArray& x) { x.Migrate(true); }},
          {"dup", [](const NDArray& x) { x.Dup(); }},
          {"copy", [](const NDArray& x) { x.CopyTo(Place::Heap()); }},
          {"to vector", [](const NDArray& x) { x.ToVector<int64_t>(); }},
          {"data", [](const NDArray& x) { x.data<int64_t>(); }},
          {"at", [](const NDArray& x) { x.At<int64_t>({0}); }},
          {"sum", [](const NDArray& x) { Sum(x); }},
          {"print", [](const NDArray& x) { x.ToString(); }}};
}

// The operations of ND4J's test, and others that ND4J leaves unchecked.
TEST(Nd4jMisuse, Nd4jCase080_EveryUseAfterTheScopeThrows) {
  Workspace outer("outer", Basic()), inner("inner", Basic());
  WorkspaceScope scope(outer);
  NDArray leaked;
  {
    WorkspaceScope b(inner);
    leaked = OneToFive();
  }
  for (const auto& [name, use] : Uses()) {
    EXPECT_THAT(MessageOf([&] { use(leaked); }),
                HasSubstr("leaked workspace pointer from workspace [inner]"))
        << name;
  }
}

TEST(Nd4jMisuse, Nd4jCase081_EveryUseInALaterGenerationThrows) {
  Workspace workspace("w", Basic());
  Cycle(workspace, {8});
  NDArray second;
  {
    WorkspaceScope scope(workspace);
    second = OneToFive();
  }
  WorkspaceScope third(workspace);
  for (const auto& [name, use] : Uses()) {
    EXPECT_THAT(MessageOf([&] { use(second); }),
                AllOf(HasSubstr("outdated workspace pointer"), HasSubstr("made in generation 2"),
                      HasSubstr("in generation 3")))
        << name;
  }
}

TEST(Nd4jMisuse, Nd4jCase082_AnOuterArrayInAnInnerWorkspaceIsLegal) {
  Workspace outer("outer", Basic()), inner("inner", Basic());
  WorkspaceScope a(outer);
  NDArray x = Ones({5});
  WorkspaceScope b(inner);
  NDArray y = Ones({5});
  EXPECT_EQ(Sum(Add(x, y)).Item<float>(), 10);
}

TEST(Nd4jMisuse, Nd4jCase083_ALeakedOperandIsNamed) {
  Workspace workspace("LEAKY", Basic());
  NDArray leaked, fresh = Ones({5});
  {
    WorkspaceScope scope(workspace);
    leaked = Ones({5});
  }
  EXPECT_THAT(MessageOf([&] { Add(leaked, fresh); }),
              AllOf(HasSubstr("Op [add] X"), HasSubstr("[LEAKY]")));
  // ND4J says X for every operand.
  EXPECT_THAT(MessageOf([&] { Add(fresh, leaked); }),
              AllOf(HasSubstr("Op [add] Y"), HasSubstr("[LEAKY]")));
}

// ND4J refuses to close attached arrays and views; here that gives the bytes back early.
TEST(Nd4jMisuse, Nd4jCase085_ClosedArraysAndTheirViewsAreDead) {
  Workspace workspace("w", Basic());
  WorkspaceScope scope(workspace);
  for (Place place : {Place::Heap(), Place::Current()}) {
    NDArray array = Ones({5}, DType::kInt64, place);
    NDArray view = array.Slice(0, 1, 3), handle = array;
    array.Close();
    array.Close();
    for (const NDArray& dead : {array, view, handle}) {
      EXPECT_TRUE(dead.is_closed());
      EXPECT_THAT(MessageOf([&] { dead.Dup(); }), HasSubstr("was closed before the call"));
    }
  }
}

}  // namespace
}  // namespace tidepool::nd4j
