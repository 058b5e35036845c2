// Where a manager's arrays are: in a workspace, in a cycle of its own, or where the thread is.
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_events.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/thread_state.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_core.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/manager/nd_manager.h"
#include "tidepool/ndarray/ops/elementwise.h"

namespace tidepool {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition) << error.message();
    return std::string(error.message());
  }
  return "nothing was thrown";
}

class NdManagerPlacesTest : public ::testing::Test {
 protected:
  NdManagerPlacesTest() : root_(NDManager::NewRoot("test")), model_(root_.NewSubManager("model")) {}
  NDManager root_, model_;
};

TEST_F(NdManagerPlacesTest, AScopeOfAManagerWithAWorkspaceMakesArraysThere) {
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

// What is kept of a workspace is a name: when the workspace is gone, nothing is made where it was.
TEST_F(NdManagerPlacesTest, APlaceWhoseWorkspaceIsGoneSaysSo) {
  auto workspace = std::make_unique<Workspace>("gone", WorkspaceConfig::Training());
  NDManager step = model_.NewSubManager("step", *workspace);
  NDManager below = step.NewSubManager("below");
  const Place in = Place::In(*workspace), of = step;
  Place here = Place::Current();
  {
    const WorkspaceScope open(*workspace);
    here = Place::Here();
    for (const Place& place : {in, of, here}) {
      EXPECT_EQ(Zeros({2}, DType::kFloat32, place).buffer()->owner->WorkspaceId(), "gone");
    }
  }
  EXPECT_EQ(MessageOf([&] { Zeros({2}, DType::kFloat32, in); }),
            "place: workspace [gone] is not open on this thread; enter it first");
  EXPECT_EQ(MessageOf([&] { step.Zeros({2}); }),
            "place of owner [model/step]: workspace [gone] is not open on this thread; enter it "
            "first");
  workspace.reset();
  // Others lie where it was.
  std::vector<std::unique_ptr<Workspace>> strangers;
  std::vector<std::unique_ptr<WorkspaceScope>> open;
  for (int i = 0; i < 8; ++i) {
    strangers.push_back(std::make_unique<Workspace>("stranger", WorkspaceConfig::Training()));
    open.push_back(std::make_unique<WorkspaceScope>(*strangers.back()));
  }
  for (const Place& place : {in, here}) {
    EXPECT_EQ(MessageOf([&] { Zeros({2}, DType::kFloat32, place); }),
              "place: workspace [gone] was destroyed; expected one that outlives what keeps it");
  }
  EXPECT_EQ(
      MessageOf([&] { Zeros({2}, DType::kFloat32, of); }),
      "place of owner [model/step]: workspace [gone] was destroyed; expected one that outlives "
      "what keeps it");
  EXPECT_THAT(MessageOf([&] { below.Ones({2}); }),
              HasSubstr("place of owner [model/step/below]: workspace [gone] was destroyed"));
  EXPECT_THAT(MessageOf([&] { ManagerScope scope(below); }),
              HasSubstr("place of owner [model/step/below]: workspace [gone] was destroyed"));
  const Device other{DeviceType::Named("simulated"), 0};
  EXPECT_THAT(MessageOf([&] { Zeros({2}, DType::kFloat32, in.OnDevice(other)); }),
              HasSubstr("workspace [gone] was destroyed"));
  std::ostringstream dump;
  model_.DebugDump(dump);
  EXPECT_THAT(dump.str(), HasSubstr("step  host, workspace gone (destroyed); 0 arrays"));
  while (!open.empty()) open.pop_back();
}

// Another thread's open workspace, and one that is open without a scope (as a captured step's is).
TEST_F(NdManagerPlacesTest, APlaceIsOpenWhereItsWorkspaceIs) {
  Workspace workspace("held", WorkspaceConfig::Training());
  NDManager step = model_.NewSubManager("step", workspace);
  {
    const WorkspaceScope open(workspace);
    std::thread([&] {
      EXPECT_THAT(MessageOf([&] { step.Ones({2}); }),
                  HasSubstr("workspace [held] is not open on this thread"));
    }).join();
  }
  workspace.core()->EnterFrame(CurrentThreadToken());
  EXPECT_EQ(step.Ones({2}).buffer()->owner->WorkspaceId(), "held");
  workspace.core()->LeaveFrame(/*failed=*/false);
}

TEST_F(NdManagerPlacesTest, ACycleOfAManagerEndsWithIt) {
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

TEST_F(NdManagerPlacesTest, AManagerWithoutAPlaceMakesArraysWhereTheThreadIs) {
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
TEST_F(NdManagerPlacesTest, ArraysOfACycleMoveLikeAnyButEndWithTheCycle) {
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

// At once, and not when the first array is made there.
TEST_F(NdManagerPlacesTest, ADeviceThatThereCannotBeIsRefusedWhereItIsNamed) {
  for (const Device device : {Device{DeviceType::kCuda, 16}, Device{DeviceType::kHost, 1}}) {
    for (const std::function<void()>& name : std::vector<std::function<void()>>{
             [&] { NDManager::NewBaseManager(device, "nowhere"); },
             [&] { root_.NewSubManager("nowhere", device); },
             [&] { NDManager::Null().NewSubManager("nowhere", device); },
             [&] { Ownership::Process().NewChild("nowhere", device); },
             [&] { Empty({0}, DType::kFloat32, Place::On(device)); },
             [&] { Place::Scratch(device); }, [&] { Place::CurrentOn(device); },
             [&] { Place::Here().OnDevice(device); }, [&] { Ones({0}).To(device); },
             [&] { BufferHandle(NewHeapBuffer(0, 64, MemoryKind::kAllocated, device)); },
             [&] { WorkspaceConfig().Validate("nowhere", device); },
             [&] { Workspace("nowhere", WorkspaceConfig(), device); }}) {
      try {
        name();
        ADD_FAILURE() << DeviceName(device) << " was taken";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
        EXPECT_THAT(error.message(), HasSubstr("found device "));
      }
    }
  }
}

// It is told of what a closing manager gives back when no lock of that is held: callbacks let go of arrays,
// whose ever they are, and look at managers.
TEST_F(NdManagerPlacesTest, CallbacksOfACloseMayUseTheManagerThatCloses) {
  constexpr int64_t kArray = 1 << 20;
  MemoryBudget& budget = MemoryBudget::Global();
  budget.SetDeviceLimit(Host(), budget.Of(Host()).taken_bytes + 10 * kArray);
  std::vector<NDArray> arrays;
  std::vector<MemoryLevel> levels;
  int64_t given_back = 0;
  const MemoryEventCallback watch([&](const MemoryEvent& event) {
    if (event.kind != MemoryEvent::Kind::kLevel) return;
    levels.push_back(event.level);
    given_back = event.request.bytes;
    if (event.level != MemoryLevel::kNormal) return;
    arrays.clear();
    EXPECT_THAT(model_.ToString(), HasSubstr("model"));
    EXPECT_THROW(model_.Create({4}), Error);
  });
  for (int i = 0; i < 9; ++i) arrays.push_back(model_.Create({kArray / 4}));
  model_.Close();
  EXPECT_THAT(levels, ::testing::ElementsAre(MemoryLevel::kHigh, MemoryLevel::kNormal));
  EXPECT_EQ(given_back, -9 * kArray);
  EXPECT_TRUE(arrays.empty());
  budget.SetDeviceLimit(Host(), INT64_MAX);
}

}  // namespace
}  // namespace tidepool
