#include "tidepool/memory/testing/simulated_device.h"

#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/buffer.h"
#include "tidepool/memory/device_copy.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/failing_new.h"
#include "tidepool/memory/testing/failing_provider.h"

namespace tidepool {
namespace {

constexpr size_t kGranule = SimulatedDevice::kGranularity;

class SimulatedDeviceTest : public testing::Test {
 protected:
  void SetUp() override { device_.Reset(); }
  void TearDown() override { device_.Reset(); }  // dies when something was not given back
  SimulatedDevice& device_ = SimulatedDevice::Get();
};
using SimulatedDeviceDeathTest = SimulatedDeviceTest;

TEST_F(SimulatedDeviceTest, BytesComeBackAsTheyWent) {
  std::byte* const data = device_.Allocate(1000, 256);
  std::vector<std::byte> source(1000), result(1000);
  for (size_t i = 0; i < 1000; ++i) source[i] = static_cast<std::byte>(i * 13);
  device_.CopyFromHost(data, source.data(), 1000);
  device_.Fill(data + 10, std::byte{9}, 5);
  device_.CopyOnDevice(data + 100, data + 10, 5);
  device_.CopyToHost(result.data(), data, 1000);
  std::memset(source.data() + 10, 9, 5);
  std::memset(source.data() + 100, 9, 5);
  EXPECT_EQ(source, result);
  device_.Release(data, 1000);
  const SimulatedDevice::Counters counters = device_.counters();
  EXPECT_EQ(counters.blocks, 1);
  EXPECT_EQ(counters.releases, 1);
  EXPECT_EQ(counters.bytes_from_host, 1000);
  EXPECT_EQ(counters.bytes_to_host, 1000);
  EXPECT_EQ(counters.bytes_on_device, 5);
  EXPECT_EQ(counters.fills, 1);
}

TEST_F(SimulatedDeviceTest, CapacityCountsRangesAndBlocks) {
  device_.set_capacity(4 * kGranule);
  std::byte* const range = device_.Reserve(100 * kGranule);
  ASSERT_TRUE(device_.Commit(range, 2 * kGranule, false));
  std::byte* const block = device_.Allocate(kGranule, 256);  // and its tail: two granules
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(device_.used_bytes(), 4 * kGranule);
  EXPECT_EQ(device_.Allocate(1, 256), nullptr);
  EXPECT_FALSE(device_.Commit(range + 2 * kGranule, kGranule, false));
  ASSERT_TRUE(device_.Decommit(range, kGranule));
  EXPECT_TRUE(device_.Commit(range + 2 * kGranule, kGranule, false));
  device_.Release(block, kGranule);
  device_.Unreserve(range, 100 * kGranule);
  EXPECT_EQ(device_.used_bytes(), 0);
}

TEST_F(SimulatedDeviceTest, ThePlannedRequestsFail) {
  device_.faults().FailRequest(1, 2);
  std::byte* const first = device_.Allocate(10, 256);
  EXPECT_NE(first, nullptr);
  EXPECT_EQ(device_.Reserve(kGranule), nullptr);
  EXPECT_THROW(device_.Fill(first, std::byte{1}, 10), Error);
  device_.Fill(first, std::byte{1}, 10);
  EXPECT_EQ(device_.faults().failed(), 2);
  EXPECT_EQ(device_.faults().requests(), 4);
  device_.Release(first, 10);
}

TEST_F(SimulatedDeviceTest, PinnedMemoryIsHostMemoryThatIsCounted) {
  EXPECT_EQ(device_.PinnedHost(), nullptr);
  device_.set_has_pinned_host(true);
  DeviceProvider* const pinned = device_.PinnedHost();
  ASSERT_NE(pinned, nullptr);
  EXPECT_EQ(pinned->device(), Host());
  std::byte* const block = pinned->Allocate(1000, 256);
  std::memset(block, 1, 1000);
  EXPECT_EQ(device_.pinned_bytes(), 1000);
  pinned->Release(block, 1000);
  std::byte* const range = pinned->Reserve(1 << 20);
  ASSERT_TRUE(pinned->Commit(range, 8192, false));
  EXPECT_EQ(device_.pinned_bytes(), 8192);
  pinned->Unreserve(range, 1 << 20);
  EXPECT_EQ(device_.pinned_bytes(), 0);
  EXPECT_EQ(device_.used_bytes(), 0);
}

TEST_F(SimulatedDeviceTest, AFailingProviderStandsInForAnyDevice) {
  {
    FailingProvider failing(SimulatedDevice::kDevice);
    ASSERT_EQ(FindDeviceProvider(SimulatedDevice::kDevice), &failing);
    failing.faults().FailRequest(0);
    EXPECT_EQ(failing.Allocate(10, 256), nullptr);
    std::byte* const data = failing.Allocate(10, 256);
    failing.faults().FailRequest(0);
    EXPECT_THROW(failing.Fill(data, std::byte{1}, 10), Error);
    failing.Release(data, 10);
    EXPECT_EQ(failing.name(), "simulated:0");
  }
  EXPECT_EQ(FindDeviceProvider(SimulatedDevice::kDevice), &device_);
}

TEST_F(SimulatedDeviceTest, WithoutMemoryForItsRecordsItGivesNone) {
  device_.set_has_pinned_host(true);
  DeviceProvider& pinned = *device_.PinnedHost();
  int faults = 0;
  for (const bool block : {false, true}) {
    for (int64_t at = 0;; ++at) {
      std::byte* got = nullptr;
      until_fault = at;
      fault_happened = false;
      ASSERT_TRUE(
          Try([&] { got = block ? device_.Allocate(100, 256) : device_.Reserve(4 * kGranule); }));
      ASSERT_EQ(got == nullptr, fault_happened);
      EXPECT_EQ(device_.used_bytes(), got != nullptr && block ? kGranule : 0);
      if (got == nullptr) {
        ++faults;
        continue;
      }
      block ? device_.Release(got, 100) : device_.Unreserve(got, 4 * kGranule);
      break;
    }
  }
  EXPECT_GE(faults, 4);
  std::byte* const range = pinned.Reserve(kGranule);
  bool committed = true;
  until_fault = 0;
  ASSERT_TRUE(Try([&] { committed = pinned.Commit(range, kGranule, false); }));
  EXPECT_FALSE(committed);
  EXPECT_EQ(device_.pinned_bytes(), 0u);
  EXPECT_TRUE(pinned.Commit(range, kGranule, false));
  pinned.Unreserve(range, kGranule);
}

TEST(FailingNew, RequestsThatDoNotThrowFailToo) {
  faults_on = true;
  until_fault = 1;
  void* const first = ::operator new(8, std::nothrow);
  void* const second = ::operator new(8, std::nothrow);
  until_fault = 1;
  void* const array = ::operator new[](8, std::nothrow);
  void* const none = ::operator new[](8, std::nothrow);
  faults_on = false;
  EXPECT_NE(first, nullptr);
  EXPECT_EQ(second, nullptr);
  EXPECT_NE(array, nullptr);
  EXPECT_EQ(none, nullptr);
  ::operator delete(first, std::nothrow);
  ::operator delete[](array, std::nothrow);
}

TEST_F(SimulatedDeviceDeathTest, TheHostMayNotTouchItsMemory) {
  std::byte* const data = device_.Allocate(10, 256);
  EXPECT_DEATH(*const_cast<volatile std::byte*>(data) = std::byte{1}, "");
  EXPECT_DEATH(static_cast<void>(*const_cast<volatile std::byte*>(data)), "");
  device_.Release(data, 10);
}

TEST_F(SimulatedDeviceDeathTest, MisuseIsNoticed) {
  std::byte* const range = device_.Reserve(4 * kGranule);
  device_.Commit(range, kGranule, false);
  std::byte host[16] = {};
  EXPECT_DEATH(device_.Commit(range, kGranule, false), "illegal commit of committed memory");
  EXPECT_DEATH(device_.Commit(range + 100, kGranule, false), "granularity");
  EXPECT_DEATH(device_.Commit(range + 4 * kGranule, kGranule, false), "illegal commit");
  EXPECT_DEATH(device_.CopyToHost(host, range + kGranule - 8, 16), "illegal copy to the host");
  EXPECT_DEATH(device_.CopyFromHost(host, host, 16), "illegal copy from the host");
  EXPECT_DEATH(device_.Release(range, kGranule), "illegal release");
  EXPECT_DEATH(device_.Unreserve(range + kGranule, kGranule), "illegal end of a range");
  EXPECT_DEATH(device_.Reset(), "memory in use");
  device_.Unreserve(range, 4 * kGranule);
}

// Neither is a copy between devices, and what would order it takes two.
TEST(SimulatedPeers, CopiesWithinADeviceAndOfTheHostsBytesAreRefused) {
  const Device kOther{SimulatedDevice::kDevice.type, 1};
  const std::pair<Device, Device> kPairs[] = {{Host(), Host()},
                                              {SimulatedDevice::kDevice, SimulatedDevice::kDevice},
                                              {Host(), kOther},
                                              {kOther, Host()}};
  for (const auto& [to, from] : kPairs) {
    const BufferHandle target(NewHeapBuffer(64, kHeapAlignment, MemoryKind::kAllocated, to));
    const BufferHandle source(NewHeapBuffer(64, kHeapAlignment, MemoryKind::kAllocated, from));
    try {
      CopyBetweenDevices(*target.get(), target->data, *source.get(), source->data, 64);
      ADD_FAILURE() << DeviceName(from) << " to " << DeviceName(to);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(std::string(error.message()), "copy between devices: found bytes of " +
                                                  DeviceName(from) + " for " + DeviceName(to) +
                                                  ", expected two devices that are not the host");
    }
    EXPECT_FALSE(DeviceCopiesBetween(from, to).decided);
  }
}

}  // namespace
}  // namespace tidepool
