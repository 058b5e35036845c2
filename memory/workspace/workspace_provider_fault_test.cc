// The n-th request to the memory provider fails, for every n of a sequence of cycles like those of
// training: nothing leaks, a refused request changes nothing, and the next cycle works.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
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

int64_t TotalBytes() {
  int64_t total = 0;
  for (const DeviceMemory& memory : MemoryTracker::Global().Snapshot().devices) {
    total += memory.total.current_bytes;
  }
  return total;
}

class ProviderFault : public testing::TestWithParam<Device> {
 protected:
  ProviderFault() : memory_(GetDeviceProvider(GetParam(), "test")), failing_(GetParam()) {}

  struct Live {
    BufferHandle handle;
    std::byte pattern;
  };

  void Check(const Live& live) {
    std::vector<std::byte> seen(live.handle->bytes);
    memory_.CopyToHost(seen.data(), live.handle->data, seen.size());
    ASSERT_TRUE(std::all_of(seen.begin(), seen.end(),
                            [&](std::byte byte) { return byte == live.pattern; }));
  }

  // Like a step: activations kept, temporaries dropped, then all dropped in reverse. `scale` grows
  // with the batch. Throws what a request throws, after checking that it changed nothing.
  void Cycle(Workspace& workspace, size_t scale) {
    WorkspaceScope scope(workspace);
    std::vector<Live> live;
    for (int i = 0; i < 12; ++i) {
      for (size_t bytes : {scale * (1000 + 100 * i), scale * 5000}) {
        const size_t requested = workspace.bytes_this_cycle(), spilled = workspace.spilled_count();
        const size_t spilled_bytes = workspace.spilled_bytes(), offset = workspace.offset();
        try {
          live.push_back({BufferHandle(AllocateHere(bytes)), std::byte(i + 1)});
        } catch (const OutOfMemoryError& error) {
          EXPECT_NE(error.report().find("allocated"), std::string::npos);
          EXPECT_EQ(workspace.bytes_this_cycle(), requested);
          EXPECT_EQ(workspace.spilled_count(), spilled);
          EXPECT_EQ(workspace.spilled_bytes(), spilled_bytes);
          EXPECT_EQ(workspace.offset(), offset);
          for (const Live& kept : live) Check(kept);
          throw;
        }
        memory_.Fill(live.back().handle->data, live.back().pattern, bytes);
      }
      Check(live.back());
      live.pop_back();
    }
    while (!live.empty()) {
      Check(live.back());
      live.pop_back();
    }
  }

  DeviceProvider& memory_;  // for the bytes; what the workspace asks goes through failing_
  FailingProvider failing_;
};

TEST_P(ProviderFault, EveryRequestMayBeRefused) {
  std::vector<std::pair<const char*, WorkspaceConfig>> configs;
  configs.emplace_back("training", WorkspaceConfig::Training());
  configs.emplace_back("training, small blocks", WorkspaceConfig::Training());
  configs.back().second.temp_block_size = 4096;
  configs.emplace_back("growing", WorkspaceConfig::Nd4j());
  configs.back().second.initial_size = 20000;
  configs.back().second.policy_spill = SpillPolicy::kReallocate;
  configs.emplace_back("fixed", WorkspaceConfig::Nd4j());
  configs.back().second.initial_size = 300000;
  configs.back().second.policy_learning = LearningPolicy::kNone;
  configs.emplace_back("always", WorkspaceConfig::Nd4j());
  configs.back().second.policy_allocation = AllocationPolicy::kAlways;
  configs.emplace_back("off", WorkspaceConfig::Nd4j());
  configs.back().second.workspace_mode = WorkspaceMode::kNone;
  for (const auto& [name, config] : configs) {
    for (int64_t count : {1, 2, 1000000}) {  // once, twice running, for good
      int64_t sweeps = 0, refused = 0;
      // Configurations that ask for every array: each request once, and some of the rest.
      const bool many = config.policy_allocation == AllocationPolicy::kAlways ||
                        config.workspace_mode == WorkspaceMode::kNone;
      for (int64_t n = 0;; n += many && count > 1 ? 13 : 1) {
        SCOPED_TRACE(testing::Message() << name << ", request " << n << ", " << count << " times");
        const int64_t before = TotalBytes();
        failing_.faults().FailRequest(n, count);
        std::unique_ptr<Workspace> workspace;
        try {
          workspace = std::make_unique<Workspace>("w", config, GetParam());
        } catch (const OutOfMemoryError&) {
          ++refused;
          ASSERT_EQ(TotalBytes(), before);
        }
        for (size_t scale : {1, 1, 4, 4, 4, 1}) {
          if (workspace == nullptr) break;
          try {
            Cycle(*workspace, scale);
          } catch (const OutOfMemoryError&) {
            ++refused;
          }
          ASSERT_FALSE(workspace->is_open());
          ASSERT_EQ(CurrentPlace(), nullptr);
        }
        const bool failed = failing_.faults().failed() > 0;
        failing_.faults().Clear();
        if (workspace == nullptr) {
          workspace = std::make_unique<Workspace>("w", config, GetParam());
        }
        Cycle(*workspace, 4);  // the next ones work
        Cycle(*workspace, 4);
        workspace.reset();
        ASSERT_EQ(TotalBytes(), before);
        if (testing::Test::HasFailure()) return;
        if (!failed) break;
        ++sweeps;
      }
      std::printf("%s, %s, %lld times: %lld requests, %lld refusals\n",
                  DeviceName(GetParam()).c_str(), name, static_cast<long long>(count),
                  static_cast<long long>(sweeps), static_cast<long long>(refused));
      EXPECT_GT(sweeps, 0);
    }
  }
}

// A failed cycle at most delays the plan: once memory is there, cycles are planned and steady.
// A program calls it because memory is short: the pages that were learned and could not be had are for later.
TEST_P(ProviderFault, TrimAsksForNoMemory) {
  Workspace workspace("w", WorkspaceConfig::Training(), GetParam());
  {
    WorkspaceScope scope(workspace);
    const BufferHandle kept(AllocateHere(100000)), more(AllocateHere(200000));
    failing_.faults().FailRequest(0, 1000000);
  }
  EXPECT_EQ(workspace.size(), 0u);
  EXPECT_NO_THROW(workspace.Trim());
  failing_.faults().Clear();
  for (int i = 0; i < 2; ++i) {
    WorkspaceScope scope(workspace);
    const BufferHandle kept(AllocateHere(100000)), more(AllocateHere(200000));
  }
  EXPECT_GE(workspace.size(), 300000u);
}

TEST_P(ProviderFault, PlansAreMadeOnceMemoryIsThere) {
  for (int64_t n = 0; n < 40; ++n) {
    Workspace workspace("w", WorkspaceConfig::Training(), GetParam());
    failing_.faults().FailRequest(n, 5);
    for (int i = 0; i < 3; ++i) {
      try {
        Cycle(workspace, 2);
      } catch (const OutOfMemoryError&) {
      }
    }
    failing_.faults().Clear();
    for (int i = 0; i < 4; ++i) Cycle(workspace, 2);
    const WorkspaceStats stats = workspace.stats();
    const int64_t requests = failing_.faults().requests();
    Cycle(workspace, 2);
    EXPECT_EQ(workspace.stats().hits, stats.hits + 24) << n;
    EXPECT_EQ(failing_.faults().requests(), requests) << n;
  }
}

// Gaps of the pages went back for the first request, which was refused all the same: what comes next does not lie in them.
TEST_P(ProviderFault, WhatComesBehindAFirstRequestThatIsRefusedLiesInMemory) {
  MemoryBudget& budget = MemoryBudget::Global();
  for (int64_t n = 0; n < 12; ++n) {
    Workspace workspace("w", WorkspaceConfig::Training(), GetParam());
    const auto rest = [&] {
      std::vector<Live> live;
      for (const size_t bytes : {1200000, 2400000}) {
        live.push_back({BufferHandle(AllocateHere(bytes)), std::byte(live.size() + 1)});
        memory_.Fill(live.back().handle->data, live.back().pattern, bytes);
      }
      for (const Live& each : live) Check(each);
    };
    for (int i = 0; i < 4; ++i) {
      WorkspaceScope scope(workspace);
      rest();
    }
    budget.SetDeviceLimit(GetParam(), budget.Of(GetParam()).taken_bytes + 2000000);
    for (int i = 0; i < 3; ++i) {
      WorkspaceScope scope(workspace);
      failing_.faults().FailRequest(n, 1000000);
      EXPECT_THROW(BufferHandle(AllocateHere(7500000)), OutOfMemoryError);
      try {
        BufferHandle served(AllocateHere(5000000));
      } catch (const OutOfMemoryError&) {
      }
      failing_.faults().Clear();
      rest();
    }
    budget.SetDeviceLimit(GetParam(), MemoryBudget::kUnlimited);
    WorkspaceScope scope(workspace);
    rest();
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, ProviderFault, testing::Values(Host(), SimulatedDevice::kDevice),
                         [](const auto& info) { return DeviceTypeName(info.param.type); });

}  // namespace
}  // namespace tidepool
