// Blocks where memory ends: policies, budgets, a system that refuses at any point.
#include <memory_resource>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/pmr/bad_alloc.h"
#include "tidepool/memory/pmr/block_bytes.h"
#include "tidepool/memory/pmr/block_chunk.h"
#include "tidepool/memory/pmr/block_oracle.h"
#include "tidepool/memory/pmr/workspace_resource.h"
#include "tidepool/memory/testing/failing_provider.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace_core.h"
#include "tidepool/memory/workspace/workspace_pool.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

// What a std::bad_alloc said; empty without one.
template <typename Function>
std::string BadAllocText(const Function& function) {
  try {
    function();
  } catch (const std::bad_alloc& error) {
    return error.what();
  }
  return "";
}

TEST(BlockLimitsTest, AFullWorkspaceThrowsBadAllocAndGoesOn) {
  WorkspaceConfig config = WorkspaceConfig::Inference();
  config.initial_size = size_t{1} << 20;
  config.policy_spill = SpillPolicy::kFail;
  Workspace workspace("full", config);
  WorkspaceResource resource(workspace);
  for (int i = 0; i < 3; ++i) {
    WorkspaceScope scope(workspace);
    const std::string large = BadAllocText([&] { (void)resource.allocate(size_t{2} << 20); });
    EXPECT_NE(large.find("workspace [full] is full"), std::string::npos) << large;
    EXPECT_NE(large.find("policy_spill kFail"), std::string::npos) << large;
    std::vector<void*> blocks;
    const std::string small = BadAllocText([&] {
      for (;;) blocks.push_back(resource.allocate(1000));
    });
    EXPECT_NE(small.find("1048576 bytes"), std::string::npos) << small;
    EXPECT_GT(blocks.size(), 900u);
    EXPECT_LE(blocks.size(), 1048u);
    for (void* const block : blocks) resource.deallocate(block, 1000);
    blocks.assign(1, resource.allocate(1000));
    resource.deallocate(blocks[0], 1000);
  }
}

TEST(BlockLimitsTest, MaxSizeHoldsForArraysAndBlocksTogether) {
  WorkspaceConfig config = WorkspaceConfig::Training();
  config.max_size = size_t{4} << 20;
  config.policy_spill = SpillPolicy::kReallocate;
  Workspace workspace("w", config);
  WorkspaceResource resource(workspace);
  WorkspaceScope scope(workspace);
  BufferHandle array(AllocateHere(size_t{3} << 20));
  const std::string text = BadAllocText([&] { (void)resource.allocate(size_t{2} << 20); });
  EXPECT_NE(text.find("max_size is 4194304"), std::string::npos) << text;
  array.Reset();
  void* const block = resource.allocate(size_t{2} << 20);
  EXPECT_THROW(AllocateHere(size_t{3} << 20), OutOfMemoryError);
  resource.deallocate(block, size_t{2} << 20);
}

// Arrays look at blocks as blocks look at arrays, wherever the array would have had its place.
TEST(BlockLimitsTest, ArraysAfterBlocksKeepTheLimitToo) {
  for (const LearningPolicy learning : {LearningPolicy::kNone, LearningPolicy::kTraining}) {
    for (const SpillPolicy spill : {SpillPolicy::kFail, SpillPolicy::kReallocate}) {
      WorkspaceConfig config;
      config.policy_learning = learning;
      config.policy_spill = spill;
      config.initial_size = size_t{8} << 20;
      if (spill == SpillPolicy::kReallocate) config.max_size = config.initial_size;
      Workspace workspace("together", config);
      // In later cycles what is planned comes after blocks too, and cycles without blocks have all.
      for (int cycle = 0; cycle < 12; ++cycle) {
        WorkspaceScope scope(workspace);
        if (cycle % 3 == 2) {
          BufferHandle array(AllocateHere(size_t{7} << 20));
          continue;
        }
        BufferHandle first(AllocateHere(size_t{1} << 16));
        void* const block = AllocateBytes(workspace, size_t{6} << 20);
        if (cycle >= 6) {
          EXPECT_THROW(AllocateHere(size_t{7} << 20), OutOfMemoryError)
              << static_cast<int>(learning) << ", " << static_cast<int>(spill) << ", " << cycle;
        }
        ReleaseBytes(block, size_t{6} << 20);
        BufferHandle second(AllocateHere(size_t{7} << 20));
      }
    }
  }
}

// What other threads have released, and chunks that no block lies in, are in nobody's way.
TEST(BlockLimitsTest, WhatAnotherThreadReleasedServesAgainBeforeARefusal) {
  for (const SpillPolicy spill : {SpillPolicy::kFail, SpillPolicy::kReallocate}) {
    WorkspaceConfig config;
    config.policy_spill = spill;
    if (spill == SpillPolicy::kFail) {
      config.initial_size = size_t{8} << 20;
    } else {
      config.max_size = size_t{8} << 20;
    }
    Workspace workspace("elsewhere", config);
    WorkspaceScope scope(workspace);
    auto release_elsewhere = [](const std::vector<void*>& blocks, size_t bytes) {
      std::thread([&] {
        for (void* const block : blocks) ReleaseBytes(block, bytes);
      }).join();
    };
    constexpr size_t kLarge = size_t{7} << 20;
    release_elsewhere({AllocateBytes(workspace, kLarge)}, kLarge);
    release_elsewhere({AllocateBytes(workspace, kLarge)}, kLarge);
    for (const bool elsewhere : {false, true}) {
      std::vector<void*> small;
      for (int i = 0; i < 7000; ++i) small.push_back(AllocateBytes(workspace, 1000));
      if (elsewhere) {
        release_elsewhere(small, 1000);
      } else {
        for (void* const block : small) ReleaseBytes(block, 1000);
      }
      BufferHandle array(AllocateHere(size_t{6} << 20));
      array.Reset();
      void* const large = AllocateBytes(workspace, kLarge);
      EXPECT_THROW(AllocateHere(size_t{6} << 20), OutOfMemoryError);
      release_elsewhere({large}, kLarge);
      array = BufferHandle(AllocateHere(size_t{6} << 20));
    }
  }
}

// Chunks that are kept from earlier cycles do not stand in the way of a cycle's first block.
TEST(BlockLimitsTest, KeptChunksGoBeforeAFirstBlockIsRefused) {
  WorkspaceConfig config = WorkspaceConfig::Inference();
  config.max_size = size_t{1} << 20;
  Workspace workspace("kept", config);
  {
    WorkspaceScope scope(workspace);
    std::vector<std::pair<void*, size_t>> blocks;  // of 14 sizes
    for (size_t bytes = 8; bytes <= 112; bytes += 8) {
      blocks.emplace_back(AllocateBytes(workspace, bytes, 8), bytes);
    }
    for (const auto& [block, bytes] : blocks) ReleaseBytes(block, bytes, 8);
  }
  WorkspaceScope scope(workspace);
  ReleaseBytes(AllocateBytes(workspace, 900000), 900000);
}

// To the last byte: that a cycle has or had blocks takes nothing.
TEST(BlockLimitsTest, ArraysAndBlocksGetExactlyTheLimit) {
  constexpr size_t kLimit = size_t{1} << 20;
  for (const SpillPolicy spill : {SpillPolicy::kFail, SpillPolicy::kReallocate}) {
    WorkspaceConfig config = WorkspaceConfig::Inference();
    config.policy_spill = spill;
    if (spill == SpillPolicy::kFail) config.initial_size = kLimit;
    if (spill == SpillPolicy::kReallocate) config.max_size = kLimit;
    Workspace workspace("exactly", config);
    WorkspaceScope scope(workspace);
    BufferHandle array(AllocateHere(kLimit - internal::kBlockChunkBytes));
    ReleaseBytes(AllocateBytes(workspace, 16), 16);
    array.Reset();
    ReleaseBytes(AllocateBytes(workspace, 5000), 5000);
    array = BufferHandle(AllocateHere(kLimit));
    EXPECT_THROW(AllocateBytes(workspace, 16), OutOfMemoryError);
  }
}

// Also where pages have room for an array, and no block is left: what lies beside the pages counts.
TEST(BlockLimitsTest, RandomCyclesWithBlocksKeepTheLimit) {
  WorkspaceConfig config = WorkspaceConfig::Inference();
  config.max_size = 400000;
  Workspace workspace("random", config);
  std::mt19937 random(1);
  for (int cycle = 0; cycle < 400; ++cycle) {
    WorkspaceScope scope(workspace);
    ReleaseBytes(AllocateBytes(workspace, 16), 16);
    std::vector<BufferHandle> arrays;
    size_t live = 0;
    for (int step = 0; step < 60; ++step) {
      const size_t bytes = 1 + random() % (random() % 4 == 0 ? 100000 : 5000);
      try {
        arrays.emplace_back(AllocateHere(bytes));
        live += bytes;
      } catch (const OutOfMemoryError&) {
      }
      ASSERT_LE(live, config.max_size) << cycle;
      while (!arrays.empty() && random() % 3 == 0) {
        std::swap(arrays[random() % arrays.size()], arrays.back());
        live -= arrays.back()->bytes;
        arrays.pop_back();
      }
    }
  }
}

// Arrays in the pages, arrays outside and blocks, of cycles that come again and of others, in a workspace and in one
// of a pool.
TEST(BlockLimitsTest, ArraysAndBlocksTogetherKeepTheLimit) {
  constexpr size_t kLimit = size_t{4} << 20;
  uint64_t spills = 0, hits = 0;
  for (const LearningPolicy learning :
       {LearningPolicy::kTraining, LearningPolicy::kOptimized, LearningPolicy::kFirstLoop}) {
    for (const bool pooled : {false, true}) {
      if (pooled && learning != LearningPolicy::kTraining) continue;
      WorkspaceConfig config;
      config.policy_learning = learning;
      config.max_size = kLimit;
      config.plan_search_seconds = 0;
      Workspace own("own", config);
      config.policy_learning = LearningPolicy::kTraining;
      WorkspacePool pool("pool", config);
      const WorkspaceLease lease = pool.Lease();
      Workspace& workspace = pooled ? *lease : own;
      for (uint32_t cycle = 0; cycle < 200; ++cycle) {
        std::mt19937 random(cycle % 7 == 6 ? 100 + cycle : cycle % 3);
        WorkspaceScope scope(workspace);
        std::vector<BufferHandle> arrays;
        std::vector<std::pair<void*, size_t>> blocks;
        size_t live = 0;
        for (int step = 0; step < 80; ++step) {
          const uint32_t what = random() % 10;
          const size_t bytes = 1 + random() % (random() % 3 == 0 ? kLimit / 4 : kLimit / 128);
          try {
            if (what < 5) {
              arrays.emplace_back(AllocateHere(bytes));
              live += bytes;
            } else if (what < 6) {
              blocks.emplace_back(AllocateBytes(workspace, bytes / 4), bytes / 4);
              live += bytes / 4;
            }
          } catch (const OutOfMemoryError&) {
          }
          ASSERT_LE(live, kLimit) << cycle << " of " << static_cast<int>(learning) << ", "
                                  << pooled;
          if (what >= 6 && what < 9 && !arrays.empty()) {
            std::swap(arrays[random() % arrays.size()], arrays.back());
            live -= arrays.back()->bytes;
            arrays.pop_back();
          } else if (what == 9 && !blocks.empty()) {
            ReleaseBytes(blocks.back().first, blocks.back().second);
            live -= blocks.back().second;
            blocks.pop_back();
          }
        }
        for (const auto& [block, bytes] : blocks) ReleaseBytes(block, bytes);
      }
      spills += workspace.stats().spills;
      hits += workspace.stats().hits;
    }
  }
  EXPECT_GT(spills, 1000u);
  EXPECT_GT(hits, 1000u);
}

TEST(BlockLimitsTest, ABudgetOfTheWorkspaceHolds) {
  Workspace workspace("budgeted blocks", WorkspaceConfig::Inference());
  WorkspaceResource resource(workspace);
  MemoryOwner& owner = workspace.core()->memory_owner;
  MemoryBudget::Global().SetOwnerLimit(owner, Host(), int64_t{2} << 20);
  {
    WorkspaceScope scope(workspace);
    EXPECT_NE(BadAllocText([&] { (void)resource.allocate(size_t{3} << 20); }), "");
    resource.deallocate(resource.allocate(100), 100);
  }
  MemoryBudget::Global().SetOwnerLimit(owner, Host(), MemoryBudget::kUnlimited);
}

TEST(BlockLimitsTest, ErrorsAreBadAllocToContainersAndOurOwnToRawBytes) {
  Workspace workspace("w", WorkspaceConfig::Inference());
  WorkspaceResource resource(workspace);
  for (int inside = 0; inside < 2; ++inside) {
    std::optional<WorkspaceScope> scope;
    if (inside) scope.emplace(workspace);
    for (const size_t bytes : {SIZE_MAX, SIZE_MAX - 4096, SIZE_MAX / 2, size_t{1} << 47}) {
      EXPECT_THROW((void)resource.allocate(bytes, 8), std::bad_alloc) << bytes;
      EXPECT_THROW((void)resource.allocate(bytes, 4096), std::exception) << bytes;
      EXPECT_THROW(AllocateBytes(workspace, bytes), OutOfMemoryError) << bytes;
    }
    EXPECT_THROW((void)resource.allocate(8, size_t{1} << 62), OutOfMemoryBadAlloc);
    try {
      (void)resource.allocate(size_t{1} << 47);
      FAIL();
    } catch (const OutOfMemoryBadAlloc& error) {
      EXPECT_NE(error.report(), "");
    }
    void* const block = resource.allocate(100);
    resource.deallocate(block, 100);
  }
  EXPECT_EQ(workspace.stats().leaked_blocks, 0u);
}

TEST(BlockLimitsTest, AStatusOfABadAllocSaysWhoRefused) {
  Workspace workspace("status", WorkspaceConfig::Inference());
  WorkspaceResource resource(workspace);
  WorkspaceScope scope(workspace);
  const absl::Status status = CatchStatus([&] { (void)resource.allocate(size_t{1} << 47); });
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("workspace [status]"), std::string::npos) << status;
}

// A cycle of blocks, small and large, over a host that refuses its nth request, for every n.
TEST(BlockLimitsTest, ARefusalAtAnyPointLeavesEverythingAsItWas) {
  const int64_t before = MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kWorkspace);
  int refusals = 0;
  for (int64_t n = 0;; ++n) {
    FailingProvider host(Host());
    bool refused = false;
    {
      Workspace workspace("w", WorkspaceConfig::Inference());
      WorkspaceResource resource(workspace);
      host.faults().FailRequest(n);
      RequestMaker make{std::mt19937(7)};
      for (int cycle = 0; cycle < 3; ++cycle) {
        BlockOracle oracle;
        WorkspaceScope scope(workspace);
        for (int step = 0; step < 300; ++step) {
          const size_t bytes = make.Bytes(), alignment = make.Alignment();
          try {
            oracle.Add(resource.allocate(bytes, alignment), bytes, alignment);
          } catch (const std::bad_alloc&) {
            refused = true;
          }
          if (step % 3 == 0 && oracle.size() > 0) {
            const OutBlock block = oracle.Remove(make.random() % oracle.size());
            resource.deallocate(block.data, block.bytes, block.alignment);
          }
        }
        while (oracle.size() > 0) {
          const OutBlock block = oracle.Remove(0);
          resource.deallocate(block.data, block.bytes, block.alignment);
        }
      }
      EXPECT_EQ(workspace.stats().leaked_blocks, 0u);
      EXPECT_EQ(workspace.core()->is_open(), false);
    }
    refusals += refused;
    if (host.faults().failed() == 0) break;  // there were not so many requests
    ASSERT_LT(n, 1000);
  }
  EXPECT_GE(refusals, 4);
  EXPECT_EQ(MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kWorkspace), before);
}

TEST(BlockLimitsTest, AFirstBlockThatIsRefusedLeavesTheCycleEmpty) {
  FailingProvider host(Host());
  Workspace workspace("w", WorkspaceConfig::Inference());
  WorkspaceResource resource(workspace);
  {
    WorkspaceScope scope(workspace);
    host.faults().FailRequest(0, 1000);
    EXPECT_THROW((void)resource.allocate(100), std::bad_alloc);
    EXPECT_THROW((void)resource.allocate(100000), std::bad_alloc);
    host.faults().Clear();
    EXPECT_EQ(workspace.stats().block_bytes, 0u);
  }
  WorkspaceScope scope(workspace);
  resource.deallocate(resource.allocate(100), 100);
}

TEST(BlockLimitsTest, AWorkspaceOfAnotherDeviceIsRefused) {
  Workspace workspace("on device", WorkspaceConfig::Inference(), SimulatedDevice::kDevice);
  try {
    WorkspaceResource resource(workspace);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("workspace [on device]"), std::string::npos) << error.message();
  }
  WorkspaceScope scope(workspace);
  std::pmr::string text(100, 'x', ResourceHere());  // the process's
  EXPECT_EQ(workspace.stats().block_bytes, 0u);
}

}  // namespace
}  // namespace tidepool
