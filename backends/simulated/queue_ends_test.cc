// Queues that end, that are used beside each other on several threads, and what is done by hand in them; see
// queues_test.cc.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <latch>
#include <optional>
#include <thread>

#include "gtest/gtest.h"
#include "tidepool/memory/provider/device_queue.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/host_view.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ops/elementwise.h"

namespace tidepool {
namespace {

const Device kDevice = SimulatedDevice::kDevice;

class QueueEndsTest : public testing::Test {
 protected:
  void SetUp() override { SimulatedDevice::Get().Reset(); }
  void TearDown() override { SimulatedDevice::Get().Reset(); }
};

// What queues did that have ended is waited for as that of others is, by the host as well.
TEST_F(QueueEndsTest, QueuesThatHaveEnded) {
  for (const bool writes : {true, false}) {
    SimulatedDevice::Get().Reset();
    SimulatedDevice::Get().set_asynchronous(41);
    NDArray x, y;
    {
      const DeviceQueue a = DeviceQueue::New(kDevice), b = DeviceQueue::New(kDevice);
      {
        const QueueScope scope(a);
        x = Full({1000}, 1, DType::kFloat32, Place::On(kDevice));
        x += 1;
      }
      const QueueScope scope(b);
      y = Add(x, x);
    }
    if (writes) x.mutable_data<float>()[0] = 5;
    EXPECT_EQ(x.data<float>()[1], 2);
    EXPECT_EQ(y.At<float>({0}), 4);
  }
}

TEST_F(QueueEndsTest, ACyclesHomeStaysOpenUntilItsEnd) {
  SimulatedDevice::Get().set_asynchronous(42);
  Workspace workspace("home", WorkspaceConfig::Training(), kDevice);
  const DeviceQueue other = DeviceQueue::New(kDevice);
  for (int i = 0; i < 5; ++i) {
    std::optional<WorkspaceScope> cycle;
    NDArray x, kept;
    {
      const QueueScope scope(DeviceQueue::New(kDevice));
      cycle.emplace(workspace);
      x = Full({1000}, 3, DType::kFloat32, Place::CurrentOn(kDevice));
    }
    {
      const QueueScope scope(other);
      kept = Add(x, x).Detach();
    }
    x = NDArray();
    const NDArray z = Full({1000}, 4, DType::kFloat32, Place::CurrentOn(kDevice));
    EXPECT_EQ(kept.At<float>({5}), 6);
    cycle.reset();
    EXPECT_EQ(DeviceQueue::New(kDevice).number(), 2);  // and no longer
  }
}

// A kernel of the caller's on what a view of device memory shows, in the queue it was made in.
TEST_F(QueueEndsTest, ViewsOfDeviceMemoryAreUses) {
  SimulatedDevice& device = SimulatedDevice::Get();
  device.set_asynchronous(43);
  NDArray x = Full({1000}, 1, DType::kFloat32, Place::On(kDevice));
  x += x;
  {
    const QueueScope scope(DeviceQueue::New(kDevice));
    DeviceView<float> view(x);
    auto* const begin = reinterpret_cast<std::byte*>(view.data());
    auto* const hidden = reinterpret_cast<float*>(device.Hidden(begin, 4000));
    device.QueueKernel(
        {{begin, begin + 4000}}, [=] { ++hidden[0]; }, QueueHere(kDevice));
  }
  x += x;
  EXPECT_EQ(x.At<float>({0}), 6);
}

// A kernel that is about to be queued when another thread looks at who uses its operands.
std::function<void()> before_copy;
void CopyLater(const KernelCall& call) {
  before_copy();
  SimulatedDevice& device = SimulatedDevice::Get(call.device.index);
  const size_t bytes = static_cast<size_t>(call.inputs[0].NumElements()) * sizeof(float);
  const std::byte* const x = call.inputs[0].as<std::byte>();
  std::byte* const y = call.outputs[0].as<std::byte>();
  std::byte* const from = device.Hidden(x, bytes);
  std::byte* const to = device.Hidden(y, bytes);
  device.QueueKernel(
      {{x, x + bytes, false}, {y, y + bytes, true}}, [=] { std::copy_n(from, bytes, to); },
      call.queue);
}
const OpCode kCopyLater = AddOperator(
    {.name = "copy_later", .inputs = "X", .outputs = "Y", .types = SetOf(DType::kFloat32)});
const KernelRegistrar later({{kCopyLater, kDevice.type, DType::kFloat32, "later", 1, &CopyLater}});

// Runs `copy` on one thread, and `other` on a second once the first's kernel is about to be queued.
void Meanwhile(const std::function<void()>& copy, const std::function<void()>& other) {
  std::latch about(1);
  std::atomic<bool> started{false};
  before_copy = [&] {
    about.count_down();
    // The other thread waits for this one, so it is only given time to get there.
    while (!started) std::this_thread::yield();
    for (int i = 0; i < 200; ++i) std::this_thread::yield();
  };
  std::thread first(copy), second([&] {
    about.wait();
    started = true;
    other();
  });
  first.join();
  second.join();
}

TEST_F(QueueEndsTest, AReaderIsNotForgottenWhenAnotherBringsAPartToTheDevice) {
  SimulatedDevice::Get().set_asynchronous(44);
  NDArray x = Full({4000}, 1, DType::kFloat32, Place::On(kDevice));
  const DeviceQueue a = DeviceQueue::New(kDevice), b = DeviceQueue::New(kDevice);
  for (const DeviceQueue& queue : {a, b}) {
    const QueueScope scope(queue);
    Add(x, x);
  }
  NDArray low = x.Slice(0, 0, 100), high = x.Slice(0, 3000, 3100);
  {
    HostView<float> view(high);
    for (float& value : view) value = 5;
  }
  NDArray seen = Full({100}, 0, DType::kFloat32, Place::On(kDevice)), sum;
  Meanwhile(
      [&] {
        const QueueScope scope(a);
        Dispatch(kCopyLater, {&low}, {&seen});
      },
      [&] {
        const QueueScope scope(b);
        sum = Add(high, high);
        x += 1;  // behind the first thread's kernel as well
      });
  EXPECT_EQ(seen.At<float>({0}), 1);
  EXPECT_EQ(sum.At<float>({0}), 10);
}

TEST_F(QueueEndsTest, TwoThreadsWriteHalvesOfOneArrayInQueuesOfTheirOwn) {
  SimulatedDevice::Get().set_asynchronous(45);
  NDArray x = Full({4000}, 1, DType::kFloat32, Place::On(kDevice));
  NDArray low = x.Slice(0, 0, 2000), high = x.Slice(0, 2000, 4000);
  const NDArray seven = Full({2000}, 7, DType::kFloat32, Place::On(kDevice));
  const DeviceQueue a = DeviceQueue::New(kDevice), b = DeviceQueue::New(kDevice);
  Meanwhile(
      [&] {
        const QueueScope scope(a);
        Dispatch(kCopyLater, {&seven}, {&low});
      },
      [&] {
        const QueueScope scope(b);
        FillInto(9, high);
      });
  const NDArray y = Add(x, x);
  EXPECT_EQ(y.At<float>({0}), 14);
  EXPECT_EQ(y.At<float>({3999}), 18);
}

// What its queue was given to do since is not the next cycle's, which begins in another.
TEST_F(QueueEndsTest, ACycleWaitsForTheLastOneAndNotForWhatCameAfterIt) {
  int beside = 0;
  for (uint64_t seed = 50; seed < 70; ++seed) {
    SimulatedDevice& device = SimulatedDevice::Get();
    device.Reset();
    device.set_asynchronous(seed);
    const DeviceQueue a = DeviceQueue::New(kDevice), b = DeviceQueue::New(kDevice);
    Workspace workspace("turns", WorkspaceConfig::Training(), kDevice);
    const auto cycle = [&](const DeviceQueue& queue) {
      const QueueScope in_queue(queue);
      WorkspaceScope scope(workspace);
      NDArray x = Full({1000}, 3, DType::kFloat32, Place::CurrentOn(kDevice));
      x += x;
    };
    cycle(a);
    std::atomic<bool> done{false};
    device.QueueKernel(
        {}, [&] { done = true; }, a.number());
    cycle(b);
    b.Wait();
    beside += !done;
    a.Wait();
  }
  EXPECT_GT(beside, 5);
}

TEST_F(QueueEndsTest, AWorkspacesFirstCycleWaitsForNothing) {
  const DeviceQueue side = DeviceQueue::New(kDevice);
  Workspace workspace("fresh", WorkspaceConfig::Training(), kDevice);
  const int64_t orders = SimulatedDevice::Get().counters().orders;
  const QueueScope queue(side);
  WorkspaceScope scope(workspace);
  NDArray x = Full({1000}, 3, DType::kFloat32, Place::CurrentOn(kDevice));
  x += x;
  EXPECT_EQ(SimulatedDevice::Get().counters().orders, orders);
}

}  // namespace
}  // namespace tidepool
