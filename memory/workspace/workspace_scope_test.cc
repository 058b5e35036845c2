#include "tidepool/memory/workspace/workspace_scope.h"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace_registry.h"

namespace tidepool {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

BufferHandle New(size_t bytes) { return BufferHandle(AllocateHere(bytes)); }

WorkspaceConfig Sized(size_t bytes) {
  WorkspaceConfig config = WorkspaceConfig::Nd4j();
  config.initial_size = bytes;
  config.policy_allocation = AllocationPolicy::kStrict;
  config.alignment = 16;
  return config;
}

TEST(WorkspaceScope, NestedWorkspacesRestoreTheirParent) {
  Workspace outer("outer", Sized(4096)), inner("inner", Sized(4096));
  {
    WorkspaceScope a(outer);
    New(400);
    {
      WorkspaceScope b(inner);
      New(400);
      EXPECT_EQ(inner.offset(), 400);
    }
    New(400);
    EXPECT_EQ(outer.offset(), 800);
  }
  EXPECT_EQ(CurrentPlace(), nullptr);
  EXPECT_EQ(outer.offset(), 0);
}

// Runs a cycle when it is destroyed, as a destructor that cleans up may.
class RunsACycle {
 public:
  RunsACycle(Workspace& workspace, bool fails) : workspace_(workspace), fails_(fails) {}
  ~RunsACycle() {
    try {
      WorkspaceScope scope(workspace_);
      New(100);
      if (fails_) throw std::runtime_error("in the destructor's cycle");
    } catch (const std::runtime_error&) {
    }
  }

 private:
  Workspace& workspace_;
  const bool fails_;
};

TEST(WorkspaceScope, WhileAnExceptionIsInFlightOnlyACycleThatThrowsAnotherHasFailed) {
  for (const bool fails : {false, true}) {
    Workspace workspace("w", WorkspaceConfig::Training());
    std::thread([&] {  // whose first scope this is
      try {
        const RunsACycle runs(workspace, fails);
        throw std::runtime_error("outside");
      } catch (const std::runtime_error&) {
      }
    })
        .join();
    EXPECT_EQ(workspace.stats().cycles, 1);
    EXPECT_EQ(workspace.stats().failed_cycles, fails ? 1 : 0);
    EXPECT_EQ(workspace.stats().plans, fails ? 0 : 1);
  }
}

TEST(WorkspaceScope, EnteringAnOpenWorkspaceAgainNestsAlsoFromFurtherIn) {
  Workspace a("a", Sized(4096)), b("b", Sized(4096));
  WorkspaceScope first(a);
  BufferHandle kept = New(400);
  {
    WorkspaceScope second(b);
    WorkspaceScope third(a);  // a -> b -> a
    New(400);
    EXPECT_EQ(a.offset(), 800);
    EXPECT_EQ(a.generation(), 1);
  }
  New(400);
  EXPECT_EQ(a.offset(), 1200);
  EXPECT_TRUE(kept->IsAlive());
}

TEST(WorkspaceScope, BorrowAllocatesFurtherOutWithoutANewCycle) {
  Workspace outer("outer", Sized(4096)), inner("inner", Sized(4096));
  WorkspaceScope a(outer);
  New(40);
  WorkspaceScope b(inner);
  {
    BorrowScope borrowed(outer);
    New(40);
    EXPECT_EQ(outer.offset(), 96);
    EXPECT_EQ(outer.generation(), 1);
    {
      ScopeOutOfWorkspaces out;
      EXPECT_FALSE(New(40)->attached);
    }
    New(40);
    EXPECT_EQ(outer.offset(), 144);
  }
  New(40);
  EXPECT_EQ(inner.offset(), 48);
}

TEST(WorkspaceScope, BorrowingAClosedWorkspaceIsAnError) {
  Workspace workspace("closed", Sized(64));
  try {
    BorrowScope borrowed(workspace);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(error.message(), HasSubstr("[closed] is not open on this thread"));
  }
  EXPECT_EQ(CurrentPlace(), nullptr);
}

TEST(WorkspaceScope, ClosingOutOfOrderOrTwiceIsAnErrorAndChangesNothing) {
  Workspace a("a", Sized(64)), b("b", Sized(64));
  WorkspaceScope outer(a);
  WorkspaceScope inner(b);
  try {
    outer.Close();
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), HasSubstr("[a] is closed before the scope of workspace [b]"));
  }
  EXPECT_EQ(CurrentPlace(), b.core());
  inner.Close();
  EXPECT_THROW(inner.Close(), Error);
  EXPECT_EQ(CurrentPlace(), a.core());
  outer.Close();
  EXPECT_EQ(CurrentPlace(), nullptr);
}

TEST(WorkspaceScope, DestructionOutOfOrderIsReportedAndRepaired) {
  Workspace a("a", Sized(64)), b("b", Sized(64));
  std::optional<WorkspaceScope> outer(std::in_place, a);
  std::optional<WorkspaceScope> inner(std::in_place, b);
  testing::internal::CaptureStderr();
  outer.reset();
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("[a] ends before"));
  EXPECT_EQ(CurrentPlace(), b.core());
  EXPECT_FALSE(a.is_open());
  inner.reset();
  EXPECT_EQ(CurrentPlace(), nullptr);
}

TEST(WorkspaceScope, IsMovable) {
  Workspace a("a", Sized(64));
  std::optional<WorkspaceScope> moved;
  {
    WorkspaceScope scope(a);
    moved.emplace(std::move(scope));
  }
  EXPECT_TRUE(a.is_open());
  EXPECT_EQ(CurrentPlace(), a.core());
  moved.reset();
  EXPECT_FALSE(a.is_open());
  EXPECT_EQ(CurrentPlace(), nullptr);
}

// Runs on a thread of its own and waits for it.
template <typename Code>
void OnAnotherThread(Code code) {
  std::thread(code).join();
}

TEST(WorkspaceScope, EndedOnAnotherThreadItEndsAtTheNextScopeOfItsOwn) {
  Workspace a("a", Sized(4096)), b("b", Sized(4096));
  for (int round = 0; round < 3; ++round) {
    auto scope = std::make_unique<WorkspaceScope>(a);
    testing::internal::CaptureStderr();
    OnAnotherThread([&] { scope.reset(); });
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                HasSubstr("on a thread other than its own"));
    // Nothing changed here so far.
    EXPECT_TRUE(a.is_open());
    EXPECT_EQ(CurrentPlace(), a.core());
    BufferHandle made = New(100);
    EXPECT_TRUE(made->attached);
    {
      testing::internal::CaptureStderr();
      WorkspaceScope next(b);
      EXPECT_THAT(testing::internal::GetCapturedStderr(),
                  HasSubstr("scope of workspace [a] was destroyed on another thread"));
      EXPECT_FALSE(a.is_open());
      EXPECT_FALSE(made->IsAlive());
      EXPECT_EQ(CurrentPlace(), b.core());
    }
    EXPECT_EQ(CurrentPlace(), nullptr);
  }
  EXPECT_EQ(a.cycles(), 3);
  EXPECT_EQ(a.stats().failed_cycles, 3);  // where it ended is chance: nothing to learn from
}

TEST(WorkspaceScope, EndedOnAnotherThreadUnderAnInnerOneItGoesWithThat) {
  Workspace a("a", Sized(4096)), b("b", Sized(4096));
  auto outer = std::make_unique<WorkspaceScope>(a);
  WorkspaceScope inner(b);
  testing::internal::CaptureStderr();
  OnAnotherThread([&] { outer.reset(); });
  testing::internal::GetCapturedStderr();
  BufferHandle made = New(100);
  inner.Close();
  EXPECT_FALSE(a.is_open());
  EXPECT_FALSE(b.is_open());
  EXPECT_EQ(CurrentPlace(), nullptr);
  // The same workspace again is a cycle of its own, not a nested part of what was left behind.
  auto left = std::make_unique<WorkspaceScope>(a);
  testing::internal::CaptureStderr();
  OnAnotherThread([&] { left.reset(); });
  testing::internal::GetCapturedStderr();
  EXPECT_THROW(BorrowScope borrowed(a), Error);
  auto again = std::make_unique<WorkspaceScope>(a);
  testing::internal::CaptureStderr();
  OnAnotherThread([&] { again.reset(); });
  testing::internal::GetCapturedStderr();
  const uint64_t generation = a.generation();
  WorkspaceScope last(a);
  EXPECT_EQ(a.generation(), generation + 1);
}

TEST(WorkspaceScope, MovedOnAnotherThreadItStaysItsOpeners) {
  Workspace a("a", Sized(4096)), b("b", Sized(4096));
  auto first = std::make_unique<WorkspaceScope>(a);
  std::unique_ptr<WorkspaceScope> moved;
  std::string message;
  OnAnotherThread([&] {
    moved = std::make_unique<WorkspaceScope>(std::move(*first));
    first.reset();
    try {
      moved->Close();
    } catch (const Error& error) {
      message = error.message();
    }
    WorkspaceScope own(b);  // that thread's stack is its own
    EXPECT_EQ(CurrentPlace(), b.core());
  });
  EXPECT_THAT(message, HasSubstr("was opened on another thread"));
  EXPECT_EQ(CurrentPlace(), a.core());
  { WorkspaceScope inner(b); }
  moved->Close();
  EXPECT_EQ(CurrentPlace(), nullptr);
  EXPECT_FALSE(a.is_open());
}

TEST(WorkspaceScope, OutlivingItsThreadItEndedWithThat) {
  Workspace a("a", Sized(4096));
  std::unique_ptr<WorkspaceScope> scope;
  BufferHandle made;
  testing::internal::CaptureStderr();
  OnAnotherThread([&] {
    scope = std::make_unique<WorkspaceScope>(a);
    made = New(100);
  });
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("scope of workspace [a] outlives the thread it was opened on"));
  EXPECT_FALSE(a.is_open());
  EXPECT_FALSE(made->IsAlive());
  {
    WorkspaceScope mine(a);
    scope.reset();  // ended long since: this one is not touched, whatever thread had its address
    EXPECT_EQ(CurrentPlace(), a.core());
  }
  OnAnotherThread([&] { scope = std::make_unique<WorkspaceScope>(a); });
  EXPECT_THROW(scope->Close(), Error);
}

TEST(WorkspaceScope, EndsOnOtherThreadsWhileTheirOwnGoesOn) {
  Workspace shared("shared", Sized(4096));
  std::unique_ptr<WorkspaceScope> handed;
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  testing::internal::CaptureStderr();
  std::thread dropper([&] {
    std::unique_lock<std::mutex> lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return handed != nullptr || done; });
      if (handed == nullptr) return;
      std::unique_ptr<WorkspaceScope> mine = std::move(handed);
      lock.unlock();
      mine.reset();
      lock.lock();
    }
  });
  for (int i = 0; i < 300; ++i) {
    {
      std::lock_guard<std::mutex> lock(mutex);
      auto next = std::make_unique<WorkspaceScope>(shared);
      if (handed == nullptr) handed = std::move(next);
    }
    changed.notify_one();
    for (int inner = 0; inner < 3; ++inner) {
      ScopeOutOfWorkspaces out;
      New(16);
    }
  }
  {
    std::lock_guard<std::mutex> lock(mutex);
    done = true;
  }
  changed.notify_one();
  dropper.join();
  testing::internal::GetCapturedStderr();
  { ScopeOutOfWorkspaces out; }
  EXPECT_EQ(CurrentPlace(), nullptr);
  EXPECT_FALSE(shared.is_open());
}

TEST(WorkspaceScope, EnteringFromASecondThreadIsAnError) {
  Workspace workspace("w", Sized(64));
  WorkspaceScope scope(workspace);
  std::string message;
  std::thread other([&] {
    try {
      WorkspaceScope second(workspace);
    } catch (const Error& error) {
      message = error.message();
    }
  });
  other.join();
  EXPECT_THAT(message, HasSubstr("[w] is open on another thread"));
  EXPECT_EQ(workspace.generation(), 1);
}

TEST(WorkspaceScope, DestroyingAnOpenWorkspaceIsReportedAndItsMemoryStaysUntilTheScopeEnds) {
  auto workspace = std::make_unique<Workspace>("w", Sized(4096));
  WorkspaceScope scope(*workspace);
  BufferHandle kept = New(100);
  testing::internal::CaptureStderr();
  workspace.reset();
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("[w] is destroyed while open"));
  EXPECT_TRUE(kept->IsAlive());
  kept->data[99] = std::byte{1};
  scope.Close();
  EXPECT_FALSE(kept->IsAlive());
}

TEST(WorkspaceRegistry, OneWorkspacePerThreadAndName) {
  WorkspaceRegistry& registry = WorkspaceRegistry::ForCurrentThread();
  Workspace& mine = registry.Get("W", Sized(64));
  EXPECT_EQ(&registry.Get("W", Sized(64)), &mine);
  EXPECT_EQ(&registry.Get("W"), &mine);
  EXPECT_THROW(registry.Get("W", Sized(128)), Error);
  EXPECT_THROW(registry.Get("unknown"), Error);
  EXPECT_EQ(registry.Find("unknown"), nullptr);
  const Workspace* theirs = nullptr;
  std::thread other([&] { theirs = &WorkspaceRegistry::ForCurrentThread().Get("W", Sized(64)); });
  other.join();
  EXPECT_NE(theirs, &mine);
  {
    WorkspaceScope scope(mine);
    EXPECT_EQ(registry.Current(), &mine);
    EXPECT_THAT(registry.Dump(), HasSubstr("[W] open, size 64"));
    registry.Get("V\n[X] open", Sized(64));
    EXPECT_THAT(registry.Dump(), HasSubstr("\n[V\\n[X] open] closed"));
    EXPECT_THAT(registry.DestroyAll(), ElementsAre("W"));
    EXPECT_EQ(registry.size(), 1);
  }
  EXPECT_TRUE(registry.DestroyAll().empty());
  EXPECT_EQ(registry.size(), 0);
}

}  // namespace
}  // namespace tidepool
