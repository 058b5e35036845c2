// Arrays that go between two emulated devices, peer to peer and staged: of pages and of the heap, in several queues.
#include <optional>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/backends/cuda/emulation/emulated_cuda.h"
#include "tidepool/memory/device_copy.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_queue.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"

namespace tidepool {
namespace {

const Device kDevices[] = {{DeviceType::kCuda, 0}, {DeviceType::kCuda, 1}};

class DeviceCopiesOnCuda : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    ForgetDeviceCopiesForTesting();
    EmulatedCuda::Get().set_peers(GetParam());
  }
  void TearDown() override {
    EmulatedCuda::Get().set_peers(true);
    ForgetDeviceCopiesForTesting();
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, DeviceCopiesOnCuda, testing::Bool(),
                         [](const auto& info) { return info.param ? "PeerToPeer" : "Staged"; });

// Memory that was there before the first copy, and memory that comes after it. Staged first, as access stays granted.
TEST_P(DeviceCopiesOnCuda, ArraysToAndFro) {
  EmulatedCuda& emulated = EmulatedCuda::Get();
  const int64_t before = emulated.counters().peer_copies;
  for (int seed = 0; seed < 8; ++seed) {
    emulated.Finish();
    emulated.set_seed(static_cast<uint64_t>(seed));
    std::mt19937 random(static_cast<unsigned>(seed));
    const DeviceQueue sides[] = {DeviceQueue::New(kDevices[0]), DeviceQueue::New(kDevices[1])};
    Workspace workspaces[] = {Workspace("a", WorkspaceConfig::Training(), kDevices[0]),
                              Workspace("b", WorkspaceConfig::Training(), kDevices[1])};
    for (int cycle = 0; cycle < 6; ++cycle) {
      std::optional<WorkspaceScope> scopes[2];
      for (int i = 0; i < 2; ++i) {
        if (cycle % 3 != 2) scopes[i].emplace(workspaces[i]);
      }
      std::vector<NDArray> arrays;
      std::vector<float> values;
      for (int i = 0; i < 3; ++i) {
        arrays.push_back(Full({5000}, i, DType::kFloat32, Place::CurrentOn(kDevices[i % 2])));
        values.push_back(static_cast<float>(i));
      }
      for (int step = 0; step < 12; ++step) {
        std::optional<QueueScope> queues[2];
        for (int i = 0; i < 2; ++i) {
          if (random() % 2 == 0) queues[i].emplace(sides[i]);
        }
        const size_t x = random() % 3, y = random() % 3;
        if (random() % 2 == 0) {
          const Device to = kDevices[1 - arrays[x].device().index];
          arrays[y] = arrays[x].CopyTo(random() % 3 == 0 ? Place::On(to) : Place::CurrentOn(to));
          values[y] = values[x];
        } else {
          AddInto(arrays[x], arrays[x], arrays[x]);
          values[x] += values[x];
        }
      }
      for (size_t i = 0; i < 3; ++i)
        EXPECT_EQ(arrays[i].ToVector<float>(), std::vector<float>(5000, values[i]));
    }
  }
  const DeviceCopyCounters way = DeviceCopiesBetween(kDevices[0], kDevices[1]);
  EXPECT_GT(way.copies, 20);
  EXPECT_EQ(way.why_staged, GetParam() ? "" : "cuda:0 cannot access memory of cuda:1");
  EXPECT_EQ(emulated.counters().peer_copies > before, GetParam());
}

TEST_P(DeviceCopiesOnCuda, EveryRefusedCallIsAnError) {
  EmulatedCuda& emulated = EmulatedCuda::Get();
  int failures = 0;
  for (int64_t n = 0; n < 60; ++n) {
    const NDArray x = Full({1000}, 3, DType::kFloat32, Place::On(kDevices[0]));
    x.To(kDevices[1]);
    emulated.call_faults().FailRequest(n);
    try {
      EXPECT_EQ(x.To(kDevices[1]).ToVector<float>(), std::vector<float>(1000, 3));
    } catch (const Error& error) {
      ++failures;
    }
    const bool happened = emulated.call_faults().failed() > 0;
    emulated.call_faults().Clear();
    EXPECT_EQ(x.To(kDevices[1]).ToVector<float>(), std::vector<float>(1000, 3));
    if (!happened) break;
  }
  EXPECT_GE(failures, 2);
}

}  // namespace
}  // namespace tidepool
