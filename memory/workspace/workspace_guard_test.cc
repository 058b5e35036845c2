// DebugMode::kGuard, and AddressSanitizer's view of pages and kept blocks.
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/poison.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

BufferHandle New(size_t bytes) { return BufferHandle(AllocateHere(bytes)); }

void Touch(const std::byte* at) { static_cast<void>(*const_cast<const volatile std::byte*>(at)); }

WorkspaceConfig Guarded() {
  WorkspaceConfig config = WorkspaceConfig::Training();
  config.debug_mode = DebugMode::kGuard;
  config.use_cycle_detector = false;  // it would throw for the arrays kept on purpose
  return config;
}

TEST(WorkspaceGuard, RequestsAreNansWithAReadableTail) {
  const int64_t before = MemoryTracker::Global().Snapshot()[Host()].total.current_bytes;
  {
    Workspace workspace("w", Guarded());
    for (int cycle = 0; cycle < 3; ++cycle) {
      WorkspaceScope scope(workspace);
      std::vector<BufferHandle> live;
      for (size_t bytes : {4, 100, 4096, 70000}) {
        live.push_back(New(bytes));
        const std::byte* data = live.back()->data;
        EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0);
        float value;
        std::memcpy(&value, data, 4);
        EXPECT_TRUE(std::isnan(value));
        for (size_t i = 0; i < bytes + 16; ++i) Touch(data + i);
      }
      live.pop_back();
    }
    EXPECT_EQ(workspace.size(), 0);
    EXPECT_EQ(workspace.stats().spills, 12);
  }
  EXPECT_EQ(MemoryTracker::Global().Snapshot()[Host()].total.current_bytes, before);
}

TEST(WorkspaceGuardDeathTest, ALateReadFaults) {
  Workspace workspace("w", Guarded());
  const std::byte* kept;
  BufferHandle outlives;
  {
    WorkspaceScope scope(workspace);
    outlives = New(100);
    kept = outlives->data;
    Touch(kept);
    const std::byte* released = New(100)->data;
    EXPECT_DEATH(Touch(released), "");
  }
  EXPECT_DEATH(Touch(kept), "");
  WorkspaceScope next(workspace);
  BufferHandle other = New(100);
  EXPECT_NE(other->data, kept);
  EXPECT_DEATH(Touch(kept), "");
}

TEST(WorkspaceGuardDeathTest, AReadBeyondTheTailFaults) {
  Workspace workspace("w", Guarded());
  WorkspaceScope scope(workspace);
  BufferHandle a = New(1000);
  EXPECT_DEATH(
      {
        for (size_t i = 0; i < 1000 + 16 + 64; ++i) Touch(a->data + i);
      },
      "");
}

#ifdef TIDEPOOL_POISON
// In plain pages and kept blocks alike: what was released is poisoned, tails are not.
TEST(WorkspacePoison, ReleasedBytesArePoisonedTailsAreNot) {
  WorkspaceConfig config = WorkspaceConfig::Nd4j();
  config.initial_size = 4096;
  config.policy_learning = LearningPolicy::kNone;
  Workspace workspace("w", config);
  auto poisoned = [](const std::byte* at) { return __asan_address_is_poisoned(at) != 0; };
  for (int cycle = 0; cycle < 2; ++cycle) {
    WorkspaceScope scope(workspace);
    for (size_t bytes : {1024, 100000}) {
      BufferHandle a = New(bytes), b = New(1024), c = New(1024);
      const std::byte* const released = b->data;
      EXPECT_FALSE(poisoned(released + 1023));
      b.Reset();
      EXPECT_TRUE(poisoned(released + 16));
      EXPECT_TRUE(poisoned(released + 1023));
      EXPECT_FALSE(poisoned(a->data + bytes + 15));
      EXPECT_FALSE(poisoned(c->data));
      EXPECT_FALSE(poisoned(c->data + 1024 + 15));
    }
  }
  BufferHandle leaked;
  {
    WorkspaceScope scope(workspace);
    leaked = New(100);
  }
  EXPECT_TRUE(poisoned(leaked->data + 16));
}
#endif

}  // namespace
}  // namespace tidepool
