// Every way out of a scope: values and type kept, views made dense, where the result lives, what is
// refused.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

struct Mover {
  const char* name;
  std::function<NDArray(const NDArray&)> move;
};

// The workspaces are called "outer" and "inner" below.
std::vector<Mover> Movers() {
  return {
      {"dup", [](const NDArray& x) { return x.Dup(); }},
      {"detach", [](const NDArray& x) { return x.Detach(); }},
      {"leverage", [](const NDArray& x) { return x.Leverage(); }},
      {"leverage_to", [](const NDArray& x) { return x.LeverageTo("outer"); }},
      {"leverage_or_detach", [](const NDArray& x) { return x.LeverageOrDetach("outer"); }},
      {"migrate", [](const NDArray& x) { return x.Migrate(); }},
  };
}

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition);
    return error.message();
  }
  return "nothing was thrown";
}

// The name of its workspace, or "heap".
std::string Home(const NDArray& x) {
  return x.IsAttached() ? x.buffer()->owner->WorkspaceId() : "heap";
}
bool SameBytes(const NDArray& a, const NDArray& b) { return a.buffer().get() == b.buffer().get(); }

TEST(Movers, WhereResultsLive) {
  Workspace outer("outer"), inner("inner");
  WorkspaceScope outer_scope(outer), inner_scope(inner);
  const NDArray x = Arange(0, 4);
  const std::vector<std::string> homes = {"inner", "heap", "outer", "outer", "outer", "inner"};
  const std::vector<Mover> movers = Movers();
  for (size_t i = 0; i < movers.size(); ++i) {
    const NDArray moved = movers[i].move(x);
    EXPECT_EQ(Home(moved), homes[i]) << movers[i].name;
    EXPECT_THAT(moved.ToVector<float>(), ElementsAre(0, 1, 2, 3)) << movers[i].name;
  }
  EXPECT_FALSE(SameBytes(x.Dup(), x));
  EXPECT_TRUE(SameBytes(x.Migrate(), x));  // is there already
}

TEST(Movers, KeepTypeAndMakeViewsDense) {
  Workspace outer("outer"), inner("inner");
  WorkspaceScope outer_scope(outer), inner_scope(inner);
  const NDArray x = Arange(0, 6, 1, DType::kInt64).Reshape({2, 3}).Transpose();
  for (const Mover& mover : Movers()) {
    if (std::string(mover.name) == "migrate") continue;  // in its own workspace: unmoved
    const NDArray moved = mover.move(x);
    EXPECT_EQ(moved.dtype(), DType::kInt64) << mover.name;
    EXPECT_EQ(moved.shape(), (Shape{3, 2})) << mover.name;
    EXPECT_TRUE(moved.is_dense()) << mover.name;
    EXPECT_THAT(moved.ToVector<int64_t>(), ElementsAre(0, 3, 1, 4, 2, 5)) << mover.name;
  }
}

TEST(Movers, OutsideOfWorkspaces) {
  const NDArray x = Arange(0, 3);
  EXPECT_FALSE(SameBytes(x.Dup(), x));
  EXPECT_TRUE(SameBytes(x.Detach(), x));
  EXPECT_TRUE(SameBytes(x.Leverage(), x));
  EXPECT_TRUE(SameBytes(x.LeverageTo("nowhere"), x));  // not attached: nothing to move
  EXPECT_TRUE(SameBytes(x.LeverageOrDetach("nowhere"), x));
  EXPECT_TRUE(SameBytes(x.Migrate(), x));
  EXPECT_TRUE(SameBytes(x.Migrate(true), x));
}

// It outlives every cycle already; in a workspace it would not.
TEST(Movers, LeveragingAHeapArrayLeavesItOnTheHeapWhateverIsOpen) {
  const NDArray x = Arange(0, 3);
  NDArray leveraged;
  {
    Workspace outer("outer"), inner("inner");
    WorkspaceScope outer_scope(outer), inner_scope(inner);
    leveraged = x.LeverageTo("outer");
    EXPECT_TRUE(SameBytes(leveraged, x));
    EXPECT_TRUE(SameBytes(x.LeverageTo("inner"), x));
    EXPECT_TRUE(SameBytes(x.LeverageTo("nowhere"), x));
    EXPECT_TRUE(SameBytes(x.LeverageOrDetach("outer"), x));
    EXPECT_TRUE(SameBytes(x.Leverage(), x));
    EXPECT_EQ(Home(x.Migrate()), "inner");
    EXPECT_EQ(outer.stats().requested_bytes, 0u);
    const NDArray view = x.Slice(0, 0, 3, 2).LeverageTo("outer");
    EXPECT_TRUE(SameBytes(view, x));
    EXPECT_FALSE(view.is_dense());  // not moved, so not made dense
  }
  EXPECT_THAT(leveraged.ToVector<float>(), ElementsAre(0, 1, 2));
}

TEST(Movers, ResultsOutliveTheCycle) {
  Workspace outer("outer"), inner("inner");
  WorkspaceScope outer_scope(outer);
  NDArray leveraged, detached, lost;
  {
    WorkspaceScope inner_scope(inner);
    lost = Full({3}, 7);
    leveraged = lost.Leverage();
    detached = lost.Detach();
  }
  EXPECT_THAT(leveraged.ToVector<float>(), ElementsAre(7, 7, 7));
  EXPECT_THAT(detached.ToVector<float>(), ElementsAre(7, 7, 7));
  EXPECT_FALSE(lost.IsInScope());
  outer_scope.Close();
  EXPECT_FALSE(leveraged.IsInScope());
  EXPECT_TRUE(detached.IsInScope());
}

TEST(Movers, LeverageGoesToTheParentOrTheHeap) {
  Workspace outer("outer"), inner("inner");
  WorkspaceScope outer_scope(outer);
  const NDArray x = Ones({2});
  EXPECT_EQ(Home(x.Leverage()), "heap");  // no parent
  WorkspaceScope inner_scope(inner);
  EXPECT_TRUE(SameBytes(x.Leverage(), x));  // lives in the parent
  {
    WorkspaceScope again(inner);  // nested: the parent is still the outer one
    EXPECT_EQ(Home(Ones({2}).Leverage()), "outer");
  }
  EXPECT_EQ(Home(Ones({2}).Leverage()), "outer");
}

// What leverages moves must not end earlier: the parent is that of the workspace, not the next
// scope.
TEST(Movers, TheParentIsTheWorkspacesWhereverItIsCurrentAgain) {
  Workspace first("first"), outer("outer"), inner("inner"), third("third");
  for (const bool has_parent : {false, true}) {
    std::optional<WorkspaceScope> first_scope;
    if (has_parent) first_scope.emplace(first);
    const std::string parent = has_parent ? "first" : "heap";
    WorkspaceScope outer_scope(outer);
    const NDArray x = Ones({2});
    NDArray borrowed, again;
    {
      WorkspaceScope inner_scope(inner);
      const NDArray y = Ones({2});
      {
        BorrowScope borrow(outer);
        borrowed = x.Leverage();
        EXPECT_EQ(Home(borrowed), parent);
        EXPECT_EQ(Home(y.Leverage()), parent);
        WorkspaceScope third_scope(third);  // begins where outer is current
        EXPECT_EQ(Home(Ones({2}).Leverage()), "outer");
      }
      WorkspaceScope re_entered(outer);
      again = x.Leverage();
      EXPECT_EQ(Home(again), parent);
      WorkspaceScope inner_again(inner);
      EXPECT_EQ(Home(Ones({2}).Leverage()), "outer");
    }
    EXPECT_TRUE(borrowed.IsInScope());
    EXPECT_TRUE(again.IsInScope());
  }
}

TEST(Movers, LeverageWithoutACurrentWorkspaceGoesToTheHeap) {
  Workspace outer("outer"), inner("inner");
  WorkspaceScope outer_scope(outer), inner_scope(inner);
  const NDArray x = Ones({2});
  ScopeOutOfWorkspaces out;
  const NDArray leveraged = x.Leverage();
  EXPECT_EQ(Home(leveraged), "heap");
}

TEST(Movers, LeverageOutOfWorkspacesUnderAScopeOut) {
  Workspace outer("outer"), inner("inner");
  WorkspaceScope outer_scope(outer);
  ScopeOutOfWorkspaces out;
  WorkspaceScope inner_scope(inner);
  EXPECT_EQ(Home(Ones({2}).Leverage()), "heap");  // the parent place is the heap
}

TEST(Movers, LeverageToNeedsTheWorkspaceOpen) {
  Workspace outer("outer"), inner("inner");
  WorkspaceScope inner_scope(inner);
  const NDArray x = Ones({2});
  EXPECT_EQ(MessageOf([&] { x.LeverageTo("outer"); }),
            "Op [leverage_to]: workspace [outer] is not open on this thread; open: inner");
  EXPECT_EQ(Home(x.LeverageOrDetach("outer")), "heap");
  EXPECT_TRUE(SameBytes(x.LeverageTo("inner"), x));
  EXPECT_TRUE(SameBytes(x.LeverageOrDetach("inner"), x));
}

TEST(Movers, MigrateGoesToTheCurrentWorkspace) {
  Workspace outer("outer"), inner("inner");
  const NDArray heap = Ones({2});
  WorkspaceScope outer_scope(outer);
  EXPECT_EQ(Home(heap.Migrate()), "outer");
  const NDArray x = Ones({2});
  {
    WorkspaceScope inner_scope(inner);
    EXPECT_EQ(Home(x.Migrate()), "inner");
  }
  ScopeOutOfWorkspaces out;
  EXPECT_TRUE(SameBytes(x.Migrate(), x));
  EXPECT_EQ(Home(x.Migrate(true)), "heap");
}

TEST(Movers, SwitchedOffWorkspacesPassThrough) {
  WorkspaceConfig config;
  config.debug_mode = DebugMode::kBypassEverything;
  Workspace off("off", config), inner("inner");
  WorkspaceScope off_scope(off), inner_scope(inner);
  EXPECT_EQ(Home(Ones({2}).LeverageTo("off")), "heap");
  EXPECT_EQ(Home(Ones({2}).LeverageOrDetach("off")), "heap");
  EXPECT_EQ(Home(Ones({2}).Leverage()), "heap");
}

TEST(Movers, EmptyViewsLetTheWorkspaceGo) {
  Workspace outer("outer");
  NDArray detached, plain;
  {
    WorkspaceScope scope(outer);
    const NDArray x = Ones({2, 3}).Slice(1, 1, 1);
    detached = x.Detach();
    plain = Zeros({0}).Dup();
  }
  EXPECT_EQ(detached.shape(), (Shape{2, 0}));
  EXPECT_TRUE(detached.IsInScope());
  EXPECT_TRUE(plain.IsInScope());
  EXPECT_TRUE(detached.ToVector<float>().empty());
}

TEST(Movers, RefuseStaleArrays) {
  Workspace outer("outer"), external("LOOP_EXTERNAL");
  NDArray x;
  {
    WorkspaceScope scope(external);
    x = Ones({2});
  }
  WorkspaceScope scope(outer);
  for (const Mover& mover : Movers()) {
    EXPECT_EQ(MessageOf([&] { mover.move(x); }),
              std::string("Op [") + mover.name +
                  "] X argument uses leaked workspace pointer from workspace [LOOP_EXTERNAL] (made "
                  "in generation 1; the workspace is closed after generation 1)");
  }
  {
    WorkspaceScope again(external);
    for (const Mover& mover : Movers()) {
      EXPECT_THAT(MessageOf([&] { mover.move(x); }),
                  StartsWith(std::string("Op [") + mover.name +
                             "] X argument uses outdated workspace pointer from workspace "
                             "[LOOP_EXTERNAL]"));
    }
  }
  external.Destroy();
  EXPECT_THAT(MessageOf([&] { x.Detach(); }), StartsWith("Op [detach] X argument uses leaked"));
}

TEST(Movers, RefuseArraysOfDestroyedWorkspaces) {
  NDArray x;
  {
    Workspace gone("gone");
    WorkspaceScope scope(gone);
    x = Ones({2});
  }
  EXPECT_EQ(MessageOf([&] { x.Detach(); }),
            "Op [detach] X argument uses leaked workspace pointer from workspace [gone] (made in "
            "generation 1; the workspace was destroyed)");
}

TEST(Movers, RefuseClosedArrays) {
  NDArray x = Ones({2});
  x.Close();
  for (const Mover& mover : Movers()) {
    EXPECT_EQ(
        MessageOf([&] { mover.move(x); }),
        std::string("Op [") + mover.name + "] X argument was closed before the call (shape [2])");
  }
}

}  // namespace
}  // namespace tidepool
