// The contract of memory resources over workspaces: blocks, alignments, where they live, what they
// count.
#include "tidepool/memory/pmr/workspace_resource.h"

#include <algorithm>
#include <list>
#include <map>
#include <memory_resource>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/pmr/bad_alloc.h"
#include "tidepool/memory/pmr/block_bytes.h"
#include "tidepool/memory/pmr/block_oracle.h"
#include "tidepool/memory/pmr/size_classes.h"
#include "tidepool/memory/provider/poison.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

int64_t SystemAllocations() { return MemoryTracker::Global().system_allocations(); }

// 0 of one that never had any.
int64_t OwnerBytes(const std::string& name) {
  for (const OwnerMemory& owner : MemoryTracker::Global().Snapshot().owners) {
    if (owner.owner == name && owner.tag.empty()) return owner.total.current_bytes;
  }
  return 0;
}

TEST(SizeClassesTest, ServeEachSizeWithLittleMoreAndKeepAlignments) {
  for (size_t alignment = 1; alignment <= 64; alignment *= 2) {
    for (size_t bytes = 0; bytes <= internal::kMostSmallBytes; ++bytes) {
      const int size_class = internal::SizeClassOf(bytes, alignment);
      ASSERT_GE(size_class, 0);
      const size_t served = internal::kClassBytes[size_class];
      ASSERT_GE(served, bytes);
      ASSERT_EQ(served % std::min<size_t>(alignment, 8), 0u) << bytes;
      if (alignment > 8) {
        ASSERT_EQ(served % alignment, 0u) << bytes;
      }
      const size_t asked = (std::max<size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
      ASSERT_LE(served, asked + std::max<size_t>(8, asked / 8)) << bytes;
    }
  }
  EXPECT_LT(internal::SizeClassOf(4097, 8), 0);
  EXPECT_LT(internal::SizeClassOf(8, 128), 0);
  EXPECT_LT(internal::SizeClassOf(SIZE_MAX, 16), 0);
  EXPECT_LT(internal::SizeClassOf(SIZE_MAX - 3, 8), 0);
}

// Every order of allocating and releasing, in cycles that are all different, some of them nested in
// another workspace's.
TEST(WorkspaceResourceTest, BlocksOfAllSizesNeverOverlap) {
  Workspace workspace("w", WorkspaceConfig::Inference());
  WorkspaceResource resource(workspace);
  RequestMaker make{std::mt19937(1)};
  for (int cycle = 0; cycle < 60; ++cycle) {
    WorkspaceScope scope(workspace);
    BlockOracle oracle;
    const int steps = 10 << (make.random() % 8);
    for (int step = 0; step < steps && !HasFatalFailure(); ++step) {
      if (oracle.size() > 0 && make.random() % 5 < 2) {
        const OutBlock block = oracle.Remove(make.random() % oracle.size());
        resource.deallocate(block.data, block.bytes, block.alignment);
      } else {
        const size_t bytes = make.Bytes(), alignment = make.Alignment();
        oracle.Add(resource.allocate(bytes, alignment), bytes, alignment);
      }
    }
    while (oracle.size() > 0) {
      const OutBlock block =
          oracle.Remove(oracle.size() - 1 - make.random() % std::min<size_t>(3, oracle.size()));
      resource.deallocate(block.data, block.bytes, block.alignment);
    }
  }
  EXPECT_EQ(workspace.stats().leaked_blocks, 0u);
}

TEST(WorkspaceResourceTest, ContainersInCyclesTakeNothingFromTheSystemOnceSettled) {
  Workspace workspace("w", WorkspaceConfig::Inference());
  WorkspaceResource resource(workspace);
  std::mt19937 random(3);
  auto cycle = [&](int size) {
    WorkspaceScope scope(workspace);
    std::pmr::vector<std::pmr::string> words(&resource);
    std::pmr::map<int, std::pmr::string> by_number(&resource);
    std::pmr::unordered_map<std::pmr::string, int> counts(&resource);
    std::pmr::list<double> numbers(&resource);
    for (int i = 0; i < size; ++i) {
      words.emplace_back(random() % 100, static_cast<char>('a' + i % 26));
      by_number.emplace(i, words.back());
      ++counts[words.back()];
      numbers.push_back(i);
    }
    ASSERT_EQ(by_number.size(), static_cast<size_t>(size));
  };
  cycle(4000);
  const int64_t before = SystemAllocations();
  for (int i = 0; i < 200; ++i) cycle(1 + static_cast<int>(random() % 3000));
  EXPECT_EQ(SystemAllocations(), before);
  EXPECT_EQ(workspace.stats().findings, 0u);
}

TEST(WorkspaceResourceTest, ChunksThatEmptyServeOtherSizesInTheSameCycle) {
  Workspace workspace("w", WorkspaceConfig::Inference());
  WorkspaceResource resource(workspace);
  WorkspaceScope scope(workspace);
  std::vector<void*> blocks;
  size_t most = 0;
  for (const size_t bytes : {40, 72, 200, 1000, 3000, 24, 104}) {
    for (size_t sum = 0; sum < (size_t{8} << 20); sum += bytes)
      blocks.push_back(resource.allocate(bytes, 8));
    for (void* const block : blocks) resource.deallocate(block, bytes, 8);
    blocks.clear();
    most = std::max(most, workspace.stats().block_bytes);
  }
  // Of a size that is gone one chunk at most is left.
  EXPECT_LE(most, (size_t{8} << 20) * 11 / 10 + 7 * internal::kBlockChunkBytes + (size_t{2} << 20));
}

// Cycles of large blocks and cycles of small ones in turn live in the same memory.
TEST(WorkspaceResourceTest, SmallAndLargeBlocksShareTheSpans) {
  Workspace workspace("w", WorkspaceConfig::Inference());
  WorkspaceResource resource(workspace);
  for (int i = 0; i < 20; ++i) {
    WorkspaceScope scope(workspace);
    const size_t bytes = i % 2 == 0 ? 48 : 50000;
    std::vector<void*> blocks;
    for (size_t sum = 0; sum < (size_t{8} << 20); sum += bytes)
      blocks.push_back(resource.allocate(bytes, 8));
    for (void* const block : blocks) resource.deallocate(block, bytes, 8);
  }
  EXPECT_LE(workspace.stats().block_bytes, (size_t{8} << 20) * 11 / 10 + (size_t{2} << 20));
}

TEST(WorkspaceResourceTest, LiveBoundIsKeptOverCyclesThatDiffer) {
  Workspace workspace("w", WorkspaceConfig::Inference());
  WorkspaceResource resource(workspace);
  std::mt19937 random(11);
  size_t bound = 0;  // most bytes alive at once in any cycle
  size_t half_way = 0;
  for (int cycle = 0; cycle < 1000; ++cycle) {
    WorkspaceScope scope(workspace);
    size_t live = 0;
    std::vector<std::pair<void*, size_t>> blocks;
    const size_t limit = 200000 + random() % 3000000;
    while (live < limit) {
      const size_t bytes = random() % 50 == 0 ? random() % 60000 : 8 * (1 + random() % 30);
      blocks.emplace_back(resource.allocate(bytes, 8), bytes);
      live += bytes;
      bound = std::max(bound, live);
      if (random() % 3 == 0) {
        std::swap(blocks[random() % blocks.size()], blocks.back());
        resource.deallocate(blocks.back().first, blocks.back().second, 8);
        live -= blocks.back().second;
        blocks.pop_back();
      }
    }
    for (const auto& [block, bytes] : blocks) resource.deallocate(block, bytes, 8);
    if (cycle == 500) half_way = workspace.stats().block_bytes;
  }
  const size_t chunks = internal::kSizeClasses * internal::kBlockChunkBytes;
  EXPECT_LE(workspace.stats().block_bytes, bound * 11 / 10 + chunks + (size_t{1} << 20));
  EXPECT_LE(workspace.stats().block_bytes, half_way + (size_t{1} << 20));
}

TEST(WorkspaceResourceTest, MemoryCountsAsTheWorkspaces) {
  Workspace workspace("ledger of blocks", WorkspaceConfig::Inference());
  WorkspaceResource resource(workspace);
  const int64_t before = OwnerBytes("workspace ledger of blocks");
  {
    WorkspaceScope scope(workspace);
    void* const block = resource.allocate(size_t{3} << 20);
    EXPECT_GE(OwnerBytes("workspace ledger of blocks") - before, int64_t{3} << 20);
    EXPECT_GE(workspace.stats().block_bytes, size_t{3} << 20);
    resource.deallocate(block, size_t{3} << 20);
  }
  EXPECT_GE(workspace.stats().block_bytes, size_t{3} << 20);
  workspace.Trim();
  EXPECT_EQ(workspace.stats().block_bytes, 0u);
  EXPECT_LE(OwnerBytes("workspace ledger of blocks") - before, 16384);  // records
}

TEST(WorkspaceResourceTest, TheReclaimerTakesWhatIsKeptBetweenCyclesAndInOneAtItsEnd) {
  Workspace workspace("w", WorkspaceConfig::Inference());
  WorkspaceResource resource(workspace);
  auto cycle = [&](bool reclaim) {
    WorkspaceScope scope(workspace);
    std::pmr::vector<int> numbers(300000, 1, &resource);
    if (reclaim) Reclaimer::Global().RunNow();
    EXPECT_EQ(numbers[299999], 1);
  };
  cycle(false);
  EXPECT_GT(workspace.stats().block_bytes, size_t{1} << 20);
  EXPECT_GE(Reclaimer::Global().RunNow(), int64_t{1} << 20);
  EXPECT_EQ(workspace.stats().block_bytes, 0u);
  cycle(true);
  EXPECT_EQ(workspace.stats().block_bytes, 0u);
}

#ifdef TIDEPOOL_POISON
TEST(WorkspaceResourceTest, AddressSanitizerFindsWhatIsUsedAfterItsRelease) {
  Workspace workspace("w", WorkspaceConfig::Inference());
  WorkspaceScope scope(workspace);
  for (const size_t bytes : {100, 4000, 10000}) {
    auto* const data = static_cast<char*>(AllocateBytes(workspace, bytes));
    EXPECT_FALSE(__asan_address_is_poisoned(data + bytes - 1));
    ReleaseBytes(data, bytes);
    EXPECT_TRUE(__asan_address_is_poisoned(data + bytes - 1)) << bytes;
  }
}
#endif

TEST(WorkspaceResourceTest, WhatIsNotUsedForManyCyclesGoes) {
  Workspace workspace("w", WorkspaceConfig::Inference());
  WorkspaceResource resource(workspace);
  auto cycle = [&](size_t bytes) {
    WorkspaceScope scope(workspace);
    if (bytes > 0) resource.deallocate(resource.allocate(bytes), bytes);
  };
  cycle(size_t{5} << 20);
  cycle(100);
  EXPECT_GE(workspace.stats().block_bytes, size_t{5} << 20);
  for (int i = 0; i < 70; ++i) cycle(100);
  EXPECT_LE(workspace.stats().block_bytes, size_t{2} << 20);
  EXPECT_GT(workspace.stats().block_bytes, 0u);
  for (int i = 0; i < 140; ++i) cycle(0);  // without any block
  EXPECT_EQ(workspace.stats().block_bytes, 0u);
}

TEST(WorkspaceResourceTest, DestroyGivesAllBackAndTheNextCycleTakesItAgain) {
  Workspace workspace("w", WorkspaceConfig::Inference());
  WorkspaceResource resource(workspace);
  for (int i = 0; i < 3; ++i) {
    {
      WorkspaceScope scope(workspace);
      resource.deallocate(resource.allocate(100), 100);
      resource.deallocate(resource.allocate(100000), 100000);
    }
    EXPECT_GT(workspace.stats().block_bytes, 0u);
    workspace.Destroy();
    EXPECT_EQ(workspace.stats().block_bytes, 0u);
  }
}

TEST(WorkspaceResourceTest, OutsideOfCyclesBlocksAreTheProcesss) {
  Workspace workspace("w", WorkspaceConfig::Inference());
  WorkspaceResource resource(workspace);
  std::pmr::vector<std::pmr::string> global(&resource);
  for (int i = 0; i < 1000; ++i) global.emplace_back(50, 'x');
  EXPECT_EQ(workspace.stats().block_bytes, 0u);
  for (int i = 0; i < 3; ++i) {
    WorkspaceScope scope(workspace);
    void* const inside = resource.allocate(64);
    EXPECT_GT(workspace.stats().block_bytes, 0u);
    for (const std::pmr::string& text : global)
      ASSERT_EQ(std::string_view(text), std::string(50, 'x'));
    resource.deallocate(inside, 64);
  }
  {
    WorkspaceScope scope(workspace);
    global.clear();  // outside blocks that come back inside
    global.shrink_to_fit();
  }
  EXPECT_EQ(workspace.stats().leaked_blocks, 0u);
}

TEST(WorkspaceResourceTest, OutsideBlocksOfAllSizesNeverOverlap) {
  RequestMaker make{std::mt19937(5)};
  BlockOracle oracle;
  const int64_t before = MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kAllocated);
  for (int step = 0; step < 12000 && !HasFatalFailure(); ++step) {
    if (oracle.size() > 0 && make.random() % 5 < 2) {
      const OutBlock block = oracle.Remove(make.random() % oracle.size());
      ResourceHere()->deallocate(block.data, block.bytes, block.alignment);
    } else {
      const size_t bytes = make.Bytes(), alignment = make.Alignment();
      oracle.Add(ResourceHere()->allocate(bytes, alignment), bytes, alignment);
    }
  }
  // Less what classes had kept before.
  constexpr int64_t kKept = internal::kSizeClasses * internal::kBlockChunkBytes + (size_t{4} << 20);
  const auto live = static_cast<int64_t>(oracle.live_bytes());
  EXPECT_GT(live, 2 * kKept);
  EXPECT_GE(MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kAllocated) - before,
            live - kKept);
  while (oracle.size() > 0) {
    const OutBlock block = oracle.Remove(0);
    ResourceHere()->deallocate(block.data, block.bytes, block.alignment);
  }
  // A chunk for each class that was used, and some spans.
  EXPECT_LE(MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kAllocated) - before, kKept);
}

TEST(WorkspaceResourceTest, HereFollowsTheInnermostScope) {
  Workspace outer("outer", WorkspaceConfig::Inference()),
      inner("inner", WorkspaceConfig::Inference());
  WorkspaceResource of_outer(outer);
  WorkspaceScope outer_scope(outer);
  std::pmr::string in_outer(100, 'o', ResourceHere());
  EXPECT_GT(outer.stats().block_bytes, 0u);
  {
    WorkspaceScope inner_scope(inner);
    std::pmr::string in_inner(100, 'i', ResourceHere());
    EXPECT_GT(inner.stats().block_bytes, 0u);
    // One that names its workspace reaches it from further in.
    const size_t before = outer.stats().block_bytes;
    void* const named = of_outer.allocate(size_t{2} << 20);
    EXPECT_GT(outer.stats().block_bytes, before);
    of_outer.deallocate(named, size_t{2} << 20);
    ScopeOutOfWorkspaces out;
    in_outer = std::pmr::string(200, 'h', ResourceHere());
  }
  EXPECT_EQ(inner.stats().leaked_blocks, 0u);
  EXPECT_EQ(in_outer, std::pmr::string(200, 'h'));
}

TEST(WorkspaceResourceTest, TwoOfAWorkspaceAreEqual) {
  Workspace a("a", WorkspaceConfig::Inference()), b("b", WorkspaceConfig::Inference());
  WorkspaceResource first(a), second(a), other(b);
  EXPECT_TRUE(first.is_equal(second));
  EXPECT_FALSE(first.is_equal(other));
  EXPECT_FALSE(first.is_equal(*ResourceHere()));
  EXPECT_FALSE(ResourceHere()->is_equal(first));
  EXPECT_FALSE(first.is_equal(*std::pmr::new_delete_resource()));
  EXPECT_TRUE(ResourceHere()->is_equal(*ResourceHere()));
}

TEST(WorkspaceResourceTest, RawBytesLiveWhereTheyAreAllocated) {
  Workspace workspace("w", WorkspaceConfig::Inference());
  WorkspaceScope scope(workspace);
  void* const named = AllocateBytes(workspace, 100);
  void* const here = AllocateBytesHere(5000, 256);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(here) % 256, 0u);
  ReleaseBytes(named, 100);
  ReleaseBytes(here, 5000, 256);
  ReleaseBytes(nullptr, 1);
  EXPECT_THROW(AllocateBytes(workspace, 10, 24), Error);
  EXPECT_THROW(AllocateBytesHere(10, 0), Error);
}

TEST(WorkspaceResourceTest, BlocksAndArraysShareACycle) {
  Workspace workspace("w", WorkspaceConfig::Training());
  WorkspaceResource resource(workspace);
  for (int i = 0; i < 10; ++i) {
    WorkspaceScope scope(workspace);
    BufferHandle array(AllocateHere(100000));
    std::pmr::vector<int> numbers(1000, i, &resource);
    BufferHandle another(AllocateHere(1000));
    for (const int number : numbers) ASSERT_EQ(number, i);
  }
  const WorkspaceStats stats = workspace.stats();
  EXPECT_EQ(stats.leaked_arrays + stats.leaked_blocks + stats.findings, 0u);
  EXPECT_EQ(stats.requested_bytes, 100032u + 1024u);  // blocks are not among what is planned
  EXPECT_GE(stats.hits, 16u);
}

TEST(WorkspaceResourceTest, AlignmentsThatAreNoneAreRefused) {
  Workspace workspace("w");
  WorkspaceResource resource(workspace);
  WorkspaceScope scope(workspace);
  for (const size_t alignment : {0, 3, 7, 48}) {
    EXPECT_THROW((void)resource.allocate(100, alignment), Error) << alignment;
    EXPECT_THROW((void)ResourceHere()->allocate(100, alignment), Error) << alignment;
  }
}

TEST(WorkspaceResourceTest, ANullPointerIsNoBlock) {
  for (const size_t bytes : {size_t{0}, size_t{100}, size_t{100000}, size_t{1} << 20})
    ReleaseBytes(nullptr, bytes);
}

TEST(WorkspaceResourceTest, SwitchedOffWorkspacesServeFromTheProcess) {
  WorkspaceConfig config = WorkspaceConfig::Inference();
  config.workspace_mode = WorkspaceMode::kNone;
  Workspace workspace("w", config);
  WorkspaceResource resource(workspace);
  WorkspaceScope scope(workspace);
  std::pmr::string text(100, 'x', &resource);
  EXPECT_EQ(workspace.stats().block_bytes, 0u);
}

}  // namespace
}  // namespace tidepool
