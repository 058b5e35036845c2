// A million cycles of random shapes: resident memory stays where it was after the first thousand,
// counters are exact, everything is given back. TIDEPOOL_SOAK_CYCLES and TIDEPOOL_SOAK_SEED change
// the run.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t all = 0, resident = 0;
  statm >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// Sizes are multiples of the alignment, so that the model's sums are those of the workspace.
struct Shape {
  std::vector<size_t> sizes;
  std::vector<size_t> lifetimes;  // in requests
};

Shape RandomShape(std::mt19937& random) {
  Shape shape;
  const size_t requests = 1 + random() % 24;
  for (size_t i = 0; i < requests; ++i) {
    shape.sizes.push_back(64 * (1 + random() % 512));
    shape.lifetimes.push_back(1 + random() % 8);
  }
  return shape;
}

int64_t FromEnvironment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::stoll(text) : otherwise;
}

TEST(WorkspaceSoak, ResidentMemoryIsFlatAndCountersAreExact) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr int64_t kCycles = 20000;  // sanitizers keep memory of their own
#else
  constexpr int64_t kCycles = 1000000;
#endif
  const int64_t cycles = FromEnvironment("TIDEPOOL_SOAK_CYCLES", kCycles);
  const uint32_t seed =
      static_cast<uint32_t>(FromEnvironment("TIDEPOOL_SOAK_SEED", std::random_device()()));
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  auto ledger = [] { return MemoryTracker::Global().Snapshot()[Host()]; };
  const int64_t before = ledger().total.current_bytes;
  {
    WorkspaceConfig config = WorkspaceConfig::Training();
    config.policy_learning = LearningPolicy::kTraining;
    config.plan_search_seconds = 0.01;
    Workspace workspace("soak", config);
    std::vector<Shape> shapes;
    uint64_t requests = 0;
    int64_t after_first_thousand = 0, most = 0;
    for (int64_t cycle = 0; cycle < cycles; ++cycle) {
      // A few shapes at a time; one of them is replaced now and then.
      if (shapes.size() < 6) shapes.push_back(RandomShape(random));
      if (random() % 500 == 0) shapes[random() % shapes.size()] = RandomShape(random);
      const Shape& shape = shapes[random() % shapes.size()];
      size_t bytes = 0;
      WorkspaceScope scope(workspace);
      std::vector<BufferHandle> live(shape.sizes.size());
      for (size_t i = 0; i < shape.sizes.size(); ++i) {
        live[i] = BufferHandle(AllocateHere(shape.sizes[i]));
        *live[i]->data = static_cast<std::byte>(i);
        bytes += shape.sizes[i];
        for (size_t k = 0; k <= i; ++k) {
          if (!live[k] || k + shape.lifetimes[k] > i) continue;
          ASSERT_EQ(*live[k]->data, static_cast<std::byte>(k));
          live[k].Reset();
        }
      }
      requests += shape.sizes.size();
      ASSERT_EQ(workspace.bytes_this_cycle(), bytes);
      scope.Close();
      live.clear();
      if (cycle == 1000) after_first_thousand = ResidentBytes();
      if (cycle > 1000 && cycle % 1000 == 0) most = std::max(most, ResidentBytes());
      if (cycle % 100000 == 0) {
        std::printf("cycle %8lld: resident %lld KiB, %zu plans, pages %zu KiB\n",
                    static_cast<long long>(cycle), static_cast<long long>(ResidentBytes() >> 10),
                    workspace.stats().plans_kept, workspace.size() >> 10);
      }
    }
    const WorkspaceStats stats = workspace.stats();
    EXPECT_EQ(stats.cycles, static_cast<uint64_t>(cycles));
    EXPECT_EQ(stats.hits + stats.spills, requests);
    EXPECT_EQ(ledger()[MemoryKind::kAllocated].current_bytes, 0);
    std::printf(
        "%llu requests, %.4f %% outside of the pages; resident %lld KiB after the first "
        "thousand cycles, at most %lld KiB later\n",
        static_cast<unsigned long long>(requests), 100.0 * stats.spills / requests,
        static_cast<long long>(after_first_thousand >> 10), static_cast<long long>(most >> 10));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    // Plans of up to 128 shapes come and go, and a spill keeps its block for some cycles.
    EXPECT_LE(most, after_first_thousand + (4 << 20));
#endif
  }
  EXPECT_EQ(ledger().total.current_bytes, before);
}

}  // namespace
}  // namespace tidepool
