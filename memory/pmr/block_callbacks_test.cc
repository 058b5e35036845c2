// Blocks that callbacks of the Reclaimer and of memory events make, in the middle of whatever calls
// them.
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_events.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/pmr/block_bytes.h"
#include "tidepool/memory/pmr/block_chunk.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// The cycle's only other request is the one that is refused.
TEST(BlockCallbacksTest, ABlockOfACallbackStaysThoughTheRequestItWasCalledForIsRefused) {
  MemoryBudget& budget = MemoryBudget::Global();
  for (const bool in_event : {false, true}) {
    for (const size_t bytes : {size_t{100}, size_t{5000}}) {
      Workspace workspace("w", WorkspaceConfig::Inference());
      void* kept = nullptr;
      auto keep = [&](bool now) {
        if (now && kept == nullptr) {
          kept = std::memset(AllocateBytes(workspace, bytes), 'k', bytes);
        }
      };
      const auto reclaimer = Reclaimer::Global().Register("keeps", [&](ReclaimDepth) -> int64_t {
        keep(!in_event);
        return 0;
      });
      const MemoryEventCallback events([&](const MemoryEvent&) { keep(in_event); });
      budget.SetProcessLimit(budget.process().taken_bytes + 3000000);
      {
        WorkspaceScope scope(workspace);
        EXPECT_THROW(AllocateBytes(workspace, 4000000), OutOfMemoryError);
      }
      budget.SetProcessLimit(MemoryBudget::kUnlimited);
      ASSERT_EQ(workspace.stats().leaked_blocks, 1u) << in_event << ", " << bytes;
      workspace.Trim();
      EXPECT_EQ(std::string(static_cast<char*>(kept), bytes), std::string(bytes, 'k'));
      ReleaseBytes(kept, bytes);
    }
  }
}

// What a callback takes counts for the request that it was called for.
TEST(BlockCallbacksTest, ALimitHoldsThoughACallbackTakesABlockMeanwhile) {
  MemoryBudget& budget = MemoryBudget::Global();
  enum Request { kArray, kLargeBlock, kSmallBlocks };
  for (const Request request : {kArray, kLargeBlock, kSmallBlocks}) {
    for (const SpillPolicy spill : {SpillPolicy::kReallocate, SpillPolicy::kFail}) {
      if (spill == SpillPolicy::kFail && request == kArray)
        continue;  // from the pages, and nobody is asked
      SCOPED_TRACE(std::to_string(request) + " under " + std::to_string(static_cast<int>(spill)));
      WorkspaceConfig config = WorkspaceConfig::Inference();
      config.policy_spill = spill;
      (spill == SpillPolicy::kFail ? config.initial_size : config.max_size) = 4 * kMiB;
      Workspace workspace("limited", config);
      WorkspaceScope scope(workspace);
      // Callbacks in a request of an array serve blocks of a cycle that has had some. One is in use, as what is not makes room.
      void* const held = request == kArray ? AllocateBytes(workspace, 16) : nullptr;
      void* taken = nullptr;
      const auto reclaimer = Reclaimer::Global().Register("takes", [&](ReclaimDepth) -> int64_t {
        if (taken != nullptr) return 0;
        budget.SetProcessLimit(MemoryBudget::kUnlimited);
        taken = AllocateBytes(workspace, 4 * kMiB - 100000);
        return 1;
      });
      budget.SetProcessLimit(budget.process().taken_bytes + 1000);
      std::vector<void*> blocks;
      EXPECT_THROW(
          {
            if (request == kArray) BufferHandle(AllocateHere(kMiB));
            if (request == kLargeBlock) blocks.push_back(AllocateBytes(workspace, kMiB));
            while (request == kSmallBlocks) blocks.push_back(AllocateBytes(workspace, 4000));
          },
          OutOfMemoryError);
      budget.SetProcessLimit(MemoryBudget::kUnlimited);
      ASSERT_NE(taken, nullptr);
      EXPECT_LE(blocks.size() * 4000, 100000u);
      ReleaseBytes(taken, 4 * kMiB - 100000);
      if (request == kArray) BufferHandle(AllocateHere(4 * kMiB - 2 * internal::kBlockChunkBytes));
      for (void* const block : blocks) ReleaseBytes(block, 4000);
      ReleaseBytes(held, 16);
    }
  }
}

// Where pages grow for what was learned, the Reclaimer may call anybody.
TEST(BlockCallbacksTest, ABlockMadeWhileACycleLearnsIsTheProcesss) {
  MemoryBudget& budget = MemoryBudget::Global();
  WorkspaceConfig config = WorkspaceConfig::Inference();
  config.min_size = 16 * kMiB;  // what lay outside goes before, and is not enough
  for (const bool had_blocks : {false, true}) {
    Workspace workspace("w", config);
    void* kept = nullptr;
    bool ends = false;
    const auto reclaimer = Reclaimer::Global().Register("keeps", [&](ReclaimDepth) -> int64_t {
      if (ends && kept == nullptr) kept = AllocateBytes(workspace, 100);
      return 0;
    });
    {
      WorkspaceScope scope(workspace);
      BufferHandle array(AllocateHere(8 << 20));
      if (had_blocks) ReleaseBytes(AllocateBytes(workspace, 100), 100);
      array.Reset();
      ends = true;
      budget.SetProcessLimit(budget.process().taken_bytes);
    }
    budget.SetProcessLimit(MemoryBudget::kUnlimited);
    ASSERT_NE(kept, nullptr);
    { WorkspaceScope scope(workspace); }
    EXPECT_EQ(workspace.stats().leaked_blocks, 0u) << had_blocks;
    ReleaseBytes(kept, 100);
  }
}

// A chunk that goes because another comes tells that a budget's level has changed.
TEST(BlockCallbacksTest, BlocksAreServedWhileAnotherOnesChunkGoesBack) {
  MemoryBudget& budget = MemoryBudget::Global();
  Workspace workspace("w", WorkspaceConfig::Inference());
  std::vector<void*> kept;
  const MemoryEventCallback events([&](const MemoryEvent& event) {
    if (event.kind != MemoryEvent::Kind::kLevel || event.request.bytes >= 0) return;
    budget.SetProcessLimit(MemoryBudget::kUnlimited);
    while (kept.size() < 40)
      kept.push_back(std::memset(AllocateBytes(workspace, 3 * kMiB), 'k', 1));
  });
  {
    WorkspaceScope scope(workspace);
    ReleaseBytes(AllocateBytes(workspace, 10 * kMiB), 10 * kMiB);
    budget.SetProcessLimit(budget.process().taken_bytes + 1000);
    ReleaseBytes(AllocateBytes(workspace, 20 * kMiB), 20 * kMiB);
    ASSERT_EQ(kept.size(), 40u);
    for (void* const block : kept) {
      EXPECT_EQ(*static_cast<char*>(block), 'k');
      ReleaseBytes(block, 3 * kMiB);
    }
  }
  EXPECT_EQ(workspace.stats().leaked_blocks, 0u);
}

}  // namespace
}  // namespace tidepool
