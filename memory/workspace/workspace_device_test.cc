// Workspaces on a device whose memory the host cannot touch.
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/addresses_only.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_core.h"
#include "tidepool/memory/workspace/workspace_registry.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

using ::testing::HasSubstr;

const Device kDevice = SimulatedDevice::kDevice;
constexpr size_t kMiB = size_t{1} << 20;

BufferHandle New(size_t bytes) { return BufferHandle(AllocateHere(bytes)); }

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.message();
  }
  return "nothing was thrown";
}

DeviceMemory Ledger(Device device) { return MemoryTracker::Global().Snapshot()[device]; }

class WorkspaceDevice : public testing::Test {
 protected:
  void SetUp() override { device_.Reset(); }
  void TearDown() override { device_.Reset(); }  // dies when something was not given back
  SimulatedDevice& device_ = SimulatedDevice::Get();
};

TEST_F(WorkspaceDevice, WithoutAProviderTheErrorSaysWhatToLink) {
  EXPECT_THAT(MessageOf([] {
                Workspace("w", {}, Device{DeviceType::kCuda, 0});
              }),
              HasSubstr("workspace [w]: no memory provider is linked for cuda:0; add"));
  EXPECT_THAT(MessageOf([] {
                Workspace("w", {}, Device{DeviceType::Named("simulated"), 9});
              }),
              HasSubstr("there is no device simulated:9"));
}

TEST_F(WorkspaceDevice, TheRegistryMakesThemOnADevice) {
  WorkspaceRegistry& registry = WorkspaceRegistry::ForCurrentThread();
  Workspace& made = registry.Get("registered", WorkspaceConfig::Training(), kDevice);
  EXPECT_EQ(made.device(), kDevice);
  EXPECT_EQ(&registry.Get("registered"), &made);
  EXPECT_EQ(&registry.Get("registered", WorkspaceConfig::Training(), kDevice), &made);
  EXPECT_THAT(MessageOf([&] { registry.Get("registered", WorkspaceConfig::Training()); }),
              HasSubstr("workspace registry: [registered] exists on this thread on simulated:0, "
                        "expected host"));
  registry.DestroyAll();
}

// More than the device has, learned and placed as memory would be, while the device is asked for nothing.
TEST_F(WorkspaceDevice, AddressesOnlyTakeNothingOfTheDevice) {
  device_.set_capacity(4 * kMiB);
  device_.set_has_pinned_host(true);
  WorkspaceConfig on_host = WorkspaceConfig::Training();
  on_host.policy_mirroring = MirroringPolicy::kHostOnly;
  std::optional<Workspace> dry, dry_on_host;
  {
    const AddressesOnlyScope scope;
    dry.emplace("dry", WorkspaceConfig::Training(), kDevice);
    dry_on_host.emplace("dry", on_host, kDevice);
  }
  Workspace as_ever("as ever", WorkspaceConfig::Training(), kDevice);
  const SimulatedDevice::Counters before = device_.counters();
  const auto cycle = [](Workspace& workspace, size_t unit) {
    const WorkspaceScope scope(workspace);
    BufferHandle first = New(3 * unit), second = New(5 * unit);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(second->data) % workspace.core()->alignment(), 0u);
    first.Reset();
    BufferHandle third = New(2 * unit + 1);
  };
  for (Workspace* const workspace : {&*dry, &*dry_on_host}) {
    for (int i = 0; i < 4; ++i) cycle(*workspace, size_t{1} << 30);
    EXPECT_EQ(workspace->stats().planned_peak_bytes, size_t{8} << 30);
  }
  EXPECT_EQ(dry->stats().misses, 0u);
  {
    // Arrays there are the host's, which may look at them.
    const WorkspaceScope scope(*dry_on_host);
    const BufferHandle zeros = New(100);
    EXPECT_EQ(zeros->device, Host());
    EXPECT_EQ(zeros->data[99], std::byte{0});
    zeros->data[99] = std::byte{1};
  }
  EXPECT_EQ(dry->core()->alignment(), as_ever.core()->alignment());
  EXPECT_GE(Ledger(kDevice).total.current_bytes, int64_t{8} << 30);
  EXPECT_EQ(device_.used_bytes(), 0u);
  EXPECT_EQ(device_.pinned_bytes(), 0u);
  EXPECT_EQ(device_.counters().reservations, before.reservations);
  EXPECT_EQ(device_.counters().commits, before.commits);
  EXPECT_EQ(device_.counters().blocks, before.blocks);
  EXPECT_EQ(device_.counters().fills, before.fills);
  // Those that were made outside of the scope have memory.
  for (int i = 0; i < 3; ++i) cycle(as_ever, kMiB / 8);
  EXPECT_GT(device_.used_bytes(), 0u);
  dry.reset();
  dry_on_host.reset();
  EXPECT_LT(Ledger(kDevice).total.current_bytes, int64_t{4} << 20);
}

TEST_F(WorkspaceDevice, LearnsPlansAndIsSteady) {
  Workspace workspace("w", WorkspaceConfig::Training(), kDevice);
  EXPECT_EQ(workspace.device(), kDevice);
  auto cycle = [&] {
    WorkspaceScope scope(workspace);
    std::vector<BufferHandle> kept;
    for (int i = 0; i < 10; ++i) {
      BufferHandle temporary = New(100000);
      kept.push_back(New(1000 + i));
      EXPECT_EQ(kept.back()->device, kDevice);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(kept.back()->data) % SimulatedDevice::kAlignment, 0);
      device_.Fill(kept.back()->data, std::byte(i), 1000 + i + kReadableTailBytes);
      device_.Fill(temporary->data, std::byte{99}, 100000);
    }
    std::vector<std::byte> seen(2000);
    for (int i = 0; i < 10; ++i) {
      device_.CopyToHost(seen.data(), kept[i]->data, 1000 + i);
      for (int at : {0, 500, 999 + i}) EXPECT_EQ(seen[at], std::byte(i));
    }
  };
  cycle();
  cycle();
  const WorkspaceStats stats = workspace.stats();
  EXPECT_EQ(stats.plans, 1);
  EXPECT_EQ(stats.misses, 0);
  EXPECT_EQ(stats.planned_peak_bytes, 10 * 1024 + 100096);
  const SimulatedDevice::Counters before = device_.counters();
  for (int i = 0; i < 100; ++i) cycle();
  const SimulatedDevice::Counters after = device_.counters();
  EXPECT_EQ(after.commits, before.commits);
  EXPECT_EQ(after.reservations, before.reservations);
  EXPECT_EQ(after.blocks, before.blocks);
  EXPECT_GE(Ledger(kDevice).total.current_bytes, 100000);
}

TEST_F(WorkspaceDevice, TheLedgerCountsOnTheDeviceAndRecordsOnTheHost) {
  const int64_t host_before = Ledger(Host()).total.current_bytes;
  {
    WorkspaceConfig config = WorkspaceConfig::Nd4j();
    config.initial_size = kMiB;
    Workspace workspace("w", config, kDevice);
    WorkspaceScope scope(workspace);
    BufferHandle a = New(10000), spilled = New(3 * kMiB);
    EXPECT_EQ(Ledger(kDevice)[MemoryKind::kAllocated].current_bytes, 10240 + 3 * kMiB);
    EXPECT_EQ(Ledger(kDevice).total.current_bytes, device_.used_bytes());
    EXPECT_EQ(Ledger(Host()).total.current_bytes - host_before,
              Ledger(Host())[MemoryKind::kWorkspace].current_bytes);
  }
  EXPECT_EQ(Ledger(kDevice).total.current_bytes, 0);
  EXPECT_EQ(Ledger(Host()).total.current_bytes, host_before);
  EXPECT_EQ(device_.used_bytes(), 0);
}

TEST_F(WorkspaceDevice, GrowthKeepsTheBaseUpToTheReservedRange) {
  device_.set_reserve_bytes(4 * kMiB);
  WorkspaceConfig config = WorkspaceConfig::Training();
  Workspace workspace("w", config, kDevice);
  std::byte* base = nullptr;
  for (size_t bytes : {kMiB / 4, kMiB, 3 * kMiB, 8 * kMiB}) {
    for (int cycle = 0; cycle < 4; ++cycle) {
      WorkspaceScope scope(workspace);
      BufferHandle a = New(bytes);
      device_.Fill(a->data, std::byte{1}, bytes);
      if (cycle < 3) continue;
      if (base == nullptr) base = a->data;
      EXPECT_EQ(a->data == base, bytes <= 3 * kMiB);
    }
    EXPECT_EQ(workspace.stats().relocations, bytes <= 3 * kMiB ? 0 : 1);
  }
}

TEST_F(WorkspaceDevice, AFullDeviceRefusesAndNothingChanges) {
  device_.set_capacity(2 * kMiB);
  WorkspaceConfig config = WorkspaceConfig::Nd4j();
  config.initial_size = kMiB;
  config.policy_allocation = AllocationPolicy::kStrict;
  Workspace workspace("w", config, kDevice);
  for (int cycle = 0; cycle < 3; ++cycle) {
    WorkspaceScope scope(workspace);
    BufferHandle a = New(kMiB);
    EXPECT_THAT(MessageOf([] { New(kMiB); }), HasSubstr("simulated:0 refused"));
    EXPECT_EQ(workspace.bytes_this_cycle(), kMiB);
    EXPECT_EQ(workspace.spilled_count(), 0);
  }
  config.initial_size = 10 * kMiB;
  EXPECT_THROW(Workspace("v", config, kDevice), OutOfMemoryError);
}

TEST_F(WorkspaceDevice, HostOnlyIsHostMemoryPinnedWhereThereIsSome) {
  for (bool pinned : {false, true}) {
    device_.set_has_pinned_host(pinned);
    WorkspaceConfig config = WorkspaceConfig::Nd4j();
    config.policy_mirroring = MirroringPolicy::kHostOnly;
    config.initial_size = kMiB;
    Workspace workspace("w", config, kDevice);
    EXPECT_EQ(workspace.device(), kDevice);
    WorkspaceScope scope(workspace);
    for (size_t bytes : {kMiB, 2 * kMiB}) {
      BufferHandle a = New(bytes);
      EXPECT_EQ(a->device, Host());
      std::memset(a->data, 1, bytes);
    }
    EXPECT_EQ(workspace.spilled_count(), 1);
    EXPECT_EQ(device_.used_bytes(), 0);
    EXPECT_EQ(device_.pinned_bytes() >= 3 * kMiB, pinned);
  }
  EXPECT_EQ(device_.pinned_bytes(), 0);
}

TEST_F(WorkspaceDevice, AlwaysAndPassingThroughUseTheDevice) {
  WorkspaceConfig always;
  always.policy_allocation = AllocationPolicy::kAlways;
  WorkspaceConfig bypass;
  bypass.debug_mode = DebugMode::kBypassEverything;
  WorkspaceConfig off;
  off.workspace_mode = WorkspaceMode::kNone;
  for (const WorkspaceConfig& config : {always, bypass, off}) {
    Workspace workspace("w", config, kDevice);
    WorkspaceScope scope(workspace);
    BufferHandle a = New(1000);
    EXPECT_EQ(a->device, kDevice);
    device_.Fill(a->data, std::byte{1}, 1000);
    EXPECT_GT(device_.used_bytes(), 0);
    ScopeOutOfWorkspaces out;
    EXPECT_EQ(New(1000)->device, Host());
  }
}

TEST_F(WorkspaceDevice, GuardModeGuardsHostMemoryOnly) {
  WorkspaceConfig config = WorkspaceConfig::Nd4j();
  config.debug_mode = DebugMode::kGuard;
  EXPECT_THAT(MessageOf([&] { Workspace("w", config, kDevice); }),
              HasSubstr("debug_mode kGuard guards host memory: on simulated:0 it needs "
                        "policy_mirroring kHostOnly"));
  config.policy_mirroring = MirroringPolicy::kHostOnly;
  Workspace workspace("w", config, kDevice);
  WorkspaceScope scope(workspace);
  std::memset(New(100)->data, 1, 100);
}

TEST_F(WorkspaceDevice, TwoDevicesAreIndependent) {
  Workspace first("a", WorkspaceConfig::Training(), {DeviceType::Named("simulated"), 0});
  Workspace second("b", WorkspaceConfig::Training(), {DeviceType::Named("simulated"), 1});
  for (int cycle = 0; cycle < 3; ++cycle) {
    WorkspaceScope outer(first);
    BufferHandle a = New(1000);
    {
      WorkspaceScope inner(second);
      BufferHandle b = New(1000);
      EXPECT_EQ(b->device.index, 1);
      CopyBytes(b->device, b->data, a->device, a->data, 1000);
    }
    BufferHandle c = New(1000);
    EXPECT_EQ(c->device.index, 0);
  }
}

}  // namespace
}  // namespace tidepool
