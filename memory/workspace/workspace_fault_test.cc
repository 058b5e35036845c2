// Every allocation of C++ memory inside the workspace code fails once; each time the workspace
// must stay usable, the thread's stack of scopes intact and the ledger right.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/failing_new.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/kinds_for_test.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

void Cycle(Workspace& workspace, int variant) {
  WorkspaceScope scope(workspace);
  std::vector<Buffer*> live;  // released by hand so that the test's own memory cannot fail
  faults_on = false;
  live.reserve(200);
  faults_on = true;
  try {
    for (int i = 0; i < 150; ++i) {
      live.push_back(AllocateHere(64 + (i * 37 + variant) % 5000));
      std::memset(live.back()->data, i, live.back()->bytes);
      if (i % 3 == 2) {
        BufferHandle(live.back()).Reset();
        live.pop_back();
      }
    }
  } catch (...) {
    for (Buffer* buffer : live) BufferHandle(buffer).Reset();
    throw;
  }
  for (Buffer* buffer : live) BufferHandle(buffer).Reset();
}

TEST(WorkspaceFault, EveryAllocationMayFail) {
  std::vector<WorkspaceConfig> configs(5);
  configs[0] = WorkspaceConfig::Training();
  configs[1] = configs[2] = WorkspaceConfig::Nd4j();
  configs[1].initial_size = 10000;
  configs[1].policy_spill = SpillPolicy::kReallocate;
  configs[2].policy_allocation = AllocationPolicy::kAlways;
  configs[3] = WorkspaceConfig::Training();
  configs[3].temp_block_size = 4096;
  configs[4] = WorkspaceConfig::Training();  // cycles leave their plan before a request is refused
  configs[4].policy_spill = SpillPolicy::kFail;
  configs[4].initial_size = 350000;
  MemoryTracker& tracker = MemoryTracker::Global();
  for (const WorkspaceConfig& config : configs) {
    int64_t faults = 0;
    for (int64_t n = 0;; ++n) {
      const int64_t before = tracker.Snapshot()[Host()].total.current_bytes;
      until_fault = n;
      fault_happened = false;
      std::unique_ptr<Workspace> workspace;
      Try([&] { workspace = std::make_unique<Workspace>("w", config); });
      for (int cycle = 0; cycle < 5 && workspace != nullptr; ++cycle) {
        Try([&] { Cycle(*workspace, cycle == 3 ? 1 : 0); });
        ASSERT_EQ(CurrentPlace(), nullptr);
        ASSERT_FALSE(workspace->is_open());
      }
      if (workspace != nullptr) {
        Cycle(*workspace, 0);  // usable
        faults_on = false;
        const MemorySnapshot now = tracker.Snapshot();
        ASSERT_EQ(now[Host()][MemoryKind::kAllocated].current_bytes, 0) << "fault " << n;
      }
      workspace.reset();
      ASSERT_EQ(tracker.Snapshot()[Host()].total.current_bytes, before) << "fault " << n;
      if (!fault_happened) break;
      ++faults;
    }
    EXPECT_GT(faults, 5);
  }
}

// Wherever memory is missing once while kinds that begin alike are learned, learning goes on: they stop missing.
TEST(WorkspaceFault, LearningGoesOnAfterAnyFault) {
  struct Request {
    size_t bytes;
    uint32_t until;  // before which request it is released
  };
  const std::vector<Request> kinds[] = {{{1024, 3}, {28672, 3}, {18432, 3}},
                                        {{1024, 2}, {28672, 2}, {18432, 3}, {64, 4}},
                                        {{1024, 2}, {28672, 3}, {18432, 3}}};
  WorkspaceConfig config = WorkspaceConfig::Inference();
  config.plan_search_seconds = 0;
  for (int64_t n = 0;; ++n) {
    Workspace workspace("w", config);
    const auto turns = [&](int count) {
      for (int i = 0; i < count; ++i) {
        const std::vector<Request>& kind = kinds[i / 4 % 3];
        WorkspaceScope scope(workspace);
        Buffer* arrays[4] = {};
        const auto release = [&arrays](size_t which) {
          if (arrays[which] != nullptr) BufferHandle(std::exchange(arrays[which], nullptr)).Reset();
        };
        try {
          for (uint32_t r = 0; r < kind.size(); ++r) {
            for (uint32_t before = 0; before < r; ++before) {
              if (kind[before].until == r) release(before);
            }
            arrays[r] = AllocateHere(kind[r].bytes);
          }
        } catch (const std::bad_alloc&) {
        }
        for (size_t r = 0; r < 4; ++r) release(r);
      }
    };
    until_fault = n;
    fault_happened = false;
    Try([&] { turns(100); });
    turns(600);
    const uint64_t misses = workspace.stats().misses;
    turns(600);
    ASSERT_LE(workspace.stats().misses, misses + 4) << "fault " << n;
    if (!fault_happened) break;
    ASSERT_LT(n, 100000);
  }
}

// Requests that a plan served are written down when one comes that it has not: there is room for that one too, wherever memory
// for it is missing.
TEST(WorkspaceFault, ARequestThatLeavesItsPlanIsRefusedOrServed) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    std::mt19937_64 random(seed);
    Workspace workspace("w", Learning());
    std::vector<Kind> kinds(2 + seed % 3);
    for (Kind& kind : kinds) {
      Extend(random, 20 + random() % 200, 3, &kind);
      DrawLives(random, &kind);
    }
    int refused = 0;
    for (int i = 0; i < 600; ++i) {
      Kind kind = kinds[random() % kinds.size()];
      kind.resize(1 + random() % kind.size());
      const auto last = static_cast<uint32_t>(kind.size() + 1);
      if (random() % 2 != 0) kind.push_back({64 + 64 * (random() % 3), last});
      if (random() % 4 == 0) kind[random() % kind.size()].bytes = 64 + 64 * (random() % 8);
      const WorkspaceScope scope(workspace);
      std::vector<BufferHandle> arrays(kind.size());
      for (uint32_t at = 0; at < kind.size(); ++at) {
        for (uint32_t before = 0; before < at; ++before) {
          if (kind[before].until == at) arrays[before].Reset();
        }
        const auto allocate = [&] { arrays[at] = BufferHandle(AllocateHere(kind[at].bytes)); };
        until_fault = 0;  // each allocation of a request fails
        refused += random() % 4 == 0 && !Try(allocate);
        if (!arrays[at]) allocate();
      }
    }
    EXPECT_GT(refused, 0);
    EXPECT_EQ(workspace.stats().leaked_arrays, 0);
  }
}

}  // namespace
}  // namespace tidepool
