// Nodes whose place is a workspace's next cycle, which ends with them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/memory/ownership/ownership_snapshot.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace.h"

namespace tidepool {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

BufferHandle Heap(size_t bytes = 64) { return BufferHandle(NewHeapBuffer(bytes)); }

TEST(OwnershipCycleTest, ACycleEndsWithItsNodeAndTakesItsArraysAtOnce) {
  Workspace workspace("steps", WorkspaceConfig::Training());
  Ownership root = Ownership::NewRoot("test");
  for (int step = 0; step < 5; ++step) {
    Ownership batch = root.NewCycle("batch", workspace);
    const BufferHandle x(AllocateHere(256)), heap = Heap();
    ASSERT_TRUE(LinkNew(x.get(), batch.ref().bits()));
    batch.Attach(heap);
    EXPECT_EQ(batch.arrays(), 2);
    EXPECT_THROW(root.NewCycle("again", workspace), Error);
    batch.Close();
    EXPECT_FALSE(x->IsAlive());
    EXPECT_FALSE(heap->IsAlive());
    EXPECT_FALSE(workspace.is_open());
    EXPECT_EQ(batch.arrays(), 0);
  }
  EXPECT_EQ(workspace.stats().leaked_arrays, 0u);
  EXPECT_EQ(workspace.cycles(), 5u);
}

// The scope is the node's: whoever closes that ends the cycle, whatever handles of it are left.
TEST(OwnershipCycleTest, AParentThatClosesEndsTheCyclesBelowIt) {
  Workspace workspace("steps", WorkspaceConfig::Training()),
      other("inner", WorkspaceConfig::Training());
  for (const bool empty : {false, true}) {
    Ownership root = Ownership::NewRoot("test");
    Ownership trainer = root.NewChild("trainer");
    Ownership batch = trainer.NewCycle("batch", workspace);
    Ownership part = batch.NewCycle("part", other);
    BufferHandle x, y;
    if (!empty) {
      x = BufferHandle(AllocateHere(256));
      ASSERT_TRUE(LinkNew(x.get(), part.ref().bits()));
      y = Heap();
      batch.Attach(y);
    }
    trainer.Close();
    EXPECT_FALSE(other.is_open());
    EXPECT_FALSE(workspace.is_open());
    EXPECT_EQ(CurrentPlace(), nullptr);
    if (!empty) {
      EXPECT_FALSE(x->IsAlive());
      EXPECT_FALSE(y->IsAlive());
    }
    Ownership again = root.NewCycle("again", workspace);
    batch = Ownership();  // ends nothing that is not its own
    EXPECT_TRUE(workspace.is_open());
  }
  EXPECT_EQ(workspace.cycles(), 4u);
}

// The cycle is left to the thread that began it, as that of a scope which goes elsewhere.
TEST(OwnershipCycleTest, AParentThatClosesElsewhereLeavesTheCycleToItsThread) {
  Workspace workspace("steps", WorkspaceConfig::Training());
  Ownership root = Ownership::NewRoot("test");
  {
    Ownership trainer = root.NewChild("trainer");
    Ownership batch = trainer.NewCycle("batch", workspace);
    const BufferHandle x(AllocateHere(256));
    ASSERT_TRUE(LinkNew(x.get(), batch.ref().bits()));
    std::thread([&] { trainer.Close(); }).join();
    EXPECT_FALSE(x->IsAlive());
    Ownership again = root.NewCycle("again", workspace);  // ends it first
    again.Close();
    EXPECT_FALSE(workspace.is_open());
  }
  {
    Ownership trainer = root.NewChild("trainer");
    Ownership batch = trainer.NewCycle("batch", workspace);
    std::thread([&] { trainer.Close(); }).join();
    batch = Ownership();  // at the latest
    EXPECT_FALSE(workspace.is_open());
  }
  EXPECT_EQ(workspace.cycles(), 3u);
}

TEST(OwnershipCycleTest, ACycleThatBeginsInANullOwnerEndsWithThat) {
  Workspace workspace("steps", WorkspaceConfig::Training());
  Ownership null = Ownership::Null();
  Ownership batch = null.NewCycle("batch", workspace);
  EXPECT_TRUE(workspace.is_open());
  Ownership moved = std::move(batch);
  EXPECT_TRUE(workspace.is_open());
  moved.Close();
  EXPECT_FALSE(workspace.is_open());
}

std::string MessageOf(absl::FunctionRef<void()> function) {
  return std::string(CatchStatus(function).message());
}

// Others come to lie where the workspace was: what is asked for is never made in them.
TEST(OwnershipCycleTest, ANodeWhoseWorkspaceIsGoneSaysSo) {
  Ownership root = Ownership::NewRoot("test");
  auto workspace = std::make_unique<Workspace>("gone", WorkspaceConfig::Training());
  Ownership step = root.NewChild("step", *workspace);
  Ownership below = step.NewChild("below");
  EXPECT_EQ(SnapshotOf(step)[0].place, "workspace gone");
  std::thread([&] { workspace.reset(); }).join();
  std::vector<std::unique_ptr<Workspace>> strangers;
  std::vector<std::unique_ptr<WorkspaceScope>> open;
  for (int i = 0; i < 8; ++i) {
    strangers.push_back(std::make_unique<Workspace>("stranger", WorkspaceConfig::Training()));
    open.push_back(std::make_unique<WorkspaceScope>(*strangers.back()));
  }
  EXPECT_THAT(MessageOf([&] { const OwnershipScope scope(step); }),
              AllOf(HasSubstr("owner [step]"), HasSubstr("workspace [gone] was destroyed")));
  EXPECT_THAT(MessageOf([&] { const OwnershipScope scope(below); }),
              AllOf(HasSubstr("owner [step/below]"), HasSubstr("workspace [gone] was destroyed")));
  EXPECT_EQ(current_owner.ref, 0u);
  EXPECT_EQ(SnapshotOf(step)[0].place, "workspace gone (destroyed)");
  while (!open.empty()) open.pop_back();
}

// The ids of workspaces long gone are forgotten, that they are gone is not.
TEST(OwnershipCycleTest, AWorkspaceThatIsLongGoneIsGone) {
  Ownership root = Ownership::NewRoot("test");
  auto workspace = std::make_unique<Workspace>("long ago", WorkspaceConfig::Training());
  Ownership step = root.NewChild("step", *workspace);
  for (int i = 0; i < 1100; ++i) {
    if (i == 50) workspace.reset();
    const Workspace later("later", WorkspaceConfig::Training());
  }
  EXPECT_EQ(SnapshotOf(step)[0].place, "workspace (destroyed)");
  EXPECT_THAT(MessageOf([&] { const OwnershipScope scope(step); }),
              HasSubstr("workspace [] was destroyed"));
}

// Of a workspace that is destroyed while it is open, until its scopes end.
TEST(OwnershipCycleTest, AWorkspaceThatIsDestroyedWhileOpenServesUntilItsScopesEnd) {
  Ownership root = Ownership::NewRoot("test");
  auto workspace = std::make_unique<Workspace>("short", WorkspaceConfig::Training());
  Ownership step = root.NewChild("step", *workspace);
  auto open = std::make_unique<WorkspaceScope>(*workspace);
  workspace.reset();
  {
    const OwnershipScope scope(step);
    const BufferHandle x(AllocateHere(64));
    EXPECT_TRUE(x->IsAlive());
  }
  open.reset();
  EXPECT_THAT(MessageOf([&] { const OwnershipScope scope(step); }),
              HasSubstr("workspace [short] was destroyed"));
}

// Scopes that were destroyed on another thread end when a node is entered, before its place is looked for.
TEST(OwnershipCycleTest, EnteringEndsScopesThatWereDestroyedOnAnotherThread) {
  Ownership root = Ownership::NewRoot("test");
  Workspace workspace("w", WorkspaceConfig::Training());
  const Ownership in_it = root.NewChild("in it", workspace);
  const Ownership anywhere = root.NewChild("anywhere"), null = Ownership::Null();
  for (const Ownership* owner : {&in_it, &anywhere, &null}) {
    auto left = std::make_unique<WorkspaceScope>(workspace);
    const BufferHandle x(AllocateHere(64));
    std::thread([&] { left.reset(); }).join();
    EXPECT_TRUE(x->IsAlive());
    const std::string error = MessageOf([&] { const OwnershipScope scope(*owner); });
    if (owner == &in_it) {
      EXPECT_THAT(error, HasSubstr("is not open on this thread"));
    } else {
      EXPECT_EQ(error, "");
    }
    EXPECT_FALSE(x->IsAlive());
  }
}

// The cycle of a node may end without it: with its thread. What is attached later is closed as any.
TEST(OwnershipCycleTest, WhatComesAfterTheCycleIsClosedWithTheNode) {
  Ownership root = Ownership::NewRoot("test");
  Workspace workspace("steps", WorkspaceConfig::Training());
  Ownership batch;
  std::thread([&] { batch = root.NewCycle("batch", workspace); }).join();
  EXPECT_FALSE(workspace.is_open());
  const WorkspaceScope scope(workspace);
  const BufferHandle x(AllocateHere(256));
  batch.Attach(x);
  batch.Close();
  EXPECT_FALSE(x->IsAlive());
  EXPECT_TRUE(workspace.is_open());
}

TEST(OwnershipCycleTest, ANodeThatClosesBeforeAScopeOfItsCycleClosesItsArrays) {
  Ownership root = Ownership::NewRoot("test");
  Workspace workspace("steps", WorkspaceConfig::Training());
  Ownership batch = root.NewCycle("batch", workspace);
  const WorkspaceScope inner(workspace);
  const BufferHandle x(AllocateHere(256)), y(AllocateHere(256));
  ASSERT_TRUE(LinkNew(x.get(), batch.ref().bits()));
  batch.Close();
  EXPECT_FALSE(x->IsAlive());
  EXPECT_TRUE(y->IsAlive());  // its handles'
  EXPECT_TRUE(workspace.is_open());
}

// What ended with its cycle counts no more when there would be no room otherwise, wherever it is below the
// budget, and whatever handles of it are left.
TEST(OwnershipCycleTest, ABudgetHasRoomForWhatEndedWithItsCycle) {
  Ownership root = Ownership::NewRoot("test");
  Workspace workspace("steps", WorkspaceConfig::Training());
  Ownership keeper = root.NewChild("keeper");
  keeper.SetBudget(256);
  Ownership below = keeper.NewChild("below"), borrower = root.NewChild("borrower");
  const BufferHandle heap = Heap(256);
  const BufferHandle* const all[] = {&heap};
  for (int way = 0; way < 4; ++way) {
    BufferHandle x, y;
    {
      const WorkspaceScope scope(workspace);
      x = BufferHandle(AllocateHere(128));
      y = BufferHandle(AllocateHere(128));
      keeper.Attach(x);
      below.Attach(y);
      borrower.Lend(y);
      EXPECT_THROW(CheckMayOwn(below.ref().bits(), 256, "Op"), OutOfMemoryError);
      EXPECT_THROW(keeper.Attach(heap), OutOfMemoryError);
      EXPECT_TRUE(x->IsAlive() && y->IsAlive());
      EXPECT_EQ(keeper.arrays() + below.arrays(), 2);
    }
    ASSERT_FALSE(x->IsAlive() || y->IsAlive());
    switch (way) {
      case 0:
        keeper.Attach(heap);
        break;
      case 1:
        below.AttachAll(all);
        break;
      case 2:
        CheckMayOwn(below.ref().bits(), 256, "Op");
        ASSERT_TRUE(LinkNew(BufferHandle(NewHeapBuffer(256)).get(), below.ref().bits()));
        break;
      case 3:
        below.Attach(heap);
        below.Return(heap);
        break;
    }
    EXPECT_EQ(keeper.arrays() + below.arrays(), way == 2 ? 0 : 1);
    keeper.Detach(heap);
    below.Detach(heap);
    if (way == 1) borrower.Close(), borrower = root.NewChild("borrower");
  }
  EXPECT_EQ(keeper.bytes(), 0);
  EXPECT_EQ(below.bytes(), 0);
  EXPECT_EQ(borrower.loans(), 0);
  keeper.Attach(heap);
  EXPECT_THROW(below.Attach(Heap(1)), OutOfMemoryError);
}

// Drops a handle when it is closed: on this thread or on another one.
class Dropper final : public OwnedResource {
 public:
  Dropper(BufferHandle handle, bool elsewhere)
      : handle_(std::move(handle)), elsewhere_(elsewhere) {}
  void Close() override {
    if (!elsewhere_) return handle_.Reset();
    std::thread([this] { handle_.Reset(); }).join();
  }
  std::string Describe() const override { return "dropper"; }

 private:
  BufferHandle handle_;
  bool elsewhere_;
};

// The cycle's arrays have left the node when its resources are closed.
TEST(OwnershipCycleTest, AHandleThatGoesWhileResourcesCloseTouchesNoList) {
  Ownership root = Ownership::NewRoot("test");
  for (const bool elsewhere : {false, true}) {
    Workspace workspace("steps", WorkspaceConfig::Training());
    BufferHandle older;
    {
      Ownership batch = root.NewCycle("batch", workspace);
      older = BufferHandle(AllocateHere(256));
      BufferHandle newer(AllocateHere(256));
      ASSERT_TRUE(LinkNew(older.get(), batch.ref().bits()));
      ASSERT_TRUE(LinkNew(newer.get(), batch.ref().bits()));
      batch.Own(std::make_unique<Dropper>(std::move(newer), elsewhere));
      batch.Close();
      EXPECT_EQ(batch.arrays(), 0);
      EXPECT_EQ(batch.bytes(), 0);
    }
    Ownership unrelated = root.NewChild("unrelated");  // the same record
    EXPECT_EQ(unrelated.arrays(), 0);
    // The older array's record serves again.
    older.Reset();
    Ownership live = root.NewCycle("live", workspace);
    BufferHandle arrays[3];
    for (BufferHandle& x : arrays) {
      x = BufferHandle(AllocateHere(256));
      ASSERT_TRUE(LinkNew(x.get(), live.ref().bits()));
    }
    unrelated.Close();
    for (const BufferHandle& x : arrays) EXPECT_TRUE(x->IsAlive());
    EXPECT_EQ(live.arrays(), 3);
  }
}

}  // namespace
}  // namespace tidepool
