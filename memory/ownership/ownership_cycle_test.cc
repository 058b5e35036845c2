// Nodes whose place is a workspace's next cycle, which ends with them.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace.h"

namespace tidepool {
namespace {

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

TEST(OwnershipCycleTest, AParentClosesACycleBeforeItsOwnerDoes) {
  Workspace workspace("steps", WorkspaceConfig::Training());
  Ownership root = Ownership::NewRoot("test");
  Ownership trainer = root.NewChild("trainer");
  Ownership batch = trainer.NewCycle("batch", workspace);
  const BufferHandle x(AllocateHere(256));
  ASSERT_TRUE(LinkNew(x.get(), batch.ref().bits()));
  trainer.Close();
  EXPECT_FALSE(x->IsAlive());
  EXPECT_TRUE(workspace.is_open());  // the scope is the batch's
  batch = Ownership();
  EXPECT_FALSE(workspace.is_open());
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
