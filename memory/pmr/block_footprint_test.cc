// What a workspace keeps for blocks against what was alive at once (docs/containers.md, "Memory").
#include <algorithm>
#include <cstddef>
#include <memory_resource>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/pmr/block_bytes.h"
#include "tidepool/memory/pmr/workspace_resource.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kHeader = 64;  // of a large block

// Sizes of which few fit in a span, powers of two among them, which with their headers are more.
TEST(BlockFootprintTest, EqualLargeBlocksKeepLittleMoreThanWasAlive) {
  for (const size_t bytes :
       {size_t{4097}, size_t{65536}, size_t{131072}, size_t{140000}, 4 * kMiB / 16 - kHeader,
        kMiB / 4, size_t{300000}, kMiB / 2, size_t{600000}, kMiB, size_t{3000000}}) {
    Workspace workspace("equal", WorkspaceConfig::Inference());
    const size_t count = 16 * kMiB / bytes;
    for (int cycle = 0; cycle < 70; ++cycle) {
      WorkspaceScope scope(workspace);
      std::vector<void*> blocks;
      for (size_t i = 0; i < count; ++i) blocks.push_back(AllocateBytes(workspace, bytes));
      for (void* const block : blocks) ReleaseBytes(block, bytes);
    }
    const double live = static_cast<double>(count * (bytes + kHeader));
    EXPECT_LE(workspace.stats().block_bytes, 1.1 * live + kMiB / 4) << bytes;
  }
}

TEST(BlockFootprintTest, VectorsOfAPowerOfTwoKeepLittleMoreThanWasAlive) {
  Workspace workspace("vectors", WorkspaceConfig::Inference());
  WorkspaceResource resource(workspace);
  for (int cycle = 0; cycle < 5; ++cycle) {
    WorkspaceScope scope(workspace);
    std::vector<std::pmr::vector<char>> vectors;
    for (int i = 0; i < 500; ++i) vectors.emplace_back(&resource).reserve(131072);
  }
  EXPECT_LE(workspace.stats().block_bytes, 1.1 * 500 * 131072);
}

struct Mix {
  size_t least, range;
  double bound;  // of what is kept as a multiple of the most that was alive
};

// Sizes drawn at random, released in random order, as each cycle does: holes are left that no
// allocator that moves nothing can avoid.
TEST(BlockFootprintTest, MixesOfLargeBlocksStayWithinAFactor) {
  for (const Mix mix : {Mix{5000, 20000, 1.15}, Mix{20000, 100000, 1.3}, Mix{100000, 100000, 1.35},
                        Mix{260000, 1000000, 1.5}, Mix{100000, 900000, 1.5}}) {
    Workspace workspace("mixed", WorkspaceConfig::Inference());
    size_t most_live = 0;
    for (uint32_t cycle = 0; cycle < 20; ++cycle) {
      std::mt19937 random(cycle % 2);
      WorkspaceScope scope(workspace);
      std::vector<std::pair<void*, size_t>> blocks;
      size_t live = 0;
      for (int i = 0; i < 2000; ++i) {
        const size_t bytes = mix.least + random() % mix.range;
        while (live + bytes > 32 * kMiB) {
          std::swap(blocks[random() % blocks.size()], blocks.back());
          ReleaseBytes(blocks.back().first, blocks.back().second);
          live -= blocks.back().second + kHeader;
          blocks.pop_back();
        }
        blocks.emplace_back(AllocateBytes(workspace, bytes), bytes);
        live += bytes + kHeader;
        most_live = std::max(most_live, live);
      }
      for (const auto& [block, bytes] : blocks) ReleaseBytes(block, bytes);
    }
    EXPECT_LE(workspace.stats().block_bytes, mix.bound * static_cast<double>(most_live))
        << mix.least;
  }
}

// First small blocks, then large ones, in each cycle: they have the same memory, nothing is asked
// for in between.
TEST(BlockFootprintTest, SmallAndLargeBlocksShareWhatIsKept) {
  Workspace workspace("shared", WorkspaceConfig::Inference());
  auto cycle = [&] {
    WorkspaceScope scope(workspace);
    for (const size_t bytes : {size_t{1000}, size_t{30000}, size_t{3000}, size_t{140000}}) {
      std::vector<void*> blocks;
      for (size_t sum = 0; sum < 16 * kMiB; sum += bytes) {
        blocks.push_back(AllocateBytes(workspace, bytes));
      }
      for (void* const block : blocks) ReleaseBytes(block, bytes);
    }
  };
  for (int i = 0; i < 5; ++i) cycle();
  const int64_t before = MemoryTracker::Global().system_allocations();
  for (int i = 0; i < 5; ++i) cycle();
  EXPECT_EQ(MemoryTracker::Global().system_allocations(), before);
  EXPECT_LE(workspace.stats().block_bytes, 24 * kMiB);
}

// docs/containers.md, "Memory": a span after 64 cycles, a chunk's after as many again.
TEST(BlockFootprintTest, WhatCyclesDidNotNeedGoesBack) {
  for (const size_t bytes : {size_t{64} << 20, size_t{100000}, size_t{10}}) {
    Workspace workspace("ages", WorkspaceConfig::Inference());
    {
      WorkspaceScope scope(workspace);
      ReleaseBytes(AllocateBytes(workspace, bytes), bytes);
    }
    int cycles = 0;
    for (; cycles < 1000 && workspace.stats().block_bytes > 0; ++cycles) {
      WorkspaceScope scope(workspace);
    }
    EXPECT_EQ(cycles, bytes > 4096 ? 64 : 128) << bytes;
  }
}

}  // namespace
}  // namespace tidepool
