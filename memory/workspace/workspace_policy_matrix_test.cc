// One suite over every combination of policies, on the host and on a device: each is refused at
// construction with reasons, or passes.
//
// The suite: contents stay, requests are aligned and do not overlap, the ledger agrees with what is
// held, generations count, old arrays are stale, and everything is given back. A ring's batches are
// leased: two are kept while the next is made.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <deque>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/ring.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

using ::testing::HasSubstr;

const Device kDevice = SimulatedDevice::kDevice;

struct Held {
  BufferHandle handle;
  std::byte pattern;
  int64_t ledger_bytes;
};

int64_t AllocatedOn(Device device) {
  for (const DeviceMemory& memory : MemoryTracker::Global().Snapshot().devices) {
    if (memory.device == device) return memory[MemoryKind::kAllocated].current_bytes;
  }
  return 0;
}
int64_t TotalBytes() {
  int64_t total = 0;
  for (const DeviceMemory& memory : MemoryTracker::Global().Snapshot().devices) {
    total += memory.total.current_bytes;
  }
  return total;
}

class Suite {
 public:
  Suite(const WorkspaceConfig& config, size_t alignment) : config_(config), alignment_(alignment) {}

  // The same requests each time, but for one cycle of others.
  void Run(Workspace& workspace) {
    for (int cycle = 0; cycle < 6; ++cycle) {
      std::vector<Held> outlive;
      {
        WorkspaceScope scope(workspace);
        EXPECT_EQ(workspace.generation(), static_cast<uint64_t>(cycle + 1));
        outlive = Cycle(cycle == 3 ? 3 : 0);
        if (cycle != 3) outlive.clear();
      }
      EXPECT_FALSE(workspace.is_open());
      for (const Held& held : outlive) EXPECT_EQ(held.handle->IsAlive(), !held.handle->attached);
    }
    EXPECT_EQ(workspace.cycles(), 6);
  }

  void Run(RingWorkspace& ring) {
    std::deque<Batch> batches;
    for (int cycle = 0; cycle < 8; ++cycle) {
      RingSlotScope scope(ring);
      EXPECT_EQ(scope.generation(), static_cast<uint64_t>(cycle + 1));
      std::vector<Held> held = Cycle(cycle == 3 ? 3 : 0);
      batches.push_back({scope.Commit(), std::move(held)});
      for (const Batch& batch : batches) {
        for (const Held& in_batch : batch.held) {
          EXPECT_TRUE(in_batch.handle->IsAlive());
          Check(in_batch);
        }
      }
      if (batches.size() < 3) continue;
      batches.front().lease.Release();
      for (const Held& gone : batches.front().held) {
        EXPECT_EQ(gone.handle->IsAlive(), !gone.handle->attached);
      }
      batches.pop_front();
    }
    EXPECT_EQ(ring.stats().committed, 8);
  }

 private:
  struct Batch {
    SlotLease lease;
    std::vector<Held> held;
  };

  // What is held at its end.
  std::vector<Held> Cycle(int variant) {
    std::mt19937 random(static_cast<uint32_t>(17 + variant));
    const int64_t host_before = AllocatedOn(Host()), device_before = AllocatedOn(kDevice);
    for (int i = 0; i < 16; ++i) {
      const size_t bytes = i == 9 ? 20000 : 1 + random() % 1500;
      const bool drop = random() % 3 == 0;
      Request(bytes);
      if (drop && !held_.empty()) {
        Check(held_[random() % held_.size()]);
        held_.erase(held_.begin() + static_cast<int64_t>(random() % held_.size()));
      }
      int64_t on_host = 0, on_device = 0;
      for (const Held& held : held_) {
        (held.handle->device == Host() ? on_host : on_device) += held.ledger_bytes;
      }
      EXPECT_EQ(AllocatedOn(Host()) - host_before, on_host);
      EXPECT_EQ(AllocatedOn(kDevice) - device_before, on_device);
    }
    for (const Held& held : held_) Check(held);
    return std::exchange(held_, {});
  }

  void Request(size_t bytes) {
    const WorkspaceCore* place = CurrentPlace();  // null when switched off
    const size_t before = place != nullptr ? place->CurrentBytesThisCycle() : 0;
    BufferHandle handle;
    try {
      handle = BufferHandle(AllocateHere(bytes));
    } catch (const OutOfMemoryError& error) {
      EXPECT_EQ(config_.policy_spill, SpillPolicy::kFail) << error.message();
      if (place != nullptr) {
        EXPECT_EQ(place->CurrentBytesThisCycle(), before);
      }
      return;
    }
    EXPECT_EQ(reinterpret_cast<uintptr_t>(handle->data) % alignment_, 0);
    EXPECT_TRUE(handle->IsAlive());
    for (const Held& other : held_) {
      EXPECT_TRUE(handle->data >= other.handle->data + other.handle->bytes ||
                  other.handle->data >= handle->data + bytes);
    }
    const std::byte pattern{static_cast<unsigned char>(++patterns_)};
    FindDeviceProvider(handle->device)->Fill(handle->data, pattern, bytes);
    const int64_t ledger_bytes =
        static_cast<int64_t>(handle->attached ? handle->request.bytes : handle->bytes);
    held_.push_back({std::move(handle), pattern, ledger_bytes});
  }

  void Check(const Held& held) {
    seen_.resize(held.handle->bytes);
    FindDeviceProvider(held.handle->device)
        ->CopyToHost(seen_.data(), held.handle->data, held.handle->bytes);
    for (std::byte byte : seen_) {
      if (byte != held.pattern) {
        ADD_FAILURE() << "the contents of a request of " << held.handle->bytes << " bytes changed";
        return;
      }
    }
  }

  const WorkspaceConfig& config_;
  const size_t alignment_;
  std::vector<Held> held_;
  std::vector<std::byte> seen_;
  int patterns_ = 0;
};

std::string Describe(const WorkspaceConfig& config, Device device) {
  auto number = [](auto value) { return std::to_string(static_cast<int>(value)); };
  return DeviceName(device) + " allocation " + number(config.policy_allocation) + " learning " +
         number(config.policy_learning) + " spill " + number(config.policy_spill) + " reset " +
         number(config.policy_reset) + " location " + number(config.policy_location) +
         " mirroring " + number(config.policy_mirroring) + " debug " + number(config.debug_mode) +
         " initial_size " + std::to_string(config.initial_size);
}

// Empty: it is legal and passed. Otherwise why it was refused.
std::string RefusalOf(const WorkspaceConfig& config, Device device) {
  SCOPED_TRACE(Describe(config, device));
  const int64_t before = TotalBytes();
  std::string refusal;
  {
    std::optional<Workspace> workspace;
    std::optional<RingWorkspace> ring;
    try {
      if (config.policy_reset == ResetPolicy::kBlockLeft) {
        workspace.emplace("m", config, device);
      } else {
        ring.emplace("m", config, device);
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument) << error.message();
      refusal = error.message();
    }
    const bool device_memory =
        device != Host() && config.policy_mirroring != MirroringPolicy::kHostOnly;
    Suite suite(config, device_memory ? SimulatedDevice::kAlignment : config.alignment);
    if (workspace) suite.Run(*workspace);
    if (ring) suite.Run(*ring);
  }
  EXPECT_EQ(TotalBytes(), before) << "not everything was given back";
  EXPECT_EQ(SimulatedDevice::Get().used_bytes(), 0);
  EXPECT_EQ(SimulatedDevice::Get().pinned_bytes(), 0);
  EXPECT_EQ(refusal.empty(), config.Reasons(device).empty());
  return refusal;
}

TEST(WorkspacePolicyMatrix, EveryCombinationIsRefusedWithReasonsOrPasses) {
  SimulatedDevice::Get().set_has_pinned_host(true);
  const std::string path = testing::TempDir() + "/workspace_policy_matrix";
  int legal = 0, refused = 0, legal_on_device = 0, mapped = 0, rings = 0;
  for (int number = 0; number < 2 * 3 * 5 * 3 * 2 * 2 * 3 * 4 * 2; ++number) {
    int rest = number;
    auto next = [&](int count) {
      const int value = rest % count;
      rest /= count;
      return value;
    };
    WorkspaceConfig config;
    const Device device = next(2) == 0 ? Host() : kDevice;
    config.policy_allocation = static_cast<AllocationPolicy>(next(3));
    config.policy_learning = static_cast<LearningPolicy>(next(5));
    config.policy_spill = static_cast<SpillPolicy>(next(3));
    config.policy_reset = static_cast<ResetPolicy>(next(2));
    if (config.policy_reset == ResetPolicy::kEndOfBufferReached) config.ring_slots = 3;
    config.policy_location = static_cast<LocationPolicy>(next(2));
    config.policy_mirroring = static_cast<MirroringPolicy>(next(3));
    config.debug_mode = static_cast<DebugMode>(next(4));
    config.use_cycle_detector = config.debug_mode != DebugMode::kGuard;  // leaks are wanted here
    config.initial_size = next(2) == 0 ? 0 : 12288;
    config.temp_block_size = 16384;
    if (config.policy_location == LocationPolicy::kMmap && number % 7 != 0) {
      config.temp_file_path = path;
      if (config.initial_size == 0) {
        // Something to map.
        WorkspaceConfig file = WorkspaceConfig::MappedFile(path);
        file.initial_size = 8192;
        Workspace("file", file);
      }
    }
    const std::string refusal = RefusalOf(config, device);
    unlink(path.c_str());
    if (testing::Test::HasFailure()) break;
    if (refusal.empty()) {
      ++legal;
      legal_on_device += device == kDevice;
      mapped += config.policy_location == LocationPolicy::kMmap;
      rings += config.ring_slots > 0;
    } else {
      ++refused;
      EXPECT_THAT(refusal, HasSubstr("workspace [m]: illegal configuration: "));
    }
  }
  SimulatedDevice::Get().Reset();
  std::printf("%d combinations legal (%d on a device, %d rings, %d mapped files), %d refused\n",
              legal, legal_on_device, rings, mapped, refused);
  EXPECT_GT(legal, 1000);
  EXPECT_GT(refused, 1000);
  EXPECT_GT(mapped, 20);
  EXPECT_GT(rings, 1000);
}

TEST(WorkspacePolicyMatrix, KnownCombinations) {
  for (Device device : {Host(), kDevice}) {
    EXPECT_EQ(RefusalOf({}, device), "");
    EXPECT_EQ(RefusalOf(WorkspaceConfig::Nd4j(), device), "");
    EXPECT_EQ(RefusalOf(WorkspaceConfig::Training(), device), "");
    EXPECT_EQ(RefusalOf(WorkspaceConfig::Ring(4), device), "");
    WorkspaceConfig config;
    config.policy_spill = SpillPolicy::kFail;
    EXPECT_THAT(RefusalOf(config, device), HasSubstr("kFail needs an initial_size"));
    config.initial_size = 4096;
    EXPECT_EQ(RefusalOf(config, device), "");
    config.policy_allocation = AllocationPolicy::kAlways;
    EXPECT_THAT(RefusalOf(config, device), HasSubstr("kFail forbids"));
    config = WorkspaceConfig();
    config.debug_mode = DebugMode::kGuard;
    config.use_cycle_detector = false;
    EXPECT_EQ(RefusalOf(config, device).empty(), device == Host());
    config = WorkspaceConfig::MappedFile("");
    config.initial_size = 4096;
    EXPECT_EQ(RefusalOf(config, device).empty(), device == Host());
    config.policy_mirroring = MirroringPolicy::kHostOnly;
    EXPECT_EQ(RefusalOf(config, device), "");
    config.policy_learning = LearningPolicy::kFirstLoop;
    EXPECT_THAT(RefusalOf(config, device), HasSubstr("kMmap needs policy_learning kNone"));
  }
}

// What was taken and had no effect, or another one than it says.
TEST(WorkspacePolicyMatrix, PairsThatMeanNothingAreRefused) {
  const auto expect = [](const char* reason, const auto& change) {
    WorkspaceConfig config;
    change(config);
    EXPECT_THAT(config.Reasons(), testing::ElementsAre(HasSubstr(reason)));
  };
  using Config = WorkspaceConfig;
  expect("workspace_mode kSeparate is for networks",
         [](Config& config) { config.workspace_mode = WorkspaceMode::kSeparate; });
  expect("workspace_mode kSingle lays requests one behind the other",
         [](Config& config) { config.workspace_mode = WorkspaceMode::kSingle; });
  for (const DebugMode mode : {DebugMode::kGuard, DebugMode::kSpillEverything}) {
    expect("workspace_mode kNone makes arrays on the heap", [mode](Config& config) {
      config.workspace_mode = WorkspaceMode::kNone;
      config.debug_mode = mode;
    });
  }
  expect("cycles_before_initialization 3 is for policy_learning kOverTime",
         [](Config& config) { config.cycles_before_initialization = 3; });
  expect("temp_file_path is for policy_location kMmap",
         [](Config& config) { config.temp_file_path = "x"; });
  expect("kMmap needs policy_spill kExternal or kFail", [](Config& config) {
    config = WorkspaceConfig::MappedFile("x");
    config.policy_spill = SpillPolicy::kReallocate;
  });
  for (const bool full : {false, true}) {
    expect("need policy_reset kEndOfBufferReached", [full](Config& config) {
      if (full) config.policy_ring_full = RingFullPolicy::kSpill;
      if (!full) config.ring_max_kept = 1;
    });
  }
  expect("ring_max_temporary 2 needs policy_ring_full kSpill", [](Config& config) {
    config = WorkspaceConfig::Ring(2);
    config.ring_max_temporary = 2;
  });
}

// A ratio of more than a hundred times what is needed is a slip.
TEST(WorkspacePolicyMatrix, OverallocationsThatAreNoneAreRefused) {
  const auto refusal = [](Overallocation limit) {
    WorkspaceConfig config = WorkspaceConfig::Nd4j();
    config.overallocation_limit = limit;
    return RefusalOf(config, Host());
  };
  const double nan = std::numeric_limits<double>::quiet_NaN(),
               inf = std::numeric_limits<double>::infinity();
  for (const double ratio : {-0.1, 100.1, 1e6, nan, inf, -inf}) {
    EXPECT_THAT(
        refusal(Overallocation::Ratio(ratio)),
        HasSubstr("overallocation_limit is negative, not a number or a ratio of more than 100"))
        << ratio;
  }
  EXPECT_THAT(refusal(Overallocation::Bytes(-1)), HasSubstr("overallocation_limit is negative"));
  for (const double ratio : {0.0, 0.3, 100.0})
    EXPECT_EQ(refusal(Overallocation::Ratio(ratio)), "") << ratio;
  EXPECT_EQ(refusal(Overallocation::Bytes(0)), "");
  EXPECT_EQ(Overallocation::Ratio(100).ExtraFor(10), 1000u);
}

// Modes beside everything they could contradict. The two ways to say "off" are one.
TEST(WorkspacePolicyMatrix, EveryModeIsRefusedWithReasonsOrPasses) {
  int legal = 0, off = 0;
  for (int number = 0; number < 4 * 4 * 5 * 3 * 3 * 2; ++number) {
    int rest = number;
    auto next = [&](int count) {
      const int value = rest % count;
      rest /= count;
      return value;
    };
    WorkspaceConfig config;
    config.workspace_mode = static_cast<WorkspaceMode>(next(4));
    config.debug_mode = static_cast<DebugMode>(next(4));
    config.policy_learning = static_cast<LearningPolicy>(next(5));
    config.policy_spill = static_cast<SpillPolicy>(next(3));
    config.policy_allocation = static_cast<AllocationPolicy>(next(3));
    config.initial_size = next(2) == 0 ? 0 : 12288;
    config.temp_block_size = 16384;
    config.use_cycle_detector = false;  // leaks are wanted here
    const bool passes = RefusalOf(config, Host()).empty();
    if (testing::Test::HasFailure()) break;
    EXPECT_FALSE(passes && config.workspace_mode == WorkspaceMode::kSeparate);
    legal += passes;
    if (!passes || !config.passes_through()) continue;
    ++off;
    Workspace workspace("off", config);
    const WorkspaceScope scope(workspace);
    EXPECT_FALSE(BufferHandle(AllocateHere(100))->attached);
  }
  EXPECT_GT(legal, 300);
  EXPECT_GT(off, 100);
}

}  // namespace
}  // namespace tidepool
