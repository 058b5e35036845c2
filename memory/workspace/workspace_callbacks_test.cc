// Callbacks of memory events and of the Reclaimer are called in the middle of something. What they
// do to the workspace or the pool that is in the middle of it, on the same thread or another, does
// no harm.
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_events.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/pmr/block_bytes.h"
#include "tidepool/memory/workspace/pool_service.h"
#include "tidepool/memory/workspace/ring.h"
#include "tidepool/memory/workspace/workspace_pool.h"

namespace tidepool {
namespace {

using ::testing::HasSubstr;

constexpr size_t kMiB = size_t{1} << 20;

// Of the process: told of when it is reached, and when memory goes back below it.
struct Limit {
  explicit Limit(int64_t more_bytes) {
    MemoryBudget& budget = MemoryBudget::Global();
    budget.SetProcessLimit(budget.process().taken_bytes + more_bytes);
  }
  ~Limit() { MemoryBudget::Global().SetProcessLimit(MemoryBudget::kUnlimited); }
};

// Blocks that are kept, for something to give back.
void UseBlocks(Workspace& workspace) {
  std::vector<void*> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(AllocateBytes(workspace, 3 * kMiB));
  for (void* block : blocks) ReleaseBytes(block, 3 * kMiB);
}
void CycleOfBlocks(Workspace& workspace) {
  const WorkspaceScope scope(workspace);
  UseBlocks(workspace);
}

// Calls `act` once, the first time that memory goes back.
class OnceAtLevel {
 public:
  explicit OnceAtLevel(std::function<void()> act)
      : act_(std::move(act)), watch_([this](const MemoryEvent& event) {
          if (event.kind == MemoryEvent::Kind::kLevel && event.request.bytes < 0 &&
              !called_.exchange(true)) {
            act_();
          }
        }) {}
  ~OnceAtLevel() { EXPECT_TRUE(called_); }

 private:
  const std::function<void()> act_;
  std::atomic<bool> called_{false};
  const MemoryEventCallback watch_;
};

void ExpectRefused(const std::function<void()>& act, const std::string& why) {
  const absl::Status status = CatchStatus(act);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr(why));
}

// ---- in a cycle ---------------------------------------------------------------------------------

// In the middle of a request, which is served or refused afterwards.
TEST(ReclaimersCallback, MakesArraysOutsideOfTheCycleOfItsThread) {
  for (const bool pooled : {false, true}) {
    for (const bool served : {false, true}) {
      SCOPED_TRACE(testing::Message() << pooled << served);
      BufferHandle kept;
      void* block = nullptr;
      const auto cache = Reclaimer::Global().Register("cache", [&](ReclaimDepth) -> int64_t {
        EXPECT_EQ(CurrentPlace(), nullptr);
        kept = New(1000);
        std::memset(kept->data, 3, 1000);
        if (block == nullptr) block = AllocateBytesHere(100);
        if (served) MemoryBudget::Global().SetProcessLimit(MemoryBudget::kUnlimited);
        return served;
      });
      WorkspacePool pool("p", Quiet());
      Workspace own("w", Quiet());
      for (int cycle = 0; cycle < 4; ++cycle) {
        std::optional<PooledScope> leased;
        if (pooled) leased.emplace(pool);
        Workspace& workspace = pooled ? leased->workspace() : own;
        const WorkspaceScope scope(workspace);
        const BufferHandle first = New(2000);
        const Limit limit(3 * kMiB);
        const size_t bytes = (5 + cycle) * kMiB;  // more than the cycle before
        if (served) {
          New(bytes);
        } else {
          EXPECT_THROW(New(bytes), OutOfMemoryError);
        }
        ASSERT_TRUE(kept);
        EXPECT_EQ(kept->owner->WorkspaceId(), "");
        const BufferHandle last = New(3000);
        EXPECT_EQ(kept->data[999], std::byte{3});
      }
      EXPECT_TRUE(kept->IsAlive());
      EXPECT_EQ(own.stats().leaked_arrays + pool.stats().leaked_arrays, 0u);
      EXPECT_EQ(own.stats().leaked_blocks + pool.stats().leaked_blocks, 0u);
      ReleaseBytes(block, 100);
    }
  }
}

TEST(ReclaimersCallback, LeavesTheScopesOfItsThreadAlone) {
  Workspace workspace("w"), other("o");
  std::optional<WorkspaceScope> scope;
  int calls = 0;
  const auto cache = Reclaimer::Global().Register("cache", [&](ReclaimDepth) -> int64_t {
    ++calls;
    const WorkspaceScope elsewhere(other);
    ExpectRefused([&] { WorkspaceScope again(workspace); },
                  "may not enter a workspace that its thread");
    ExpectRefused([&] { BorrowScope again(workspace); },
                  "may not enter a workspace that its thread");
    ExpectRefused([&] { scope->Close(); }, "a callback may not close the scope of workspace [w]");
    ExpectRefused([&] { workspace.Trim(); }, "needs a closed workspace");
    ExpectRefused([&] { (void)workspace.PlannedRequests(); }, "needs a closed workspace");
    EXPECT_EQ(CurrentPlace(), other.core());
    return 0;
  });
  scope.emplace(workspace);
  New(100);
  Reclaimer::Global().RunNow();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(CurrentPlace(), workspace.core());
  scope->Close();
  EXPECT_EQ(workspace.cycles(), 1u);
  EXPECT_EQ(workspace.stats().failed_cycles, 0u);
}

// Its object and its workspace go in the middle of a request; the cycle goes on until its thread is
// through.
TEST(Callback, MayDestroyTheScopeThatItIsCalledIn) {
  auto workspace = std::make_unique<Workspace>("w");
  auto scope = std::make_unique<WorkspaceScope>(*workspace);
  {
    const BufferHandle first = New(1000);
    const Limit limit(kMiB);
    const MemoryEventCallback watch([&](const MemoryEvent&) {
      scope.reset();
      workspace.reset();
    });
    EXPECT_THROW(New(4 * kMiB), OutOfMemoryError);
    EXPECT_TRUE(first->IsAlive());
    std::memset(first->data, 1, 1000);
  }
  EXPECT_EQ(workspace, nullptr);
  const ScopeOutOfWorkspaces next;
  EXPECT_EQ(CurrentPlace(), nullptr);
}

// Pages cannot be had, so the Reclaimer is asked in the middle of it.
TEST(ReclaimersCallback, IsRefusedAWorkspaceThatItsThreadChanges) {
  WorkspaceConfig config;
  config.policy_learning = LearningPolicy::kOverTime;
  config.cycles_before_initialization = 0;  // by Initialize() alone
  Workspace workspace("w", config);
  {
    const WorkspaceScope scope(workspace);
    New(4 * kMiB);
  }
  workspace.Trim();  // the block that served it
  int calls = 0;
  const auto cache = Reclaimer::Global().Register("cache", [&](ReclaimDepth) -> int64_t {
    ++calls;
    ExpectRefused([&] { WorkspaceScope scope(workspace); }, "a callback may not wait until");
    ExpectRefused([&] { workspace.Trim(); }, "in a callback may not wait until");
    return 0;
  });
  {
    const Limit limit(1000);
    EXPECT_THROW(workspace.Initialize(), OutOfMemoryError);
  }
  EXPECT_GT(calls, 0);
  workspace.Initialize();
  EXPECT_GE(workspace.size(), 4 * kMiB);
}

// ---- in maintenance -----------------------------------------------------------------------------

TEST(CallbackAtLevel, IsRefusedWhatItsThreadIsInTheMiddleOf) {
  Workspace workspace("w", Quiet());
  const std::vector<std::function<void()>> ways = {[&] { workspace.Trim(); },
                                                   [&] { workspace.Destroy(); },
                                                   [] { Reclaimer::Global().RunNow(); }};
  for (const auto& way : ways) {
    CycleOfBlocks(workspace);
    const Limit limit(1000);
    const OnceAtLevel level([&] {
      const std::string why = "may not wait until";
      ExpectRefused([&] { workspace.Trim(); }, why);
      ExpectRefused([&] { workspace.Destroy(); }, why);
      ExpectRefused([&] { workspace.Initialize(); }, why);
      ExpectRefused([&] { workspace.SavePlans(testing::TempDir() + "/plans"); }, why);
      ExpectRefused([&] { workspace.LoadPlans(testing::TempDir() + "/plans"); }, why);
      ExpectRefused([&] { workspace.FinishPlanSearch(); }, why);
      ExpectRefused([&] { (void)workspace.PlannedRequests(); }, why);
      ExpectRefused([&] { WorkspaceScope scope(workspace); }, "may not enter");
      Reclaimer::Global().RunNow();
    });
    way();
  }
  CycleOfBlocks(workspace);
}

// Each would wait for the other.
TEST(CallbackAtLevel, OfTwoThreadsThatTrimEachOthersWorkspacesEnds) {
  Workspace a("a", Quiet()), b("b", Quiet());
  static thread_local Workspace* other = nullptr;
  std::atomic<int> inside{0};
  const MemoryEventCallback watch([&](const MemoryEvent& event) {
    if (event.kind != MemoryEvent::Kind::kLevel || other == nullptr) return;
    ++inside;
    while (inside < 2) std::this_thread::yield();  // both are in the middle of their own
    Workspace* const trimmed = std::exchange(other, nullptr);
    ExpectRefused([&] { trimmed->Trim(); }, "may not wait until");
    ++inside;
    while (inside < 4) std::this_thread::yield();
  });
  CycleOfBlocks(a);
  CycleOfBlocks(b);
  // Budgets of their own, so that each of them has a level that changes.
  MemoryBudget& budget = MemoryBudget::Global();
  for (Workspace* workspace : {&a, &b}) {
    MemoryOwner& owner = workspace->core()->memory_owner;
    budget.SetOwnerLimit(owner, Host(), budget.Of(owner, Host()).taken_bytes);
  }
  RunThreads(2, [&](int thread) {
    other = thread == 0 ? &b : &a;
    (thread == 0 ? a : b).Trim();
  });
  EXPECT_EQ(inside, 4);
  for (Workspace* workspace : {&a, &b}) {
    EXPECT_EQ(workspace->stats().block_bytes, 0u);
    budget.SetOwnerLimit(workspace->core()->memory_owner, Host(), MemoryBudget::kUnlimited);
  }
}

// A thread that is not in a callback waits as ever.
TEST(CallbackAtLevel, IsWaitedForByOtherThreads) {
  Workspace workspace("w", Quiet());
  CycleOfBlocks(workspace);
  const Limit limit(1000);
  std::atomic<bool> began{false};
  std::thread other;
  const OnceAtLevel level([&] {
    other = std::thread([&] {
      began = true;
      const WorkspaceScope scope(workspace);
      New(100);
    });
    while (!began) std::this_thread::yield();
  });
  workspace.Trim();
  other.join();
  EXPECT_EQ(workspace.cycles(), 2u);
}

// What one thread is told in the middle of a run of the Reclaimer waits for what the other is told:
// neither may wait for the run.
TEST(CallbackAtLevel, WaitsForNoRunOfTheReclaimer) {
  WorkspacePool pool("p", Quiet());
  {
    const PooledScope scope(pool);
    UseBlocks(scope.workspace());
  }
  Workspace own("o", Quiet());  // behind the pool's: it is not reclaimed yet when those are
  CycleOfBlocks(own);
  MemoryBudget& budget = MemoryBudget::Global();
  const std::vector<MemoryOwner*> owners = {&MemoryOwner::Process().Child("workspace p"),
                                            &own.core()->memory_owner};
  for (MemoryOwner* owner : owners) {
    budget.SetOwnerLimit(*owner, Host(), budget.Of(*owner, Host()).taken_bytes);
  }
  static thread_local bool runs = false;
  std::atomic<bool> running{false}, through{false};
  const auto await = [](const std::atomic<bool>& what) {
    for (int i = 0; i < 20000 && !what; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(what);
  };
  const MemoryEventCallback watch([&](const MemoryEvent& event) {
    if (event.kind != MemoryEvent::Kind::kLevel) return;
    if (runs) {
      if (!running.exchange(true)) await(through);
      return;
    }
    if (!running || through) return;
    pool.Trim();
    EXPECT_EQ(Reclaimer::Global().RunNow(), 0);
    const Workspace comes_and_goes("c");
    through = true;
  });
  std::thread other([&] {
    runs = true;
    Reclaimer::Global().RunNow();
  });
  await(running);
  own.Trim();
  other.join();
  EXPECT_TRUE(through);
  EXPECT_EQ(pool.stats().workspaces, 0u);
  for (MemoryOwner* owner : owners) {
    EXPECT_EQ(budget.Of(*owner, Host()).taken_bytes, 0);
    budget.SetOwnerLimit(*owner, Host(), MemoryBudget::kUnlimited);
  }
}

// ---- what goes while it is in the middle of something ------------------------------------------

TEST(CallbackAtLevel, MayTrimThePoolThatIsReclaimedOrTrimmed) {
  WorkspacePool pool("p", Quiet());
  const std::vector<std::function<void()>> ways = {[] { Reclaimer::Global().RunNow(); },
                                                   [&] { pool.Trim(); }};
  for (const auto& way : ways) {
    {
      const PooledScope first(pool);
      UseBlocks(first.workspace());
      const PooledScope second(pool);
      UseBlocks(second.workspace());
      Serve(512);
    }
    const Limit limit(1000);
    const OnceAtLevel level([&] { pool.Trim(); });
    way();
    pool.Trim();
    EXPECT_EQ(pool.stats().held_bytes, 0u);
    EXPECT_EQ(pool.stats().workspaces, 0u);
  }
}

TEST(CallbackAtLevel, MayDestroyTheWorkspaceOrThePoolThatGivesBack) {
  for (const bool by_trim : {false, true}) {
    auto workspace = std::make_unique<Workspace>("w", Quiet());
    auto pool = std::make_unique<WorkspacePool>("p", Quiet());
    const auto give_back = [&](const auto& what) {
      const Limit limit(1000);
      const OnceAtLevel level([&] {
        workspace.reset();
        pool.reset();
      });
      if (by_trim) {
        what->Trim();
      } else {
        Reclaimer::Global().RunNow();
      }
    };
    CycleOfBlocks(*workspace);
    give_back(workspace);
    pool = std::make_unique<WorkspacePool>("p", Quiet());
    for (int i = 0; i < 2; ++i) {
      const PooledScope scope(*pool);
      Serve(512);
    }
    give_back(pool);
    EXPECT_EQ(MemoryBudget::Global().process().taken_bytes, 0);
  }
}

// An idle slot of a ring is the Reclaimer's at that moment.
TEST(CallbackAtLevel, TrimsARingAsFarAsItCan) {
  WorkspaceConfig config = WorkspaceConfig::Ring(3);
  config.temp_block_size = kMiB;
  RingWorkspace ring("r", config);
  for (int i = 0; i < 6; ++i) {
    RingSlotScope slot(ring);
    New(4 * kMiB);
  }
  const Limit limit(1000);
  const OnceAtLevel level([&] {
    ring.Trim();
    ExpectRefused([&] { ring.Destroy(); }, "may not wait until");
  });
  Reclaimer::Global().RunNow();
  EXPECT_EQ(ring.stats().idle, 3);
  ring.Destroy();
  EXPECT_EQ(ring.stats().idle, 3);
  RingSlotScope slot(ring);
}

}  // namespace
}  // namespace tidepool
