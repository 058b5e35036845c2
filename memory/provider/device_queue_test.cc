#include "tidepool/memory/provider/device_queue.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/buffer.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/memory/queue_use.h"
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
  EXPECT_THAT(error.message(), HasSubstr("the first, 15 that have handles (15 of DeviceQueue"));
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
  EXPECT_EQ(ErrorOf([] {
              DeviceQueue::New({kDevice.type, 7});
            }).code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(ErrorOf([] {
              DeviceQueue::First({kDevice.type, 200});
            }).code(),
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
    for (int i = 0; i < 20; ++i)
      device_.QueueKernel(
          {}, [&] { ++done; }, number);
  }
  // Who has the number next comes behind it.
  const DeviceQueue next = DeviceQueue::New(kDevice);
  ASSERT_EQ(next.number(), number);
  int seen = 0;
  device_.QueueKernel(
      {}, [&] { seen = done; }, number);
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
  device_.QueueKernel(
      {}, [&] { done = true; }, number);
  device.faults().FailRequest(0);
  queue.reset();
  EXPECT_EQ(device.faults().failed(), 1);
  device.faults().Clear();
  device.WaitFor(EndOfQueue(kDevice, number));
  EXPECT_TRUE(done);
  EXPECT_EQ(DeviceQueue::New(kDevice).number(), number);
}

// What is open costs the device a stream and its libraries' handles: whoever next opens, closes or waits closes it, and not
// only who happens to want its number.
TEST_F(DeviceQueueTest, QueuesLeftOpenAreClosedByWhoeverComesNext) {
  device_.set_asynchronous(5);
  const std::vector<std::function<void()>> nexts = {
      [] { DeviceQueue::New(kDevice); },
      [] { EndOfQueue(kDevice, 3); },
      [] { OrderQueueAfter(kDevice, 0, 1u << 3); },
      [] {
        static int theirs;
        DeviceQueue::Adopt(kDevice, &theirs);
      },
  };
  for (const std::function<void()>& next : nexts) {
    std::optional<DeviceQueue> first = DeviceQueue::New(kDevice),
                               second = DeviceQueue::New(kDevice),
                               third = DeviceQueue::New(kDevice);
    ASSERT_EQ(third->number(), 3);
    std::atomic<bool> done{false};
    device_.QueueKernel(
        {}, [&] { done = true; }, 3);
    first.reset();  // its number is the one that who opens gets
    {
      FailingProvider device(kDevice);
      device.faults().FailRequest(0, 1000);
      third.reset();
      EXPECT_EQ(OpenQueues(kDevice), 0b1101u);
      EXPECT_THROW(next(), Error);  // as long as the device refuses
      EXPECT_EQ(OpenQueues(kDevice), 0b1101u);
    }
    next();
    EXPECT_EQ(OpenQueues(kDevice), 0b101u);
    device_.WaitFor(EndOfQueue(kDevice, 3));
    EXPECT_TRUE(done);
  }
  // By the end of another one, which tells itself.
  std::optional<DeviceQueue> first = DeviceQueue::New(kDevice), second = DeviceQueue::New(kDevice);
  {
    FailingProvider device(kDevice);
    device.faults().FailRequest(0);
    second.reset();
    EXPECT_EQ(OpenQueues(kDevice), 0b111u);
  }
  first.reset();
  EXPECT_EQ(OpenQueues(kDevice), 1u);
  // The caller's own, adopted anew, is not in two.
  int theirs;
  std::optional<DeviceQueue> before = DeviceQueue::New(kDevice),
                             adopted = DeviceQueue::Adopt(kDevice, &theirs);
  {
    FailingProvider device(kDevice);
    device.faults().FailRequest(0);
    before.reset();
    device.faults().Clear();
    device.faults().FailRequest(0, 1000);
    adopted.reset();
  }
  EXPECT_EQ(OpenQueues(kDevice), 0b111u);
  adopted = DeviceQueue::Adopt(kDevice, &theirs);
  EXPECT_EQ(OpenQueues(kDevice), 0b11u);
}

TEST_F(DeviceQueueTest, QueuesRunBesideEachOtherUnlessTheyAreTold) {
  int beside = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    device_.Reset();
    device_.set_asynchronous(seed);
    const DeviceQueue a = DeviceQueue::New(kDevice), b = DeviceQueue::New(kDevice);
    std::atomic<bool> done{false}, before_b{false}, before_first{false};
    device_.QueueKernel(
        {}, [&] { done = true; }, a.number());
    device_.QueueKernel(
        {}, [&] { before_b = done.load(); }, b.number());
    b.Wait();
    beside += !before_b;
    const DeviceQueue first = DeviceQueue::First(kDevice);
    first.After(a);
    device_.QueueKernel(
        {}, [&] { before_first = done.load(); }, 0);
    first.Wait();
    EXPECT_TRUE(before_first);
  }
  EXPECT_GT(beside, 5);
}

// ---- the second queue of the process ----

// In a process that has one queue. Ends it: where work conflicts that is in no order, by the device.
class TheFirstSecondQueue {
 public:
  TheFirstSecondQueue() {
    device_.set_asynchronous(1);
    Require(!queues_in_use, "there is one queue");
  }
  void Write(int queue, size_t begin, size_t end) { Queue(queue, begin, end, true); }
  void Read(int queue) { Queue(queue, 0, kBytes, false); }
  Buffer* buffer() { return x_.get(); }
  static void Require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "found otherwise: %s\n", what);
    std::_Exit(2);
  }
  void End() {
    for (int queue = 0; queue < 2; ++queue) device_.WaitFor(EndOfQueue(kDevice, queue));
    std::_Exit(0);
  }

  static constexpr size_t kBytes = 256;

 private:
  void Queue(int queue, size_t begin, size_t end, bool writes) {
    device_.QueueKernel(
        {{x_->data + begin, x_->data + end, writes}}, [] {}, queue);
  }

  SimulatedDevice& device_ = SimulatedDevice::Get();
  BufferHandle x_{NewHeapBuffer(kBytes, 64, MemoryKind::kAllocated, kDevice)};
};

// Another thread makes it and writes the other half of an array there: its queue comes behind the end that the first
// one had. Whoever reads both halves there later comes behind the call all the same.
void TheSecondQueueComesDuringACall() {
  TheFirstSecondQueue process;
  std::optional<DeviceQueue> side;
  {
    const OrderedUses call(kDevice, 0, {{process.buffer(), true}});
    std::thread([&] {
      side = DeviceQueue::New(kDevice);
      const OrderedUses beside(kDevice, side->number(), {{process.buffer(), true}});
      process.Write(side->number(), 128, 256);
    }).join();
    process.Write(0, 0, 128);
  }
  const OrderedUses both(kDevice, side->number(), {{process.buffer(), false}});
  process.Read(side->number());
  process.End();
}

// One that began before notes nothing, since it keeps nobody out: what the other has noted stays.
void TheSecondQueueComesDuringATurnAlone() {
  TheFirstSecondQueue process;
  std::optional<DeviceQueue> side;
  {
    const QueueTurn turn(kDevice, /*alone=*/true);
    std::thread([&] {
      side = DeviceQueue::New(kDevice);
      const OrderedUses beside(kDevice, side->number(), {{process.buffer(), true}});
      process.Write(side->number(), 128, 256);
    }).join();
    OrderUsesAlone(turn, kDevice, 0, {process.buffer(), true});
    process.Write(0, 0, 128);
  }
  process.Require(process.buffer()->queues == 1u << side->number(), "the side queue wrote it last");
  const OrderedUses both(kDevice, 0, {{process.buffer(), false}});
  process.Read(0);
  process.End();
}

TEST(TheFirstSecondQueueDeathTest, ComesWhileWorkIsBeingQueued) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(TheSecondQueueComesDuringACall(), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(TheSecondQueueComesDuringATurnAlone(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tidepool
