// What goes wrong in a pool's cycles, and what goes back.
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/pool_service.h"
#include "tidepool/memory/workspace/workspace_pool.h"

namespace tidepool {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(WorkspacePool, AnArrayThatOutlivesItsCycleIsDetected) {
  WorkspacePool pool("requests", Quiet());
  BufferHandle late;
  for (int i = 0; i < 3; ++i) {
    late = {};
    PooledScope scope(pool);
    late = New(4096);
  }
  EXPECT_FALSE(late->IsAlive());
  EXPECT_THAT(late->owner->DescribeStale(late->stamp),
              HasSubstr("leaked workspace pointer from workspace [requests]"));
  EXPECT_EQ(pool.stats().leaked_arrays, 3u);
  EXPECT_EQ(pool.stats().open_bytes, 0u);
}

TEST(WorkspacePool, AFailedCycleTeachesNothingAndLeavesNothing) {
  WorkspacePool pool("p", Quiet());
  for (int i = 0; i < 5; ++i) {
    try {
      PooledScope scope(pool);
      const BufferHandle x = New(1 << 16);
      throw 1;
    } catch (int) {
    }
  }
  EXPECT_EQ(pool.stats().plans, 0u);
  EXPECT_EQ(pool.stats().failed_cycles, 5u);
  EXPECT_EQ(pool.stats().leased, 0u);
  EXPECT_EQ(pool.stats().open_bytes, 0u);
  {
    PooledScope scope(pool);
    Serve(2);
  }
  {
    PooledScope scope(pool);
    Serve(2);
  }
  EXPECT_EQ(pool.stats().plans, 1u);
}

TEST(WorkspacePool, MemoryGoesWithThePoolAndTrimGivesBackWhatIsIdle) {
  MemoryTracker& tracker = MemoryTracker::Global();
  const int64_t before = tracker.CurrentBytes(Host(), MemoryKind::kUnreferenced);
  {
    WorkspacePool pool("p", Quiet());
    for (int i = 0; i < 3; ++i) {
      PooledScope scope(pool);
      Serve(64);
    }
    EXPECT_GT(pool.stats().held_bytes, size_t{64 * 4096 * 3});
    EXPECT_EQ(tracker.CurrentBytes(Host(), MemoryKind::kUnreferenced) - before,
              static_cast<int64_t>(pool.stats().held_bytes));
    pool.Trim();
    EXPECT_EQ(pool.stats().held_bytes, 0u);
    EXPECT_EQ(pool.stats().workspaces, 0u);
    EXPECT_EQ(pool.stats().cycles, 3u) << "counts stay";
    EXPECT_EQ(tracker.CurrentBytes(Host(), MemoryKind::kUnreferenced), before);
    PooledScope scope(pool);
    Serve(64);
    EXPECT_EQ(pool.stats().plans, 1u) << "plans stay";
  }
  EXPECT_EQ(tracker.CurrentBytes(Host(), MemoryKind::kUnreferenced), before);
}

TEST(WorkspacePool, TheReclaimerTakesWhatIsIdleAlsoWhenAskedByThePoolItself) {
  WorkspacePool idle("idle", Quiet());
  for (int i = 0; i < 2; ++i) {
    PooledScope scope(idle);
    Serve(512);
  }
  const size_t held = idle.stats().held_bytes;
  ASSERT_GT(held, size_t{6} << 20);
  const int64_t now = MemoryBudget::Global().Of(Host()).taken_bytes;
  MemoryBudget::Global().SetDeviceLimit(Host(), now + (2 << 20));
  {
    WorkspacePool pool("p", Quiet());
    PooledScope scope(pool);
    Serve(384);
  }
  MemoryBudget::Global().SetDeviceLimit(Host(), MemoryBudget::kUnlimited);
  EXPECT_LT(idle.stats().held_bytes, held);
  PooledScope scope(idle);
  Serve(512);
  EXPECT_EQ(idle.stats().plans, 1u);
}

// The pool's memory may be refused: the cycle is served as far as there is any, errors leave all usable.
TEST(WorkspacePool, WithoutMemoryForARangeACycleFailsAndTheNextOneIsServed) {
  WorkspacePool pool("p", Quiet());
  for (int i = 0; i < 2; ++i) {
    PooledScope scope(pool);
    Serve(256);
  }
  pool.Trim();
  const int64_t now = MemoryBudget::Global().Of(Host()).taken_bytes;
  MemoryBudget::Global().SetDeviceLimit(Host(), now + (1 << 20));
  for (int i = 0; i < 3; ++i) {
    PooledScope scope(pool);
    EXPECT_THROW(Serve(256), OutOfMemoryError);
    EXPECT_NO_THROW(New(4096));
  }
  MemoryBudget::Global().SetDeviceLimit(Host(), MemoryBudget::kUnlimited);
  const uint64_t spills = pool.stats().spills;
  for (int i = 0; i < 3; ++i) {
    PooledScope scope(pool);
    Serve(256);
  }
  EXPECT_LE(pool.stats().spills, spills + 13);
}

TEST(WorkspacePool, MistakesAreErrors) {
  const auto refused = [](void (*change)(WorkspaceConfig&)) {
    WorkspaceConfig config = Quiet();
    change(config);
    try {
      WorkspacePool pool("p", config);
    } catch (const Error& error) {
      return error.message();
    }
    return std::string("taken");
  };
  EXPECT_THAT(refused([](WorkspaceConfig& c) { c.policy_learning = LearningPolicy::kOptimized; }),
              AllOf(HasSubstr("workspace pool [p]"), HasSubstr("policy_learning")));
  EXPECT_THAT(refused([](WorkspaceConfig& c) { c.policy_spill = SpillPolicy::kExternal; }),
              HasSubstr("policy_spill"));
  WorkspacePool legal("p", Quiet());
  PooledScope scope(legal);
  EXPECT_TRUE(scope.workspace().is_open());
  scope.Close();
  EXPECT_THROW((void)scope.workspace(), Error);
  EXPECT_THAT(refused([](WorkspaceConfig& c) { c.initial_size = 4096; }),
              HasSubstr("initial_size"));
  EXPECT_THAT(
      refused([](WorkspaceConfig& c) { c.policy_allocation = AllocationPolicy::kOverallocate; }),
      HasSubstr("kOverallocate"));
  EXPECT_THAT(refused([](WorkspaceConfig& c) { c.alignment = 3; }), HasSubstr("alignment"));
  WorkspacePool pool("p", Quiet());
  const WorkspaceLease lease = pool.Lease();
  for (void (*operation)(Workspace&) :
       {+[](Workspace& w) { w.Trim(); }, +[](Workspace& w) { w.Destroy(); },
        +[](Workspace& w) { w.Initialize(); }, +[](Workspace& w) { w.FinishPlanSearch(); },
        +[](Workspace& w) { w.SavePlans("/tmp/x"); },
        +[](Workspace& w) { w.LoadPlans("/tmp/x"); }}) {
    EXPECT_THROW(operation(*lease), Error);
  }
  EXPECT_TRUE(lease->PlannedRequests().empty());
}

TEST(WorkspacePool, LeasesOutliveThePoolAndWhatGoesBackOpenIsNotUsedAgain) {
  auto pool = std::make_unique<WorkspacePool>("p", Quiet());
  WorkspaceLease lease = pool->Lease();
  auto open = std::make_unique<WorkspaceLease>(pool->Lease());
  auto scope = std::make_unique<WorkspaceScope>(**open);
  BufferHandle x = New(4096);
  ::testing::internal::CaptureStderr();
  open = nullptr;
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("pool [p] goes back while it is open"));
  EXPECT_TRUE(x->IsAlive());
  std::memset(x->data, 1, x->bytes);
  EXPECT_EQ(pool->stats().workspaces, 1u);
  scope = nullptr;
  EXPECT_FALSE(x->IsAlive());
  pool = nullptr;
  for (int i = 0; i < 3; ++i) {
    WorkspaceScope again(*lease);
    Serve(2);
  }
  EXPECT_EQ(lease->stats().misses, 0u);
  lease.Release();
  EXPECT_FALSE(lease);
}

// A scope that is destroyed elsewhere is left to its thread; the lease goes back at once.
TEST(WorkspacePool, ACycleThatIsOpenWhenItsWorkspaceGoesBackHasFailed) {
  WorkspacePool pool("p", Quiet());
  for (int i = 0; i < 3; ++i) {
    auto scope = std::make_unique<PooledScope>(pool);
    Serve(2);
    ::testing::internal::CaptureStderr();
    std::thread([&] { scope = nullptr; }).join();
    EXPECT_EQ(pool.stats().failed_cycles, 1u + i);
    {
      PooledScope next(pool);
      Serve(2);
    }
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                HasSubstr("was destroyed on another thread"));
    EXPECT_EQ(pool.stats().cycles, 2u + 2 * i);
    EXPECT_EQ(pool.stats().failed_cycles, 1u + i) << "once";
  }
  EXPECT_EQ(pool.stats().leased, 0u);
  EXPECT_EQ(pool.stats().open_bytes, 0u);
}

TEST(WorkspacePool, AScopeThatIsAssignedEndsBeforeItsWorkspaceGoesBack) {
  WorkspacePool pool("p", Quiet());
  PooledScope scope(pool);
  PooledScope moved(std::move(scope));
  New(100);
  ::testing::internal::CaptureStderr();
  moved = PooledScope(pool);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              Not(HasSubstr("goes back while it is open")));
  EXPECT_EQ(pool.stats().workspaces, 2u);
  EXPECT_EQ(pool.stats().leased, 1u);
  EXPECT_EQ(pool.stats().cycles, 1u);
  const BufferHandle array = New(200);
  EXPECT_EQ(pool.stats().open_bytes, moved.workspace().size());
  EXPECT_TRUE(array->IsAlive());
  moved.Close();
  EXPECT_FALSE(array->IsAlive());
  EXPECT_EQ(pool.stats().failed_cycles, 0u);
}

TEST(WorkspacePool, PlansAreSavedAndLoaded) {
  const std::string path = ::testing::TempDir() + "pool.plans";
  {
    WorkspacePool pool("p", Quiet());
    for (size_t kind : {1, 2, 3}) {
      PooledScope scope(pool);
      Serve(kind);
    }
    pool.SavePlans(path);
  }
  WorkspacePool pool("p", Quiet());
  const PlansLoaded loaded = pool.LoadPlans(path);
  EXPECT_EQ(loaded.plans, 3u) << loaded.ignored;
  for (size_t kind : {3, 1, 2}) {
    PooledScope scope(pool);
    Serve(kind);
  }
  EXPECT_EQ(pool.stats().spills, 0u);
  EXPECT_EQ(pool.stats().plans_kept, 3u);
  EXPECT_THAT(pool.LoadPlans(path + ".none").ignored, HasSubstr("pool.plans.none"));
}

}  // namespace
}  // namespace tidepool
