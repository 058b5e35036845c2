// Numbers of devices and queues that there cannot be, wherever one can be given: an error that names it, and nothing is read
// or written beside a table.
#include <bit>
#include <climits>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/buffer.h"
#include "tidepool/memory/device_copy.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_queue.h"
#include "tidepool/memory/queue_use.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/ndarray/capture/step_capture.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/host_fallback.h"

namespace tidepool {
namespace {

using ::testing::HasSubstr;

const Device kDevice = SimulatedDevice::kDevice;

void ExpectRefused(const std::string& what, const std::string& words,
                   const std::function<void()>& call) {
  const absl::Status status = CatchStatus(call);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << what << ": " << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(words)) << what;
}

class ImpossibleNumbers : public testing::Test {
 protected:
  void SetUp() override { SimulatedDevice::Get().Reset(); }
  void TearDown() override { SimulatedDevice::Get().Reset(); }
};

TEST_F(ImpossibleNumbers, OfDevices) {
  const DeviceQueue second = DeviceQueue::New(kDevice);  // so that tables by device are looked at
  const NDArray x = Ones({4}, DType::kFloat32, Place::On(kDevice));
  std::vector<Device> none = {{DeviceType::kHost, 1}, {DeviceType::kHost, 255}};
  for (const int index : {kMaxDevicesPerType, kMaxDevicesPerType + 1, 200, 255}) {
    for (const DeviceType type :
         {kDevice.type, DeviceType::kCuda, DeviceType::Numbered(DeviceType::count() - 1)}) {
      none.push_back({type, static_cast<uint8_t>(index)});
    }
  }
  int theirs;
  std::byte bytes[4] = {};
  for (const Device device : none) {
    const std::string words =
        "found device " + DeviceTypeName(device.type) + ":" + std::to_string(device.index);
    const auto refused = [&](const char* what, const std::function<void()>& call) {
      ExpectRefused(what, words, call);
    };
    refused("First", [&] { DeviceQueue::First(device); });
    refused("Here", [&] { DeviceQueue::Here(device); });
    refused("New", [&] { DeviceQueue::New(device); });
    refused("Adopt", [&] { DeviceQueue::Adopt(device, &theirs); });
    refused("EndOfQueue", [&] { EndOfQueue(device, 0); });
    refused("OrderQueueAfter", [&] { OrderQueueAfter(device, 0, 2); });
    refused("OrderedUses", [&] { const OrderedUses ordered(device, 0, {}); });
    refused("QueueTurn", [&] { const QueueTurn turn(device, /*alone=*/true); });
    refused("DeviceCopiesBetween", [&] { DeviceCopiesBetween(device, kDevice); });
    refused("DeviceCopiesBetween", [&] { DeviceCopiesBetween(kDevice, device); });
    for (const size_t count : {size_t{0}, sizeof bytes}) {
      refused("CopyBytes", [&] { CopyBytes(device, bytes, Host(), bytes, count); });
      refused("CopyBytes", [&] { CopyBytes(Host(), bytes, device, bytes, count); });
    }
    refused("NewCapturedStep", [&] { NewCapturedStep(device); });
    refused("NewImportedBuffer", [&] {
      NewImportedBuffer(
          {.data = bytes, .bytes = 4, .release = nullptr, .context = nullptr, .device = device});
    });
    refused("NewHeapBuffer", [&] { NewHeapBuffer(4, 64, MemoryKind::kAllocated, device); });
    refused("GetDeviceProvider", [&] { GetDeviceProvider(device, "test"); });
    refused("To", [&] { x.To(device); });
    refused("On", [&] { Ones({4}, DType::kFloat32, Place::On(device)); });
    EXPECT_FALSE(CanCaptureSteps(device));
    EXPECT_EQ(FindDeviceProvider(device), nullptr);
    EXPECT_EQ(OpenQueues(device), 0u);
    EXPECT_EQ(AllQueues(device), 0u);
    EXPECT_EQ(QueueHere(device), 0);
    ContinueQueueAfter(device, 0, 2);
    ContinueHereAfterAll(device);
  }
}

TEST_F(ImpossibleNumbers, OfQueues) {
  const NDArray x = Ones({4}, DType::kFloat32, Place::On(kDevice));
  std::byte bytes[4] = {};
  for (const bool several : {false, true}) {
    std::vector<DeviceQueue> second;
    if (several) second.push_back(DeviceQueue::New(kDevice));
    for (const int queue : {-2, INT_MIN, kMostQueues, kMostQueues + 1, 31, 32, 64, INT_MAX}) {
      const auto refused = [&](const char* what, const std::function<void()>& call) {
        ExpectRefused(what,
                      "found queue " + std::to_string(queue) + " of simulated:0, expected 0 to 15",
                      call);
      };
      refused("EndOfQueue", [&] { EndOfQueue(kDevice, queue); });
      refused("OrderQueueAfter", [&] { OrderQueueAfter(kDevice, queue, 1); });
      refused("OrderedUses", [&] {
        const OrderedUses ordered(kDevice, queue, {{x.buffer().get(), false}});
      });
      refused("OrderUsesAlone", [&] {
        const QueueTurn turn(kDevice, /*alone=*/true);
        OrderUsesAlone(turn, kDevice, queue, {x.buffer().get(), true});
      });
      refused("made_in", [&] {
        NewImportedBuffer({.data = bytes,
                           .bytes = 4,
                           .release = nullptr,
                           .context = nullptr,
                           .device = kDevice,
                           .made_in = queue});
      });
      refused("home", [&] {
        NewImportedBuffer({.data = bytes,
                           .bytes = 4,
                           .release = nullptr,
                           .context = nullptr,
                           .device = kDevice,
                           .home = queue});
      });
      ContinueQueueAfter(kDevice, queue, 1);
    }
    for (const uint32_t others : {1u << kMostQueues, 1u << 31, ~0u}) {
      EXPECT_THAT(std::string(CatchStatus([&] { OrderQueueAfter(kDevice, 0, others); }).message()),
                  HasSubstr("found queue " + std::to_string(std::bit_width(others) - 1)));
    }
    EXPECT_EQ(EndOfQueue(kDevice, kMostQueues - 1).value,
              0u);  // one that there may be has nothing to do
  }
}

// There is no handle without a queue to be used by mistake.
TEST_F(ImpossibleNumbers, OfAHandleThatWasMovedFromThereIsNone) {
  DeviceQueue queue = DeviceQueue::New(kDevice);
  const DeviceQueue other = std::move(queue);
  EXPECT_EQ(queue, other);  // NOLINT: that is what is tested
  const QueueScope scope(queue);
  queue.Wait();
  EXPECT_EQ(DeviceQueue::Here(kDevice), other);
}

TEST_F(ImpossibleNumbers, OfOperators) {
  for (const int code : {OperatorCount(), kMaxOpCodes, kMaxOpCodes + 1, 65535}) {
    const auto op = static_cast<OpCode>(code);
    const NDArray x = Ones({4});
    NDArray z = Zeros({4});
    ExpectRefused("Dispatch", "found operator " + std::to_string(code),
                  [&] { Dispatch(op, {&x}, {&z}); });
    ExpectRefused("CostOf", "found operator " + std::to_string(code),
                  [&] { CostOf(op, {&x}, {&z}); });
    ExpectRefused("HostFallbacksOf", "found operator " + std::to_string(code),
                  [&] { HostFallbacksOf(op); });
  }
}

}  // namespace
}  // namespace tidepool
