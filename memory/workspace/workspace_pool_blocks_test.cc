// Blocks of containers in a pool's workspaces: what is counted, and what goes back.
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/pmr/block_bytes.h"
#include "tidepool/memory/workspace/pool_service.h"
#include "tidepool/memory/workspace/workspace_pool.h"

namespace tidepool {
namespace {

// Containers take blocks of their workspace, beside its range.
TEST(WorkspacePool, BlocksOfContainersAreCounted) {
  const auto kept = [] {
    return MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kUnreferenced);
  };
  const int64_t before = kept();
  WorkspacePool pool("p", Quiet());
  void* late;
  {
    PooledScope scope(pool);
    void* const block = AllocateBytesHere(20 << 20);
    EXPECT_GE(pool.stats().block_bytes, size_t{20} << 20);
    ReleaseBytes(block, 20 << 20);
    late = AllocateBytesHere(100);
  }
  const WorkspacePoolStats stats = pool.stats();
  EXPECT_EQ(stats.leaked_blocks, 1u);
  EXPECT_GE(stats.block_bytes, size_t{20} << 20);
  EXPECT_EQ(stats.held_bytes, stats.block_bytes);
  EXPECT_EQ(static_cast<int64_t>(stats.held_bytes), kept() - before);
  ReleaseBytes(late, 100);
  pool.Trim();
  EXPECT_EQ(pool.stats().held_bytes, 0u);
  EXPECT_EQ(pool.stats().leaked_blocks, 1u);
  EXPECT_EQ(kept(), before);
}

TEST(WorkspacePool, WorkspacesThatNobodyLeasesGiveBlocksBack) {
  constexpr size_t kBytes = size_t{4} << 20;
  WorkspacePool pool("p", Quiet());
  const auto burst = [&](int count) {
    std::vector<WorkspaceLease> leases;
    for (int i = 0; i < count; ++i) leases.push_back(pool.Lease());
    for (const WorkspaceLease& lease : leases) {
      WorkspaceScope scope(*lease);
      ReleaseBytes(AllocateBytesHere(kBytes), kBytes);
    }
  };
  burst(32);
  EXPECT_GE(pool.stats().held_bytes, 32 * kBytes);
  for (int i = 0; i < 200; ++i) burst(1);
  EXPECT_GE(pool.stats().held_bytes, 32 * kBytes) << "they may come again";
  // Two at a time keep two workspaces in use.
  for (int i = 0; i < 512; ++i) burst(2);
  WorkspacePoolStats stats = pool.stats();
  EXPECT_GE(stats.held_bytes, 2 * kBytes);
  EXPECT_LE(stats.held_bytes, 2 * kBytes + (2 << 20));
  EXPECT_EQ(stats.workspaces, 32u) << "only the memory goes";
  burst(32);
  EXPECT_EQ(pool.stats().workspaces, 32u);
  EXPECT_GE(pool.stats().held_bytes, 32 * kBytes);
}

// The only user keeps its lease: its cycles count as if each had one.
TEST(WorkspacePool, CyclesOfOneLeaseMakeOthersGiveBlocksBack) {
  constexpr size_t kBytes = size_t{4} << 20;
  WorkspacePool pool("p", Quiet());
  const auto cycle = [](Workspace& workspace) {
    WorkspaceScope scope(workspace);
    ReleaseBytes(AllocateBytesHere(kBytes), kBytes);
  };
  {
    std::vector<WorkspaceLease> leases;
    for (int i = 0; i < 16; ++i) leases.push_back(pool.Lease());
    for (const WorkspaceLease& lease : leases) cycle(*lease);
  }
  EXPECT_GE(pool.stats().held_bytes, 16 * kBytes);
  WorkspaceLease lease = pool.Lease();
  for (int i = 0; i < 255; ++i) cycle(*lease);
  EXPECT_GE(pool.stats().held_bytes, 16 * kBytes) << "they may come again";
  for (int i = 255; i < 256 + 15 * 16; ++i) cycle(*lease);
  EXPECT_GE(pool.stats().held_bytes, kBytes);
  EXPECT_LE(pool.stats().held_bytes, kBytes + (2 << 20));
  EXPECT_EQ(pool.stats().workspaces, 16u);
}

// Cycles of a lease outlive the pool, and the last one of a workspace that went back open outlives
// whoever counts them.
TEST(WorkspacePool, CyclesOfALeaseEndAfterThePool) {
  for (const bool goes_back_open : {false, true}) {
    auto pool = std::make_unique<WorkspacePool>("p", Quiet());
    WorkspaceLease lease = pool->Lease();
    for (int i = 0; i < 15; ++i) {
      WorkspaceScope scope(*lease);
      Serve(2);
    }
    pool = nullptr;
    WorkspaceScope scope(*lease);
    Serve(2);
    if (goes_back_open) lease.Release();
    scope.Close();
  }
}

// Also of those that are leased: at once where they are closed, at the end of the cycle where not.
TEST(WorkspacePool, TrimGivesBackBlocksOfLeasedWorkspaces) {
  constexpr size_t kBytes = size_t{4} << 20;
  WorkspacePool pool("p", Quiet());
  std::vector<WorkspaceLease> leases;
  for (int i = 0; i < 40; ++i) leases.push_back(pool.Lease());
  for (int round = 0; round < 2; ++round) {
    for (const WorkspaceLease& lease : leases) {
      WorkspaceScope scope(*lease);
      ReleaseBytes(AllocateBytesHere(kBytes), kBytes);
    }
    EXPECT_GE(pool.stats().block_bytes, 40 * kBytes);
    {
      WorkspaceScope scope(*leases[7]);
      void* const block = AllocateBytesHere(kBytes);
      pool.Trim();
      EXPECT_GE(pool.stats().block_bytes, kBytes);
      EXPECT_LT(pool.stats().block_bytes, 2 * kBytes);
      ReleaseBytes(block, kBytes);
    }
    EXPECT_EQ(pool.stats().block_bytes, 0u);
    EXPECT_EQ(pool.stats().leased, 40u);
  }
}

// Leases go on, end and outlive their pool meanwhile; so do workspaces that are closed for good.
TEST(WorkspacePool, TrimComesWhileLeasesAreUsed) {
  for (int round = 0; round < 3; ++round) {
    auto pool = std::make_unique<WorkspacePool>("p", Quiet());
    std::vector<WorkspaceLease> kept(6);
    RunThreads(6, [&](int thread) {
      std::mt19937 random(6 * round + thread);
      for (int i = 0; i < 400; ++i) {
        if (!kept[thread] || random() % 8 == 0) kept[thread] = pool->Lease();
        {
          WorkspaceScope scope(*kept[thread]);
          const BufferHandle array = New(1000);
          ReleaseBytes(AllocateBytesHere(100 << 10), 100 << 10);
        }
        if (random() % 4 == 0) pool->Trim();
        if (random() % 8 == 0) kept[thread].Release();
      }
    });
    pool->Trim();
    EXPECT_EQ(pool->stats().block_bytes, 0u);
    EXPECT_EQ(pool->stats().failed_cycles, 0u);
    pool = nullptr;
  }
}

// While they give back they are nobody's: leases, trims and the pool's end come in between.
TEST(WorkspacePool, WorkspacesComeAndGoWhileOthersGiveBack) {
  for (int round = 0; round < 3; ++round) {
    auto pool = std::make_unique<WorkspacePool>("p", Quiet());
    RunThreads(6, [&](int thread) {
      std::mt19937 random(6 * round + thread);
      for (int i = 0; i < 500; ++i) {
        std::vector<std::unique_ptr<PooledScope>> open;
        for (uint32_t k = 1 + (random() % 16 == 0) * 8; k > 0; --k) {
          open.push_back(std::make_unique<PooledScope>(*pool));
          ReleaseBytes(AllocateBytesHere(100 << 10), 100 << 10);
        }
        if (random() % 400 == 0) pool->Trim();
        while (!open.empty()) open.pop_back();
      }
    });
    const WorkspacePoolStats stats = pool->stats();
    EXPECT_EQ(stats.leased, 0u);
    EXPECT_EQ(stats.failed_cycles, 0u);
    EXPECT_EQ(stats.leaked_blocks, 0u);
    // One is still leased when the pool goes.
    WorkspaceLease lease = pool->Lease();
    pool = nullptr;
    lease.Release();
  }
}

}  // namespace
}  // namespace tidepool
