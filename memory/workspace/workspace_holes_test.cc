// Large requests that are ever different: what a workspace holds beside what is alive, its bytes,
// and refusals.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/failing_provider.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

class WorkspaceHoles : public testing::TestWithParam<Device> {
 protected:
  static WorkspaceConfig Config() {
    WorkspaceConfig config = WorkspaceConfig::Training();
    config.huge_pages = config.prefault =
        false;  // sizes are those of large arrays, of which a few bytes are written
    config.plan_search_seconds = 0;
    return config;
  }

  int64_t Held() const {
    int64_t bytes = 0;
    for (const MemoryKind kind : {MemoryKind::kUnreferenced, MemoryKind::kAllocated}) {
      bytes += MemoryTracker::Global().CurrentBytes(GetParam(), kind);
    }
    return bytes;
  }

  // Writes and checks the ends and the middle of each array. Returns the most that was alive at
  // once.
  size_t Cycle(Workspace& workspace, uint64_t seed, size_t unit) {
    std::mt19937_64 random(seed);
    WorkspaceScope scope(workspace);
    DeviceProvider& memory = GetDeviceProvider(GetParam(), "test");
    std::vector<std::pair<BufferHandle, uint64_t>> live;
    size_t alive = 0, most = 0;
    const auto release = [&](size_t i) {
      std::swap(live[i], live.back());
      const auto& [array, mark] = live.back();
      for (const size_t at : {size_t{0}, array->bytes / 16 * 8, array->bytes - 8}) {
        uint64_t seen = 0;
        memory.CopyToHost(reinterpret_cast<std::byte*>(&seen), array->data + at, 8);
        ASSERT_EQ(seen, mark);
      }
      alive -= array->bytes;
      live.pop_back();
    };
    for (int i = 0; i < 40; ++i) {
      // As many of each power of two, up to 2^22 times the unit.
      const size_t of = unit << (random() % 23);
      const size_t bytes = std::max<size_t>(8, (of + random() % (of / 6 + 1)) / 8 * 8);
      const uint64_t mark = random();
      live.emplace_back(BufferHandle(AllocateHere(bytes)), mark);
      for (const size_t at : {size_t{0}, bytes / 16 * 8, bytes - 8}) {
        memory.CopyFromHost(live.back().first->data + at, reinterpret_cast<const std::byte*>(&mark),
                            8);
      }
      most = std::max(most, alive += bytes);
      most_held_ = std::max(most_held_, Held());
      while (live.size() > 12 || (!live.empty() && random() % 3 == 0))
        release(random() % live.size());
    }
    while (!live.empty()) release(live.size() - 1);
    return most;
  }

  int64_t most_held_ = 0;
};

// Beside it: gaps that are too small for a hole, or the rest of one whose ends are in the middle of
// large pages.
TEST_P(WorkspaceHoles, EverDifferentLargeRequestsHoldLittleMoreThanWasAlive) {
  for (const size_t unit : {size_t{16}, size_t{4}}) {
    const int64_t before = Held();
    Workspace workspace("w", Config(), GetParam());
    size_t most = 0;
    for (uint64_t cycle = 0; cycle < 300; ++cycle) {
      most = std::max(most, Cycle(workspace, 1000 + cycle, unit));
      const auto bound = static_cast<int64_t>(most + most / 16 + 20 * kMiB);
      ASSERT_LE(most_held_ - before, bound) << "cycle " << cycle << ", unit " << unit;
    }
    most_held_ = 0;
  }
}

// Also where it is the first request of the cycle that its plan has no room for.
TEST_P(WorkspaceHoles, AFirstRequestThatIsEverDifferentHoldsLittleMoreThanWasAlive) {
  for (const LearningPolicy learning : {LearningPolicy::kOptimized, LearningPolicy::kTraining}) {
    WorkspaceConfig config = Config();
    config.policy_learning = learning;
    const int64_t before = Held();
    Workspace workspace("w", config, GetParam());
    std::mt19937_64 random(5);
    size_t most = 0;
    for (int cycle = 0; cycle < 100; ++cycle) {
      WorkspaceScope scope(workspace);
      const size_t first = (1 + random() % 200) * kMiB;
      BufferHandle array(AllocateHere(first));
      array = BufferHandle(AllocateHere(10 * kMiB));
      const BufferHandle other(AllocateHere(20 * kMiB));
      most = std::max({most, first + 10 * kMiB, 30 * kMiB});
      most_held_ = std::max(most_held_, Held());
      ASSERT_LE(most_held_ - before, static_cast<int64_t>(most + most / 16 + 20 * kMiB))
          << "cycle " << cycle;
    }
    most_held_ = 0;
  }
}

// Gaps between small requests that stay are too small to go back, so there are none.
TEST_P(WorkspaceHoles, SmallRequestsThatStayAreNoReasonToAskForMemory) {
  const int64_t before = Held();
  Workspace workspace("w", Config(), GetParam());
  std::mt19937_64 random(7);
  MemoryTracker& tracker = MemoryTracker::Global();
  const auto asked = [&] {
    return tracker.system_allocations() + tracker.Snapshot().system_releases;
  };
  int64_t calls = 0;
  size_t most = 0;
  for (int cycle = 0; cycle < 60; ++cycle) {
    if (cycle == 20) calls = asked();
    WorkspaceScope scope(workspace);
    std::vector<BufferHandle> large, small;
    size_t alive = 0;
    for (int i = 0; i < 200; ++i) {
      large.emplace_back(AllocateHere(3 * kMiB + random() % (2 * kMiB)));
      small.emplace_back(AllocateHere(1 + random() % 4096));
      most = std::max(most, alive += large.back()->bytes + small.back()->bytes);
      if (large.size() < 10) continue;
      std::swap(large[random() % large.size()], large.back());
      alive -= large.back()->bytes;
      large.pop_back();
      most_held_ = std::max(most_held_, Held());
    }
    ASSERT_LE(most_held_ - before, static_cast<int64_t>(most + most / 16 + 24 * kMiB))
        << "cycle " << cycle;
  }
  EXPECT_LE(asked() - calls, 40 * 10);
}

// A request that what is kept has room for takes nothing: no room is made for it.
TEST_P(WorkspaceHoles, AFreeBlockServesOneRequestAfterTheOther) {
  MemoryTracker& tracker = MemoryTracker::Global();
  for (const size_t bytes : {size_t{64}, size_t{4096}, 100 * kMiB / 1024, 4 * kMiB, 60 * kMiB}) {
    for (const size_t chunk : {kMiB, 4 * kMiB}) {
      WorkspaceConfig config = Config();
      config.temp_block_size = chunk;
      Workspace workspace("w", config, GetParam());
      WorkspaceScope scope(workspace);
      { const BufferHandle first(AllocateHere(bytes)); }
      const int64_t taken = tracker.system_allocations(),
                    given = tracker.Snapshot().system_releases;
      for (int i = 0; i < 64; ++i) BufferHandle(AllocateHere(bytes));
      EXPECT_EQ(tracker.system_allocations(), taken) << bytes << " bytes, chunks of " << chunk;
      EXPECT_EQ(tracker.Snapshot().system_releases, given)
          << bytes << " bytes, chunks of " << chunk;
    }
  }
}

// Nor where small ones come between.
TEST_P(WorkspaceHoles, ABlockThatThisCycleNeededIsKeptForIt) {
  MemoryTracker& tracker = MemoryTracker::Global();
  Workspace workspace("w", Config(), GetParam());
  WorkspaceScope scope(workspace);
  const auto request = [] {
    for (const size_t bytes : {20 * kMiB, size_t{64}}) BufferHandle(AllocateHere(bytes));
  };
  request();
  const int64_t taken = tracker.system_allocations(), given = tracker.Snapshot().system_releases;
  for (int i = 0; i < 20; ++i) request();
  EXPECT_EQ(tracker.system_allocations(), taken);
  EXPECT_EQ(tracker.Snapshot().system_releases, given);
}

// What came before is no reason to ask for memory in each turn of what repeats.
TEST_P(WorkspaceHoles, ARepeatedCycleAsksForNothingAfterThem) {
  FailingProvider provider(GetParam());
  Workspace workspace("w", Config(), GetParam());
  for (uint64_t cycle = 0; cycle < 40; ++cycle) Cycle(workspace, cycle, 16);
  for (int i = 0; i < 12; ++i) Cycle(workspace, 7777, 16);
  MemoryTracker& tracker = MemoryTracker::Global();
  const int64_t taken = tracker.system_allocations(), given = tracker.Snapshot().system_releases;
  for (int i = 0; i < 20; ++i) Cycle(workspace, 7777, 16);
  EXPECT_EQ(tracker.system_allocations(), taken);
  EXPECT_EQ(tracker.Snapshot().system_releases, given);
}

// Each request to the provider fails once, those that make holes and fill them among them.
TEST_P(WorkspaceHoles, AnyRequestMayBeRefused) {
  const auto total = [] {
    int64_t bytes = 0;
    for (const DeviceMemory& memory : MemoryTracker::Global().Snapshot().devices) {
      bytes += memory.total.current_bytes;
    }
    return bytes;
  };
  FailingProvider provider(GetParam());
  int64_t refused = 0;
  for (int64_t n = 0;; n += 1 + n / 50) {
    const int64_t before = total();
    {
      Workspace workspace("w", Config(), GetParam());
      provider.faults().FailRequest(n, 3);
      for (uint64_t cycle = 0; cycle < 14; ++cycle) {
        try {
          Cycle(workspace, 100 + cycle, 8);
        } catch (const Error&) {
          ++refused;
        }
        if (HasFatalFailure()) return;
      }
      const bool failed = provider.faults().failed() > 0;
      provider.faults().Clear();
      if (!failed) break;
      for (int i = 0; i < 3; ++i) Cycle(workspace, 50, 8);
      const uint64_t spills = workspace.stats().spills;
      Cycle(workspace, 50, 8);
      ASSERT_EQ(workspace.stats().spills, spills) << "request " << n;
    }
    ASSERT_EQ(total(), before) << "request " << n;
  }
  EXPECT_GT(refused, 10);
}

// What a pool of spills had kept goes to make room for a request that is refused then.
TEST_P(WorkspaceHoles, AfterARefusalTheLedgerSaysWhatIsHeld) {
  const int64_t before = Held();
  WorkspaceConfig config;
  config.policy_learning = LearningPolicy::kNone;
  Workspace workspace("w", config, GetParam());
  MemoryBudget& budget = MemoryBudget::Global();
  const int64_t taken = budget.Of(GetParam()).taken_bytes;
  {
    WorkspaceScope scope(workspace);
    { const BufferHandle gone(AllocateHere(10 * kMiB)); }
    budget.SetDeviceLimit(GetParam(), taken + static_cast<int64_t>(15 * kMiB));
    EXPECT_THROW(BufferHandle(AllocateHere(20 * kMiB)), OutOfMemoryError);
    budget.SetDeviceLimit(GetParam(), MemoryBudget::kUnlimited);
    EXPECT_EQ(Held() - before, budget.Of(GetParam()).taken_bytes - taken);
  }
}

// Where a device or a budget has no more, what the workspace keeps and nobody uses goes first.
TEST(WorkspaceKept, GoesBeforeARequestIsRefused) {
  SimulatedDevice& device = SimulatedDevice::Get();
  for (const bool by_budget : {false, true}) {
    const Device where = by_budget ? Host() : SimulatedDevice::kDevice;
    const auto set_capacity = [&](size_t bytes) {
      if (!by_budget) {
        device.Reset();
        return device.set_capacity(bytes);
      }
      MemoryBudget& budget = MemoryBudget::Global();
      budget.SetDeviceLimit(Host(), budget.Of(Host()).taken_bytes + static_cast<int64_t>(bytes));
    };
    constexpr size_t kCapacity = 16 * kMiB;
    for (size_t first = 1; first <= 15; ++first) {
      for (size_t second = 1; second <= 15; ++second) {
        set_capacity(kCapacity);
        Workspace workspace("w", WorkspaceConfig(), where);
        WorkspaceScope scope(workspace);
        { const BufferHandle gone(AllocateHere(kCapacity / 16 * first)); }
        EXPECT_NO_THROW(BufferHandle(AllocateHere(kCapacity / 16 * second)))
            << first << " sixteenths, and then " << second << ", by budget " << by_budget;
      }
    }
    // Ever smaller ones, of which what is kept is not close enough to serve them.
    for (const size_t capacity : {4 * kMiB, 9 * kMiB / 2, 6 * kMiB}) {
      set_capacity(capacity);
      Workspace workspace("w", WorkspaceConfig(), where);
      for (int cycle = 0; cycle < 4; ++cycle) {
        WorkspaceScope scope(workspace);
        for (double bytes = 3 << 20; bytes > 1024; bytes *= 0.95) {
          EXPECT_NO_THROW(BufferHandle(AllocateHere(static_cast<size_t>(bytes))))
              << capacity << ", " << bytes;
        }
      }
    }
    MemoryBudget::Global().SetDeviceLimit(Host(), MemoryBudget::kUnlimited);
  }
  device.Reset();
}

INSTANTIATE_TEST_SUITE_P(Devices, WorkspaceHoles, testing::Values(Host(), SimulatedDevice::kDevice),
                         [](const auto& info) { return DeviceTypeName(info.param.type); });

}  // namespace
}  // namespace tidepool
