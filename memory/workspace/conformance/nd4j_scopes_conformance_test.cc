// Groups E (scopes, nesting, the current workspace) and G (misuse), without arrays.
#include <atomic>
#include <optional>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/conformance/nd4j_cases.h"
#include "tidepool/memory/workspace/workspace_registry.h"

namespace tidepool::nd4j {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// ---- E ----

TEST(Nd4jScopes, Nd4jCase045_TheCurrentWorkspace) {
  Workspace workspace("w", Basic());
  EXPECT_EQ(CurrentPlace(), nullptr);
  {
    WorkspaceScope scope(workspace);
    EXPECT_EQ(CurrentPlace(), workspace.core());
  }
  EXPECT_EQ(CurrentPlace(), nullptr);
}

TEST(Nd4jScopes, Nd4jCase046_AnExceptionUnwindsScopes) {
  Workspace outer("outer", Basic()), inner("inner", Basic());
  try {
    WorkspaceScope a(outer);
    WorkspaceScope b(inner);
    throw std::runtime_error("in the middle");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(CurrentPlace(), nullptr);
  EXPECT_FALSE(outer.is_open());
  EXPECT_FALSE(inner.is_open());
}

TEST(Nd4jScopes, Nd4jCase047_AReturnedArrayIsAttachedAndStale) {
  Workspace workspace("w", Basic());
  const BufferHandle returned = [&] {
    WorkspaceScope scope(workspace);
    return D(5);
  }();
  EXPECT_TRUE(returned->attached);
  EXPECT_FALSE(returned->IsAlive());
  EXPECT_EQ(CurrentPlace(), nullptr);
}

TEST(Nd4jScopes, Nd4jCase048_ThreeNestedWorkspaces) {
  Workspace outer("outer", Basic()), middle("middle", Basic()), inner("inner", Basic());
  {
    WorkspaceScope a(outer);
    BufferHandle x = F(100);
    EXPECT_EQ(outer.offset(), 400);
    {
      WorkspaceScope b(middle);
      BufferHandle y = F(100);
      EXPECT_EQ(middle.offset(), 400);
      {
        WorkspaceScope c(inner);
        BufferHandle z = F(100);
        EXPECT_EQ(inner.offset(), 400);
      }
      BufferHandle z = F(100);
      EXPECT_EQ(middle.offset(), 800);
    }
    BufferHandle y = F(100);
    EXPECT_EQ(outer.offset(), 800);
  }
  for (const Workspace* workspace : {&outer, &middle, &inner}) EXPECT_EQ(workspace->offset(), 0);
  EXPECT_EQ(CurrentPlace(), nullptr);
}

TEST(Nd4jScopes, Nd4jCase050_TheSameWorkspaceTwice) {
  Workspace workspace("w", Basic());
  {
    WorkspaceScope outer(workspace);
    BufferHandle x = F(100);
    {
      WorkspaceScope inner(workspace);
      BufferHandle y = F(100);
      EXPECT_EQ(workspace.offset(), 800);
    }
    BufferHandle z = F(100);
    EXPECT_EQ(workspace.offset(), 1200);
  }
  EXPECT_EQ(CurrentPlace(), nullptr);
}

// ND4J ignores the second configuration; here it is an error.
TEST(Nd4jScopes, Nd4jCase051_OneWorkspacePerName) {
  WorkspaceRegistry& registry = WorkspaceRegistry::ForCurrentThread();
  Workspace& first = registry.Get("case 51", Basic());
  EXPECT_EQ(&registry.Get("case 51", Basic()), &first);
  EXPECT_THROW(registry.Get("case 51", Over()), Error);
  EXPECT_THAT(registry.DestroyAll(), IsEmpty());
}

TEST(Nd4jScopes, Nd4jCase052_TwentyThreadsTwentyWorkspaces) {
  std::vector<std::thread> threads;
  std::atomic<int> created{0};
  std::vector<const Workspace*> seen(20);
  for (int i = 0; i < 20; ++i) {
    threads.emplace_back([&, i] {
      seen[i] = &WorkspaceRegistry::ForCurrentThread().Get("case 52", First());
      created.fetch_add(1);
      while (created.load() < 20) std::this_thread::yield();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::set<const Workspace*>(seen.begin(), seen.end()).size(), 20);
}

TEST(Nd4jScopes, Nd4jCase053_GenerationsCountCyclesOnly) {
  Workspace workspace("w", Basic());
  EXPECT_EQ(workspace.generation(), 0);
  for (uint64_t cycle = 1; cycle <= 3; ++cycle) {
    WorkspaceScope scope(workspace);
    EXPECT_EQ(workspace.generation(), cycle);
    WorkspaceScope nested(workspace);
    BorrowScope borrowed(workspace);
    EXPECT_EQ(workspace.generation(), cycle);
  }
  EXPECT_EQ(workspace.generation(), 3);
}

TEST(Nd4jScopes, Nd4jCase054_Borrowing) {
  Workspace first("first", Basic()), second("second", Basic());
  WorkspaceScope a(first);
  BufferHandle x = D(5);
  WorkspaceScope b(second);
  {
    BorrowScope borrowed(first);
    EXPECT_EQ(CurrentPlace(), first.core());
    BufferHandle y = D(5);
    EXPECT_EQ(first.offset(), 96);
  }
  EXPECT_EQ(CurrentPlace(), second.core());
}

// An error in ND4J, whose borrow is a single slot; here borrows nest like every scope.
TEST(Nd4jScopes, Nd4jCase055_BorrowingTwiceNests) {
  Workspace first("first", Basic()), second("second", Basic());
  WorkspaceScope a(first);
  WorkspaceScope b(second);
  BorrowScope outer(first);
  {
    BorrowScope inner(first);
    BufferHandle x = D(5);
    EXPECT_EQ(first.offset(), 48);
  }
  EXPECT_EQ(CurrentPlace(), first.core());
  outer.Close();
  EXPECT_EQ(CurrentPlace(), second.core());
}

TEST(Nd4jScopes, Nd4jCase057_ScopeOutInsideABorrow) {
  Workspace first("first", Basic()), second("second", Basic());
  WorkspaceScope a(first);
  WorkspaceScope b(second);
  {
    BorrowScope borrowed(first);
    {
      ScopeOutOfWorkspaces out;
      EXPECT_EQ(CurrentPlace(), nullptr);
      EXPECT_FALSE(D(5)->attached);
    }
    EXPECT_EQ(CurrentPlace(), first.core());
    BufferHandle x = D(5);
    EXPECT_EQ(first.offset(), 48);
  }
  EXPECT_EQ(CurrentPlace(), second.core());
}

TEST(Nd4jScopes, Nd4jCase058_ScopeOut) {
  Workspace workspace("w", Basic());
  WorkspaceScope scope(workspace);
  BufferHandle x = D(5);
  EXPECT_EQ(workspace.offset(), 48);
  {
    ScopeOutOfWorkspaces out;
    EXPECT_FALSE(D(5)->attached);
  }
  EXPECT_EQ(CurrentPlace(), workspace.core());
  BufferHandle y = D(5);
  EXPECT_EQ(workspace.offset(), 96);
}

// ND4J resets A under its own arrays; here A -> B -> A nests.
TEST(Nd4jScopes, Nd4jCase060_ReentryThroughAnotherWorkspaceNests) {
  Workspace a("a", Basic()), b("b", Basic());
  WorkspaceScope first(a);
  BufferHandle x = D(5);
  {
    WorkspaceScope second(b);
    WorkspaceScope third(a);
    BufferHandle y = D(5);
    EXPECT_EQ(a.offset(), 96);
  }
  EXPECT_TRUE(x->IsAlive());
  EXPECT_EQ(a.generation(), 1);
  EXPECT_EQ(CurrentPlace(), a.core());
}

// Undetected in ND4J. A close without an enter cannot be written here.
TEST(Nd4jScopes, Nd4jCase061_ClosingTwiceOrOutOfOrderIsAnError) {
  Workspace a("a", Basic()), b("b", Basic());
  WorkspaceScope outer(a);
  WorkspaceScope inner(b);
  EXPECT_THROW(outer.Close(), Error);
  inner.Close();
  EXPECT_THROW(inner.Close(), Error);
  outer.Close();
}

// ND4J's tracker keeps 1024 bytes a workspace.
TEST(Nd4jScopes, Nd4jCase062_DestroyAllGivesEverythingBack) {
  auto total = [] { return MemoryTracker::Global().Snapshot()[Host()].total.current_bytes; };
  const int64_t before = total();
  WorkspaceRegistry& registry = WorkspaceRegistry::ForCurrentThread();
  for (const char* id : {"case 62 a", "case 62 b"}) Cycle(registry.Get(id, Basic()), {1000});
  EXPECT_GE(total(), before + 20 * kMiB);
  EXPECT_THAT(registry.DestroyAll(), IsEmpty());
  EXPECT_EQ(registry.size(), 0);
  EXPECT_EQ(total(), before);
}

// ND4J frees them when the garbage collector runs; here when the thread ends.
TEST(Nd4jScopes, Nd4jCase064_AThreadsWorkspacesEndWithIt) {
  auto total = [] { return MemoryTracker::Global().Snapshot()[Host()].total.current_bytes; };
  const int64_t before = total();
  std::thread thread([&] {
    Cycle(WorkspaceRegistry::ForCurrentThread().Get("case 64", Basic()), {1000});
    EXPECT_GE(total(), before + 10 * kMiB);
  });
  thread.join();
  EXPECT_EQ(total(), before);
}

// ---- G ----

TEST(Nd4jMisuse, Nd4jCase081_BothGenerationsAreNamed) {
  Workspace workspace("w", Basic());
  Cycle(workspace, {8});
  BufferHandle second;
  {
    WorkspaceScope scope(workspace);
    second = D(5);
  }
  WorkspaceScope scope(workspace);
  EXPECT_FALSE(second->IsAlive());
  EXPECT_THAT(second->owner->DescribeStale(second->stamp),
              HasSubstr("[w] (made in generation 2; the workspace is in generation 3)"));
}

// In ND4J close() of an attached array is an error; here it gives the bytes back early.
TEST(Nd4jMisuse, Nd4jCase085_ClosingABufferEndsEveryHandle) {
  Workspace workspace("w", Basic());
  WorkspaceScope scope(workspace);
  for (bool attached : {true, false}) {
    std::optional<ScopeOutOfWorkspaces> out;
    if (!attached) out.emplace();
    BufferHandle a = D(5), other = a;
    EXPECT_EQ(a->attached, attached);
    a->Close();
    EXPECT_FALSE(other->IsAlive());
    EXPECT_TRUE(other->closed);
    a->Close();
  }
}

}  // namespace
}  // namespace tidepool::nd4j
