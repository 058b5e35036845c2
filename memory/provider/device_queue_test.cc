#include "tidepool/memory/provider/device_queue.h"

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/failing_provider.h"
#include "tidepool/memory/testing/simulated_device.h"

namespace tidepool {
namespace {

using ::testing::HasSubstr;

const Device kDevice = SimulatedDevice::kDevice;

class DeviceQueueTest : public testing::Test {
 protected:
  void SetUp() override { device_.Reset(); }
  void TearDown() override { device_.Reset(); }

  SimulatedDevice& device_ = SimulatedDevice::Get();
};

Error ErrorOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return Error(absl::StatusCode::kOk, "nothing was thrown");
}

TEST_F(DeviceQueueTest, ScopesNestByDeviceAndThread) {
  const Device other{kDevice.type, 1};
  const DeviceQueue first = DeviceQueue::First(kDevice), a = DeviceQueue::New(kDevice);
  const DeviceQueue b = DeviceQueue::New(other);
  EXPECT_EQ(first.number(), 0);
  EXPECT_EQ(a.number(), 1);
  EXPECT_EQ(b.number(), 1);  // of another device
  EXPECT_NE(a, b);
  EXPECT_EQ(QueueHere(kDevice), 0);
  {
    const QueueScope in_a(a);
    EXPECT_EQ(QueueHere(kDevice), 1);
    EXPECT_EQ(QueueHere(other), 0);
    EXPECT_EQ(QueueHere(Host()), 0);
    {
      const QueueScope in_b(b), in_first(first);
      EXPECT_EQ(QueueHere(kDevice), 0);
      EXPECT_EQ(QueueHere(other), 1);
    }
    EXPECT_EQ(QueueHere(kDevice), 1);
    std::thread([&] { EXPECT_EQ(QueueHere(kDevice), 0); }).join();
  }
  EXPECT_EQ(QueueHere(kDevice), 0);
}

TEST_F(DeviceQueueTest, NumbersAreUsedAgainAndRunOut) {
  std::vector<DeviceQueue> queues;
  for (int i = 1; i < kMostQueues; ++i) {
    queues.push_back(DeviceQueue::New(kDevice));
    EXPECT_EQ(queues.back().number(), i);
  }
  const Error error = ErrorOf([] { DeviceQueue::New(kDevice); });
  EXPECT_EQ(error.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(error.message(), HasSubstr("simulated:0 has 16 queues in use"));
  const DeviceQueue kept = queues[6];
  queues.clear();
  EXPECT_EQ(DeviceQueue::New(kDevice).number(), 1);
  EXPECT_EQ(kept.number(), 7);
}

TEST_F(DeviceQueueTest, AQueueOfTheCallersIsOneQueueHoweverOftenItIsAdopted) {
  int theirs, another;
  std::optional<DeviceQueue> a = DeviceQueue::Adopt(kDevice, &theirs);
  const DeviceQueue same = DeviceQueue::Adopt(kDevice, &theirs);
  EXPECT_EQ(*a, same);
  EXPECT_EQ(same.native(), &theirs);
  EXPECT_NE(DeviceQueue::Adopt(kDevice, &another), same);
  a.reset();
  EXPECT_EQ(DeviceQueue::Adopt(kDevice, &theirs), same);
}

TEST_F(DeviceQueueTest, RefusalsSayWhatAndWhere) {
  EXPECT_THAT(ErrorOf([] { DeviceQueue::New(Host()); }).message(),
              HasSubstr("DeviceQueue: host has one queue"));
  EXPECT_EQ(ErrorOf([] { DeviceQueue::New(Host()); }).code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(ErrorOf([] { DeviceQueue::Adopt(kDevice, nullptr); }).message(),
              HasSubstr("null queue of simulated:0"));
  EXPECT_EQ(ErrorOf([] { DeviceQueue::New({kDevice.type, 7}); }).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ErrorOf([] { DeviceQueue::First({kDevice.type, 200}); }).code(),
            absl::StatusCode::kInvalidArgument);
  const DeviceQueue here = DeviceQueue::New(kDevice), there = DeviceQueue::New({kDevice.type, 1});
  EXPECT_THAT(ErrorOf([&] { here.After(there); }).message(), HasSubstr("simulated:1"));
  DeviceQueue::First(Host()).Wait();
}

// One that the device refuses is none, and takes no number.
TEST_F(DeviceQueueTest, TheDeviceRefuses) {
  for (int request = 0; request < 2; ++request) {
    device_.faults().FailRequest(request);
    EXPECT_EQ(ErrorOf([] { DeviceQueue::New(kDevice); }).code(), absl::StatusCode::kInternal);
    device_.faults().Clear();
    EXPECT_EQ(DeviceQueue::New(kDevice).number(), 1);
  }
}

TEST_F(DeviceQueueTest, WorkOfAQueueThatHasEndedIsStillDoneAndWaitedFor) {
  device_.set_asynchronous(3);
  std::atomic<int> done{0};
  int number;
  {
    const DeviceQueue queue = DeviceQueue::New(kDevice);
    number = queue.number();
    for (int i = 0; i < 20; ++i) device_.QueueKernel({}, [&] { ++done; }, number);
  }
  // Who has the number next comes behind it.
  const DeviceQueue next = DeviceQueue::New(kDevice);
  ASSERT_EQ(next.number(), number);
  int seen = 0;
  device_.QueueKernel({}, [&] { seen = done; }, number);
  next.Wait();
  EXPECT_EQ(seen, 20);
}

// It stays open until the device tells, so that what it did is waited for, and gives its number back then.
TEST_F(DeviceQueueTest, TheDeviceRefusesToTellAQueuesEnd) {
  device_.set_asynchronous(8);
  FailingProvider device(kDevice);
  std::atomic<bool> done{false};
  std::optional<DeviceQueue> queue = DeviceQueue::New(kDevice);
  const int number = queue->number();
  device_.QueueKernel({}, [&] { done = true; }, number);
  device.faults().FailRequest(0);
  queue.reset();
  EXPECT_EQ(device.faults().failed(), 1);
  device.faults().Clear();
  device.WaitFor(EndOfQueue(kDevice, number));
  EXPECT_TRUE(done);
  EXPECT_EQ(DeviceQueue::New(kDevice).number(), number);
}

TEST_F(DeviceQueueTest, QueuesRunBesideEachOtherUnlessTheyAreTold) {
  int beside = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    device_.Reset();
    device_.set_asynchronous(seed);
    const DeviceQueue a = DeviceQueue::New(kDevice), b = DeviceQueue::New(kDevice);
    std::atomic<bool> done{false}, before_b{false}, before_first{false};
    device_.QueueKernel({}, [&] { done = true; }, a.number());
    device_.QueueKernel({}, [&] { before_b = done.load(); }, b.number());
    b.Wait();
    beside += !before_b;
    const DeviceQueue first = DeviceQueue::First(kDevice);
    first.After(a);
    device_.QueueKernel({}, [&] { before_first = done.load(); }, 0);
    first.Wait();
    EXPECT_TRUE(before_first);
  }
  EXPECT_GT(beside, 5);
}

}  // namespace
}  // namespace tidepool
