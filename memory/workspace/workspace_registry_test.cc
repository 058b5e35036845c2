// Workspaces by name, at the end of their thread.
#include "tidepool/memory/workspace/workspace_registry.h"

#include <cstdint>
#include <thread>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

BufferHandle New(size_t bytes) { return BufferHandle(AllocateHere(bytes)); }

// What is destroyed after a thread's workspaces by name may use some again.
struct UsesThemLate {
  bool* done = nullptr;
  ~UsesThemLate() {
    WorkspaceRegistry& registry = WorkspaceRegistry::ForCurrentThread();
    EXPECT_EQ(registry.Find("early"), nullptr);
    WorkspaceScope scope(registry.Get("late", {}));
    *done = New(100)->bytes == 100 && registry.size() == 1;
  }
};

TEST(WorkspaceRegistry, ServesDestructorsAtTheEndOfAThread) {
  const int64_t pages = MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kUnreferenced);
  bool done = false;
  std::thread([&] {
    thread_local UsesThemLate late;
    late.done = &done;
    WorkspaceScope scope(WorkspaceRegistry::ForCurrentThread().Get("early", {}));
    New(100);
  }).join();
  EXPECT_TRUE(done);
  EXPECT_EQ(MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kUnreferenced), pages);
}

}  // namespace
}  // namespace tidepool
