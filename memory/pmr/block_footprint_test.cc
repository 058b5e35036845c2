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
// Measured: containers that grow to 32 MiB and more.
constexpr double kHugeGrowthBound = 1.6;

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
  for (const Mix mix :
       {Mix{5000, 20000, 1.15}, Mix{20000, 100000, 1.3}, Mix{100000, 100000, 1.35},
        Mix{260000, 1000000, 1.5}, Mix{100000, 900000, 1.5}, Mix{3000000, 3000000, 2.1}}) {
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

struct Growth {
  int containers;
  double factor;  // of each next buffer, beside which the one before is still alive
  double bound;
};

// The same in each cycle: in the end nothing is asked for any more, and little kept beyond what was
// alive at once, old and new buffers among it.
TEST(BlockFootprintTest, ContainersThatGrowTheSameInEachCycleSettle) {
  for (const Growth growth :
       {Growth{1, 2, 1.1}, Growth{1, 1.5, 1.2}, Growth{2, 2, 1.4}, Growth{3, 2, 1.6}}) {
    for (const size_t most_bytes : {size_t{5000000}, size_t{20000000}, size_t{67000000}}) {
      Workspace workspace("grows", WorkspaceConfig::Inference());
      const MemoryTracker& tracker = MemoryTracker::Global();
      size_t most_live = 0;
      int64_t asked = 0;
      for (int cycle = 0; cycle < 70; ++cycle) {
        if (cycle == 6) asked = tracker.system_allocations();
        WorkspaceScope scope(workspace);
        std::vector<std::pair<void*, size_t>> buffers(static_cast<size_t>(growth.containers));
        size_t live = 0;
        for (double bytes = 1000; bytes < static_cast<double>(most_bytes); bytes *= growth.factor) {
          for (auto& [buffer, old_bytes] : buffers) {
            const auto new_bytes = static_cast<size_t>(bytes);
            void* const grown = AllocateBytes(workspace, new_bytes);
            most_live = std::max(most_live, live += new_bytes);
            ReleaseBytes(std::exchange(buffer, grown), old_bytes);
            live -= std::exchange(old_bytes, new_bytes);
          }
        }
        for (const auto& [buffer, bytes] : buffers) ReleaseBytes(buffer, bytes);
      }
      EXPECT_EQ(tracker.system_allocations(), asked) << growth.containers << ", " << most_bytes;
      EXPECT_LE(workspace.stats().block_bytes,
                growth.bound * static_cast<double>(most_live) + most_live / 16.0 + 5.0 * kMiB)
          << growth.containers << " by " << growth.factor << ", " << most_bytes;
    }
  }
}

// Likewise to any size, also where their largest buffers are blocks of 32 MiB and more: what cycles
// need of their range of addresses is there after some eight, and nothing is asked for from then on.
TEST(BlockFootprintTest, ContainersThatGrowToHugeSizesSettle) {
  const MemoryTracker& tracker = MemoryTracker::Global();
  for (const int containers : {1, 2, 3, 4}) {
    for (const size_t mib : {20, 32, 36, 48, 73, 100, 128, 150, 192}) {
      Workspace workspace("grows", WorkspaceConfig::Inference());
      size_t most_live = 0;
      int64_t asked = 0;
      for (int cycle = 0; cycle < 40; ++cycle) {
        if (cycle == 10) asked = tracker.system_allocations();
        WorkspaceScope scope(workspace);
        std::vector<std::pair<void*, size_t>> buffers(static_cast<size_t>(containers));
        size_t live = 0;
        const auto grow_to = [&](size_t new_bytes) {
          for (auto& [buffer, old_bytes] : buffers) {
            void* const grown = AllocateBytes(workspace, new_bytes);
            most_live = std::max(most_live, live += new_bytes);
            ReleaseBytes(std::exchange(buffer, grown), old_bytes);
            live -= std::exchange(old_bytes, new_bytes);
          }
        };
        for (size_t bytes = 4096; bytes < mib * kMiB; bytes *= 2) grow_to(bytes);
        grow_to(mib * kMiB);
        for (const auto& [buffer, bytes] : buffers) ReleaseBytes(buffer, bytes);
      }
      EXPECT_EQ(tracker.system_allocations(), asked) << containers << " to " << mib << " MiB";
      EXPECT_LE(workspace.stats().block_bytes,
                kHugeGrowthBound * static_cast<double>(most_live) + 5.0 * kMiB)
          << containers << " to " << mib << " MiB";
    }
  }
}

struct Blocks {
  int count;
  size_t bytes;
};

// Kinds of cycles in turns, fewer than 64 apart: in the end nothing is asked for any more, and at
// most twice what was alive at once is kept, and a span. Each set went on asking for another reason.
TEST(BlockFootprintTest, KindsOfCyclesInTurnsSettle) {
  const std::vector<std::vector<Blocks>> sets = {
      // What lives in two cycles in a row is much less than what does in all.
      {{1, 4092754}, {33, 154320}, {12, 972570}, {379, 9079}},
      {{5, 1127583}, {1, 3452680}, {11658, 665}, {5, 1871816}, {31, 462937}},
      // The chunk used longest ago is the one that the next cycle needs.
      {{1, 6601682}, {1, 7153528}, {1, 5821193}, {21, 391991}},
      // Chunks that nobody needed for 64 cycles go, and the others are too large or too small then.
      {{2, 1530163}, {212, 62116}, {1797, 4319}, {9, 1574094}},
      // One of each size would be more than twice what is alive.
      {{286, 4540}, {2, 6277567}, {7, 1095626}, {11, 1007015}, {11, 886763}, {60, 160573}},
      // A little more than 1 MiB.
      {{16, 966672}, {6, 1751036}, {7, 1052132}},
  };
  for (size_t set = 0; set < sets.size(); ++set) {
    Workspace workspace("turns", WorkspaceConfig::Inference());
    size_t most_live = 0;
    int64_t asked = 0;
    for (int cycle = 0; cycle < 700; ++cycle) {
      if (cycle == 400) asked = MemoryTracker::Global().system_allocations();
      const Blocks kind = sets[set][cycle % sets[set].size()];
      WorkspaceScope scope(workspace);
      std::vector<void*> blocks;
      for (int i = 0; i < kind.count; ++i) blocks.push_back(AllocateBytes(workspace, kind.bytes));
      for (void* const block : blocks) ReleaseBytes(block, kind.bytes);
      most_live = std::max(most_live, kind.count * (kind.bytes + kHeader));
    }
    EXPECT_EQ(MemoryTracker::Global().system_allocations(), asked) << "set " << set;
    EXPECT_LE(workspace.stats().block_bytes, 2 * most_live + 2 * kMiB) << "set " << set;
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

// Likewise of other sizes in each cycle. One range for the large ones would lie beside the chunks of the small ones.
TEST(BlockFootprintTest, SmallAndLargeBlocksThatDifferShareWhatIsKept) {
  Workspace workspace("shared", WorkspaceConfig::Inference());
  std::mt19937 random(1);
  for (int cycle = 0; cycle < 40; ++cycle) {
    WorkspaceScope scope(workspace);
    for (const size_t bytes : {size_t{1000}, 3000 + random() % 1000, 100000 + random() % 100000}) {
      std::vector<void*> blocks;
      for (size_t sum = 0; sum < 16 * kMiB; sum += bytes) {
        blocks.push_back(AllocateBytes(workspace, bytes));
      }
      for (void* const block : blocks) ReleaseBytes(block, bytes);
    }
    EXPECT_LE(workspace.stats().block_bytes, 24 * kMiB) << cycle;
  }
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

// Cycles of small blocks after larger ones: what was cut from spans of those finds other places. The last chunk of
// each size would else keep one of them for ever, of 24 MiB or of 1 MiB each.
TEST(BlockFootprintTest, SmallBlocksDoNotKeepTheSpansOfLargerCycles) {
  constexpr size_t kChunk = size_t{64} << 10;
  const auto expect_little = [](const char* what, const auto& large_cycle, size_t sizes) {
    Workspace workspace("small after large", WorkspaceConfig::Inference());
    for (int cycle = 0; cycle < 4; ++cycle) {
      WorkspaceScope scope(workspace);
      large_cycle(workspace, sizes);
    }
    const size_t before = workspace.stats().block_bytes;
    int64_t settled = 0;
    for (int cycle = 0; cycle < 400; ++cycle) {
      if (cycle == 300) settled = MemoryTracker::Global().system_allocations();
      WorkspaceScope scope(workspace);
      for (size_t i = 0; i < sizes; ++i) {
        ReleaseBytes(AllocateBytes(workspace, 16 + i * 64), 16 + i * 64);
      }
    }
    EXPECT_GT(before, 16 * kMiB) << what;
    EXPECT_LE(workspace.stats().block_bytes, 1.1 * kChunk * sizes + 2 * kMiB)
        << what << " " << sizes;
    EXPECT_EQ(MemoryTracker::Global().system_allocations(), settled) << what << " " << sizes;
  };
  for (const size_t sizes : {1, 8, 40}) {
    for (const size_t bytes : {size_t{100000}, kMiB, 3 * kMiB, 24 * kMiB}) {
      expect_little(
          "large blocks, then small ones",
          [&](Workspace& workspace, size_t count) {
            std::vector<void*> blocks;
            for (size_t i = 0; i < 20 * kMiB / bytes + 17; ++i)
              blocks.push_back(AllocateBytes(workspace, bytes));
            for (void* const block : blocks) ReleaseBytes(block, bytes);
            for (size_t i = 0; i < count; ++i) {
              ReleaseBytes(AllocateBytes(workspace, 16 + i * 64), 16 + i * 64);
            }
          },
          sizes);
    }
    // Each size's last chunk is in another span.
    expect_little(
        "many small blocks",
        [&](Workspace& workspace, size_t count) {
          std::vector<std::pair<void*, size_t>> blocks;
          for (size_t i = 0; i < std::max<size_t>(count, 24); ++i) {
            const size_t size = 16 + i % count * 64;
            for (size_t bytes = 0; bytes < 20 * kChunk; bytes += size) {
              blocks.emplace_back(AllocateBytes(workspace, size), size);
            }
          }
          for (const auto& [block, size] : blocks) ReleaseBytes(block, size);
        },
        sizes);
  }
}

}  // namespace
}  // namespace tidepool
