// Providers of a program's own that break what they promise: what they throw, and where their
// memory lies.
#include "tidepool/memory/provider/provider_calls.h"

#include <pthread.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/memory/provider/device_loss.h"
#include "tidepool/memory/provider/device_queue.h"
#include "tidepool/memory/provider/pages.h"
#include "tidepool/memory/resource/heap.h"
#include "tidepool/memory/resource/page_blocks.h"
#include "tidepool/memory/testing/simulated_device.h"

namespace tidepool {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;

const Device kDevice = SimulatedDevice::kDevice;

// In the place of the simulated device's, which it passes on what it does not spoil.
class OddProvider final : public DeviceProvider {
 public:
  OddProvider() { SwapDeviceProviderForTesting(kDevice, this); }
  ~OddProvider() { SwapDeviceProviderForTesting(kDevice, &base_); }

  // What it throws from the call of that name.
  std::string throws_from;
  std::function<void()> thrower;
  size_t off = 0;  // how far its memory lies from where it should
  bool has_memory = true;
  int blocks = 0, ranges = 0, waits = 0;

  std::string name() const override { return MayThrow("name"), "odd:0"; }
  Device device() const override { return kDevice; }
  MemoryTraits traits() const override { return base_.traits(); }
  std::byte* Reserve(size_t bytes) noexcept override {
    std::byte* const base = has_memory ? base_.Reserve(bytes) : nullptr;
    return base != nullptr ? (++ranges, base + off) : nullptr;
  }
  void Unreserve(std::byte* at, size_t bytes) noexcept override {
    --ranges, base_.Unreserve(at - off, bytes);
  }
  bool Commit(std::byte* at, size_t bytes, bool large) noexcept override {
    return base_.Commit(at, bytes, large);
  }
  bool Decommit(std::byte* at, size_t bytes) noexcept override { return base_.Decommit(at, bytes); }
  std::byte* Allocate(size_t bytes, size_t alignment) noexcept override {
    std::byte* const data = has_memory ? base_.Allocate(bytes, alignment) : nullptr;
    return data != nullptr ? (++blocks, data + off) : nullptr;
  }
  void Release(std::byte* data, size_t bytes) noexcept override {
    --blocks, base_.Release(data - off, bytes);
  }
  void CopyFromHost(std::byte* to, const std::byte* from, size_t bytes) override {
    MayThrow("copy"), base_.CopyFromHost(to, from, bytes);
  }
  void CopyToHost(std::byte* to, const std::byte* from, size_t bytes) override {
    MayThrow("copy"), base_.CopyToHost(to, from, bytes);
  }
  void CopyOnDevice(std::byte* to, const std::byte* from, size_t bytes) override {
    MayThrow("copy"), base_.CopyOnDevice(to, from, bytes);
  }
  void Fill(std::byte* to, std::byte value, size_t bytes) override { base_.Fill(to, value, bytes); }
  void OpenQueue(int queue, void* native) override {
    MayThrow("open"), base_.OpenQueue(queue, native);
  }
  void CloseQueue(int queue) noexcept override { base_.CloseQueue(queue); }
  void* NativeQueue(int queue) override { return MayThrow("native"), base_.NativeQueue(queue); }
  QueuePoint ComputePoint(int queue) override {
    return MayThrow("point"), base_.ComputePoint(queue);
  }
  void ComputeAfter(int queue, QueuePoint point) override {
    MayThrow("after"), base_.ComputeAfter(queue, point);
  }
  bool HasPassed(QueuePoint point) override { return base_.HasPassed(point); }
  void WaitFor(QueuePoint point) override { MayThrow("wait"), ++waits, base_.WaitFor(point); }

 private:
  void MayThrow(const char* call) const {
    if (throws_from == call) thrower();
  }
  SimulatedDevice& base_ = SimulatedDevice::Get();
};

class ProviderCallsTest : public testing::Test {
 protected:
  void SetUp() override { device_.Reset(); }
  void TearDown() override { device_.Reset(); }

  SimulatedDevice& device_ = SimulatedDevice::Get();
};

TEST_F(ProviderCallsTest, MemoryThatLiesWronglyIsGivenBackAndRefused) {
  OddProvider odd;
  odd.off = 8;
  const auto refused = [&](const char* what, const char* expected, absl::FunctionRef<void()> call) {
    EXPECT_THAT(ErrorOf(call), IsError(StatusCode::kInternal,
                                       {"memory provider of simulated:0 (\"odd:0\"): found ", what,
                                        " aligned to 8, expected a multiple of ", expected,
                                        "; it has been given back"}));
    EXPECT_EQ(odd.blocks, 0);
    EXPECT_EQ(odd.ranges, 0);
    EXPECT_EQ(device_.used_bytes(), 0u);
  };
  refused("a block of 1000 bytes", "256",
          [&] { HeapAllocate(1000, 128, MemoryKind::kAllocated, kDevice); });
  HeapResource heap(odd, MemoryKind::kAllocated, nullptr);
  refused("a block of 1000 bytes", "512", [&] { heap.Allocate(1000, 512); });
  ProviderBlocks blocks(odd);
  refused("a block of 10 bytes", "256", [&] { blocks.Allocate(10, 64); });
  refused("a reserved range", "2097152", [&] { Pages({}, odd).Resize(1000); });
  PageBlocks pages(odd);
  refused("a reserved range", "2097152", [&] { pages.Allocate(1000, 64); });
  odd.off = 0;
  HeapRelease(HeapAllocate(1000, 128, MemoryKind::kAllocated, kDevice), 1000,
              MemoryKind::kAllocated, kDevice);
  Pages({}, odd).Resize(1000);
  EXPECT_EQ(odd.blocks + odd.ranges, 0);
}

TEST_F(ProviderCallsTest, ANameThatThrowsHidesNoOtherError) {
  OddProvider odd;
  odd.throws_from = "name";
  odd.thrower = [] { throw 7; };
  odd.has_memory = false;
  EXPECT_EQ(ProviderName(odd), "memory of simulated:0");
  HeapResource heap(odd, MemoryKind::kAllocated, nullptr);
  PageBlocks pages(odd);
  EXPECT_THROW(HeapAllocate(1000, 128, MemoryKind::kAllocated, kDevice), OutOfMemoryError);
  EXPECT_THROW(Pages({}, odd).Resize(1000), OutOfMemoryError);
  EXPECT_THAT(pages.Describe(), HasSubstr("memory of simulated:0"));
  odd.has_memory = true;
  odd.off = 8;
  EXPECT_THAT(ErrorOf([&] { pages.Allocate(1000, 64); }),
              IsError(StatusCode::kInternal, {"memory of simulated:0"}));
}

// Whatever its calls throw from then on.
TEST_F(ProviderCallsTest, OfALostDeviceTheLossIsTold) {
  const DeviceQueue queue = DeviceQueue::New(kDevice);
  for (const std::function<void()>& thrower : std::initializer_list<std::function<void()>>{
           [] { throw 42; }, [] { throw std::bad_alloc(); },
           [] { ThrowInternal("a bad handle"); }}) {
    OddProvider odd;
    odd.throws_from = "native";
    odd.thrower = [&] {
      LoseDevice(kDevice, "the test wanted it");
      thrower();
    };
    EXPECT_THROW(queue.native(), DeviceLostError);
    ForgetLossForTesting(kDevice);
  }
}

struct Nothing {};

TEST_F(ProviderCallsTest, WhatItThrowsIsAnErrorThatNamesDeviceAndCause) {
  const std::pair<std::function<void()>, std::string> throwers[] = {
      {[] { throw 42; }, "threw an exception of type int"},
      {[] { throw std::runtime_error("the card is on fire"); },
       "threw std::runtime_error: the card is on fire"},
      {[] { throw Nothing(); }, "Nothing"},
      {[] { ThrowUnimplemented("simulated:0: an Error stays what it is"); },
       "an Error stays what it is"},
  };
  const DeviceQueue queue = DeviceQueue::New(kDevice);
  OddProvider odd;
  void* const data = HeapAllocate(64, 64, MemoryKind::kAllocated, kDevice);
  auto* const bytes = static_cast<std::byte*>(data);
  std::byte host[64] = {};
  int theirs;
  const std::pair<const char*, std::function<void()>> calls[] = {
      {"open", [] { DeviceQueue::New(kDevice); }},
      {"open", [&] { DeviceQueue::Adopt(kDevice, &theirs); }},
      {"native", [] { DeviceQueue::New(kDevice); }},
      {"native", [&] { DeviceQueue::Adopt(kDevice, &theirs); }},
      {"native", [&] { queue.native(); }},
      {"after", [] { DeviceQueue::New(kDevice); }},
      {"wait", [&] { queue.Wait(); }},
      {"point", [&] { queue.Wait(); }},
      {"point", [&] { EndOfQueue(kDevice, 0); }},
      {"point", [&] { OrderQueueAfter(kDevice, 0, 1u << queue.number()); }},
      {"copy", [&] { CopyBytes(kDevice, bytes, Host(), host, 32); }},
      {"copy", [&] { CopyBytes(Host(), host, kDevice, bytes, 32); }},
      {"copy", [&] { CopyBytes(kDevice, bytes, kDevice, bytes + 32, 32); }},
      {"copy",
       [&] {
         CopyBytes({kDevice.type, 1}, bytes, kDevice, bytes, 32);
       }},
  };
  for (const auto& [from, call] : calls) {
    for (const auto& [thrower, cause] : throwers) {
      odd.throws_from = from;
      odd.thrower = thrower;
      const bool is_error = cause == "an Error stays what it is";
      EXPECT_THAT(ErrorOf(call),
                  IsError(is_error ? StatusCode::kUnimplemented : StatusCode::kInternal,
                          {"simulated:0", cause}))
          << from;
      odd.throws_from.clear();
      EXPECT_EQ(OpenQueues(kDevice), 0b11u) << from;
    }
  }
  odd.throws_from = "open";
  odd.thrower = [] { throw std::bad_alloc(); };
  EXPECT_THROW(DeviceQueue::New(kDevice), std::bad_alloc);
  odd.throws_from.clear();
  HeapRelease(data, 64, MemoryKind::kAllocated, kDevice);
}

// A thread that is cancelled within a provider's call unwinds to its end, as the POSIX library
// demands: whoever keeps its exception ends the program.
TEST_F(ProviderCallsTest, AThreadIsCancelledWithinACall) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP()
      << "gcc 12's AddressSanitizer fails a check of its own where a cancelled thread unwinds";
#endif
  const DeviceQueue side = DeviceQueue::New(kDevice);
  OddProvider odd;
  odd.thrower = [] {
    pthread_cancel(pthread_self());
    pthread_testcancel();
  };
  std::byte host[32] = {};
  std::byte* const data = device_.Allocate(64, 256);
  const std::pair<const char*, std::function<void()>> calls[] = {
      {"open", [] { DeviceQueue::New(kDevice); }},
      {"native", [&] { side.native(); }},
      {"after", [&] { ComputeAfterOrWait(odd, 0, {1}); }},
      {"wait", [&] { side.Wait(); }},
      {"point", [&] { EndOfQueue(kDevice, side.number()); }},
      {"copy", [&] { CopyBytes(kDevice, data, Host(), host, 32); }},
      {"copy", [&] { CopyBytes(kDevice, data, kDevice, data + 32, 32); }},
      {"copy",
       [&] {
         CopyBytes({kDevice.type, 1}, data, kDevice, data, 32);
       }},
  };
  for (const auto& [from, call] : calls) {
    odd.throws_from = from;
    pthread_t thread;
    const auto run = [](void* body) -> void* {
      (*static_cast<const std::function<void()>*>(body))();
      return nullptr;
    };
    ASSERT_EQ(pthread_create(&thread, nullptr, run, const_cast<std::function<void()>*>(&call)), 0);
    void* end = nullptr;
    ASSERT_EQ(pthread_join(thread, &end), 0);
    EXPECT_EQ(end, PTHREAD_CANCELED) << from;
    odd.throws_from.clear();
    EXPECT_EQ(OpenQueues(kDevice), 0b11u) << from;
  }
  device_.Release(data, 64);
}

// Whatever it says when one is to begin behind another.
TEST_F(ProviderCallsTest, TheHostWaitsWhereAQueueCannot) {
  device_.set_asynchronous(6);
  const DeviceQueue side = DeviceQueue::New(kDevice);
  OddProvider odd;
  odd.throws_from = "after";
  for (const std::function<void()>& thrower : std::initializer_list<std::function<void()>>{
           [] { throw Nothing(); }, [] { throw std::bad_alloc(); },
           [] { ThrowInternal("no events are left"); }}) {
    odd.thrower = thrower;
    std::atomic<int> done{0};
    for (int i = 0; i < 20; ++i)
      device_.QueueKernel(
          {}, [&] { ++done; }, side.number());
    OrderQueueAfter(kDevice, 0, 1u << side.number());
    EXPECT_EQ(done, 20);
    for (int i = 0; i < 20; ++i)
      device_.QueueKernel(
          {}, [&] { ++done; }, 0);
    side.After(DeviceQueue::First(kDevice));
    EXPECT_EQ(done, 40);
  }
  const int waits = odd.waits;
  LoseDevice(kDevice, "the test wanted it");
  EXPECT_THROW(ComputeAfterOrWait(odd, 0, {1}), DeviceLostError);
  EXPECT_EQ(odd.waits, waits);
}

// Their numbers would run out.
TEST_F(ProviderCallsTest, QueuesOfALostDeviceEndWithTheirHandles) {
  device_.set_asynchronous(7);
  for (int round = 0; round < 40; ++round) {
    std::vector<DeviceQueue> queues;
    for (int i = 1; i < kMostQueues; ++i) {
      queues.push_back(DeviceQueue::New(kDevice));
      device_.QueueKernel(
          {}, [] {}, i);
    }
    // One had ended before, when the device did not tell.
    if (round % 2 == 1) {
      OddProvider odd;
      odd.throws_from = "point";
      odd.thrower = [] { throw Nothing(); };
      queues.erase(queues.begin() + round % 15);
      EXPECT_EQ(OpenQueues(kDevice), 0xffffu);
    }
    LoseDevice(kDevice, "the test wanted it");
    EXPECT_THROW(queues.back().Wait(), DeviceLostError);
    EXPECT_THROW(EndOfQueue(kDevice, queues.back().number()), DeviceLostError);
    queues.clear();
    ASSERT_EQ(OpenQueues(kDevice), 1u) << round;
    EXPECT_THROW(DeviceQueue::New(kDevice), DeviceLostError);
    device_.Reset();
    device_.set_asynchronous(7);
  }
}

}  // namespace
}  // namespace tidepool
