// DJL's behaviour of caps, dumps and lists, 3.4 of its numbered list, and budgets (129). Where DJL's is
// a defect, the behaviour tested is the mended one, and the comment says which it was.
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracing.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/manager/conformance/djl_places.h"
#include "tidepool/ndarray/manager/nd_manager.h"
#include "tidepool/ndarray/ops/elementwise.h"

namespace tidepool::djl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class DjlCap : public DjlPlaces {};
TIDEPOOL_ON_EVERY_PLACE(DjlCap);

TEST_P(DjlCap, DjlCase081MakingAnArrayInACappedManagerIsAnErrorBeforeItIsAllocated) {
  NDManager manager = New("a");
  manager.Cap();
  const int64_t before = MemoryTracker::Global().Snapshot().system_allocations;
  EXPECT_THAT(ErrorOf([&] { manager.Zeros({1 << 20}); }), HasSubstr("owner [top/a] is capped"));
  EXPECT_EQ(MemoryTracker::Global().Snapshot().system_allocations, before);
  EXPECT_EQ(manager.arrays(), 0);
}

TEST_P(DjlCap, DjlCase082AttachingToACappedManagerIsAnErrorAndMovesNothing) {
  NDManager owner = New("owner"), capped = New("capped");
  const NDArray x = In(owner, 2);
  capped.Cap();
  ExpectRefused(top(), [&] { capped.Attach(x); });
  EXPECT_TRUE(owner.Manages(x));
  EXPECT_TRUE(Holds(x, 2));
}

TEST_P(DjlCap, DjlCase083AResultThatWouldStayInACappedManagerIsAnError) {
  NDManager manager = New("a"), other = New("other");
  const NDArray x = In(manager, 2);
  manager.Cap();
  ExpectRefused(top(), [&] { x * 2; });
  ExpectRefused(top(), [&] { x.Slice(0, 0, 2).Dup(); });
  ManagerScope scope(other);
  EXPECT_TRUE(other.Manages(x * 2));
}

TEST_P(DjlCap, DjlCase084ACappedManagerMayHaveSubManagersWithCapsOfTheirOwn) {
  NDManager manager = New("a");
  manager.Cap();
  NDManager child = manager.NewSubManager("child");
  EXPECT_FALSE(child.is_capped());
  const NDArray x = In(child, 2);
  EXPECT_TRUE(child.Manages(x));
  child.Cap();
  EXPECT_NE(ErrorOf([&] { child.Zeros({4}); }), "");
}

TEST_P(DjlCap, DjlCase085ArraysOfACappedManagerAreUsedDetachedAndClosed) {
  NDManager manager = New("a");
  NDArray x = In(manager, 2), y = In(manager, 3), z = In(manager, 4);
  manager.Cap();
  x += y;
  EXPECT_TRUE(Holds(x, 5));
  manager.Detach(y);
  z.Close();
  EXPECT_EQ(manager.arrays(), 1);
  manager.Close();
  EXPECT_FALSE(Alive(x));
  EXPECT_TRUE(Holds(y, 3));
}

// DJL never takes a cap back.
TEST_P(DjlCap, DjlCase086CapsCountAndAScopeTakesItsCapBack) {
  NDManager manager = New("a");
  {
    ManagerCapScope outer(manager);
    {
      ManagerCapScope inner(manager);
      EXPECT_TRUE(manager.is_capped());
    }
    EXPECT_NE(ErrorOf([&] { manager.Zeros({4}); }), "");
  }
  EXPECT_FALSE(manager.is_capped());
  EXPECT_TRUE(Alive(In(manager)));
  manager.Cap();
  manager.Cap();
  EXPECT_TRUE(manager.is_capped());
}

// DJL allows it, and no program can do anything then.
TEST(DjlRoot, DjlCase087TheRootIsNotCapped) {
  EXPECT_THAT(ErrorOf([] { NDManager::System().Cap(); }), HasSubstr("is a root"));
  EXPECT_FALSE(NDManager::System().is_capped());
}

// DJL prints to the standard output: ids, and counts without what is lent.
TEST_P(DjlCap, DjlCase088TheDumpHasALineForEachManagerOfTheSubtree) {
  NDManager model = New("model"), request = model.NewSubManager("request");
  const NDArray x = In(model), y = In(model), z = In(request);
  request.TempAttach(x);
  model.Cap();
  std::ostringstream out;
  model.DebugDump(out);
  EXPECT_THAT(
      out.str(),
      MatchesRegex("model  host, [^;]*; 2 arrays, 32 B \\(peak 32 B\\), with sub-managers 3, "
                   "48 B, capped, [0-9.]+ s\n"
                   "  request  host, [^;]*; 1 array, 16 B \\(peak 16 B\\), 1 borrowed, "
                   "[0-9.]+ s\n"));
}

TEST_P(DjlCap, DjlCase089InALoopThatLeaksNothingCountsStayAndADiffSaysWhatGrew) {
  NDManager model = New("model");
  const NDArray weights = In(model, 2);
  const OwnershipSnapshot before = top().Snapshot();
  std::vector<NDArray> kept;
  for (int i = 0; i < 1000; ++i) {
    NDManager request = model.NewSubManager("request");
    ManagerScope scope(request);
    const NDArray y = weights * i + 1, z = y * y;
    kept.push_back(z);  // a handle keeps nothing
  }
  EXPECT_EQ(ToString(Diff(before, top().Snapshot())), "");
  kept = {weights * 2};
  EXPECT_EQ(ToString(Diff(before, top().Snapshot())),
            "top/model: managers 0, arrays +1, bytes +16, loans 0\n");
}

// DJL lists arrays that are closed or detached while they are lent.
TEST_P(DjlCap, DjlCase090TheListIsRecursiveHasWhatIsBorrowedAndNothingDead) {
  NDManager model = New("model"), request = model.NewSubManager("request");
  const NDArray x = In(model), y = In(request);
  NDArray dead = In(model);
  request.TempAttach(x);
  request.TempAttach(dead);
  dead.Close();
  const OwnershipSnapshot snapshot = model.Snapshot(true);
  ASSERT_EQ(snapshot.size(), 2u);
  ASSERT_EQ(snapshot[0].owned.size(), 1u);
  EXPECT_EQ(snapshot[0].owned[0].buffer_id, x.buffer()->id);
  EXPECT_FALSE(snapshot[0].owned[0].borrowed);
  ASSERT_EQ(snapshot[1].owned.size(), 2u);
  EXPECT_EQ(snapshot[1].owned[0].buffer_id, y.buffer()->id);
  EXPECT_TRUE(snapshot[1].owned[1].borrowed);
  EXPECT_EQ(snapshot[1].owned[1].buffer_id, x.buffer()->id);
}

TEST_P(DjlCap, DjlCase091NothingIsListedAfterClose) {
  NDManager model = New("model");
  const NDArray x = In(model);
  model.Close();
  EXPECT_TRUE(model.Snapshot(true).empty());
  std::ostringstream out;
  model.DebugDump(out, true);
  EXPECT_EQ(out.str(), "");
}

// DJL has the stack of the close alone.
TEST_P(DjlCap, DjlCase092WithTracingErrorsAndDumpsNameTheSites) {
  MemoryTracing::Enable();
  NDManager model = New("model");
  const NDArray x = model.Zeros({2, 2});
  std::ostringstream out;
  model.DebugDump(out, true);
  EXPECT_THAT(out.str(), HasSubstr("16 B, f32 [2, 2] made at "));
  model.Close();
  MemoryTracing::Disable();
  EXPECT_THAT(ErrorOf([&] { x + x; }),
              AllOf(HasSubstr("by owner [top/model] at "), HasSubstr("f32 [2, 2] made at ")));
}

TEST_P(DjlCap, DjlCase129ABudgetIsADistinctErrorWithTheDump) {
  NDManager model = New("model");
  model.SetBudget(64);
  NDManager request = model.NewSubManager("request");
  const NDArray x = In(model), y = In(request), z = In(request);
  try {
    request.Zeros({8});
    FAIL() << "beyond the budget";
  } catch (const OutOfMemoryError& error) {
    EXPECT_THAT(std::string(error.message()),
                AllOf(HasSubstr("owner [top/model/request]"), HasSubstr("budget 64 bytes")));
    EXPECT_THAT(std::string(error.report()), AllOf(HasSubstr("model  host"), HasSubstr("request")));
  }
  request.Close();
  EXPECT_TRUE(Alive(model.Zeros({8})));
}

}  // namespace
}  // namespace tidepool::djl
