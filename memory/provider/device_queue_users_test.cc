// Who has a queue open, whose it is, and what comes behind its work on another device.
#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/memory/provider/device_dependence.h"
#include "tidepool/memory/provider/device_loss.h"
#include "tidepool/memory/provider/device_queue.h"
#include "tidepool/memory/testing/failing_provider.h"
#include "tidepool/memory/testing/simulated_device.h"

namespace tidepool {
namespace {

using ::testing::HasSubstr;

const Device kDevice = SimulatedDevice::kDevice;

class DeviceQueueUsersTest : public testing::Test {
 protected:
  void SetUp() override { device_.Reset(); }
  void TearDown() override { device_.Reset(); }

  SimulatedDevice& device_ = SimulatedDevice::Get();
};

// Handles, cycles and what the device does not tell, each counted once.
TEST_F(DeviceQueueUsersTest, TheRefusalSaysWhoHoldsThem) {
  std::vector<DeviceQueue> queues;
  for (int i = 1; i < kMostQueues; ++i) queues.push_back(DeviceQueue::New(kDevice));
  std::optional<QueueOfCycle> cycle, beside;
  {
    const QueueScope scope(queues.back());
    cycle.emplace(kDevice);
  }
  {
    const QueueScope scope(queues.front());
    beside.emplace(kDevice);
  }
  queues.pop_back();
  const DeviceQueue twice = queues[0];
  FailingProvider device(kDevice);
  device.faults().FailRequest(0, 1000);
  queues.pop_back();
  EXPECT_THAT(ErrorOf([] { DeviceQueue::New(kDevice); }).message(),
              HasSubstr("simulated:0 has 16 queues in use, which is as many as there may be: the "
                        "first, 13 that have "
                        "handles (14 of DeviceQueue, QueueScope and tensors given by DLPack), 1 "
                        "that open cycles of "
                        "workspaces alone hold, 1 whose end the device has not told"));
  device.faults().Clear();
  cycle.reset();
  EXPECT_EQ(OpenQueues(kDevice), 0x3fffu);
}

// What is queued later passes later, whoever comes first to note it.
TEST_F(DeviceQueueUsersTest, TheLastCopyIsTheOneThatATargetDependsOn) {
  const Device target{kDevice.type, 1};
  SimulatedDevice::Get(1).Reset();
  device_.set_asynchronous(4);
  std::atomic<bool> go{false}, noted{false}, in_first{false};
  device_.QueueKernel({}, [] {});
  const QueuePoint first = device_.ComputePoint(0);
  device_.QueueKernel({}, [&] {
    while (!go) std::this_thread::yield();
  });
  const QueuePoint second = device_.ComputePoint(0);
  PrepareToDepend(target, kDevice);
  std::thread thread([&] {
    while (!in_first) std::this_thread::yield();
    DependOnQueued(target, kDevice, [&] { return second; });
    noted = true;
  });
  DependOnQueued(target, kDevice, [&] {
    in_first = true;
    // The other one is noted within that if it may be.
    for (int i = 0; i < 200 && !noted; ++i) std::this_thread::yield();
    return first;
  });
  thread.join();
  device_.WaitFor(first);
  CheckSources(target, "test");
  EXPECT_FALSE(IsLost(target));
  LoseDevice(kDevice, "the test wanted it");
  EXPECT_TRUE(IsLost(target));
  go = true;
  SimulatedDevice::Get(1).Reset();
}

TEST_F(DeviceQueueUsersTest, AQueueOfAnotherDeviceIsNotAdopted) {
  const Device other{kDevice.type, 1};
  std::optional<DeviceQueue> side = DeviceQueue::New(kDevice);
  void* const native = side->native();
  const Error error = ErrorOf([&] { DeviceQueue::Adopt(other, native); });
  EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(error.message(),
              HasSubstr("found queue 1 of simulated:0, expected one of simulated:1"));
  EXPECT_EQ(OpenQueues(other), 1u);
  EXPECT_EQ(DeviceQueue::Adopt(kDevice, native), *side);
  // What it was called may be anybody's when it has ended, and what the caller made is whose they
  // say.
  side.reset();
  EXPECT_EQ(DeviceQueue::Adopt(other, native).number(), 1);
  int theirs;
  const DeviceQueue here = DeviceQueue::Adopt(kDevice, &theirs),
                    there = DeviceQueue::Adopt(other, &theirs);
  EXPECT_NE(here, there);
}

}  // namespace
}  // namespace tidepool
