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

}  // namespace
}  // namespace tidepool
