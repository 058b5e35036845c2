#include "tidepool/memory/device.h"

#include <atomic>
#include <bit>
#include <cstdint>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/device_check.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

using testing::HasSubstr;

// Types stay known, so each test has names of its own; the one that fills the table runs last.
TEST(DeviceTypes, HostAndCudaAreKnownWithoutTheirBackends) {
  EXPECT_EQ(DeviceType(), DeviceType::kHost);
  EXPECT_EQ(DeviceType::Named("host"), DeviceType::kHost);
  EXPECT_EQ(DeviceType::Named("cuda"), DeviceType::kCuda);
  EXPECT_EQ(DeviceName(Host()), "host");
  EXPECT_EQ(DeviceName({DeviceType::kCuda, 3}), "cuda:3");
  static_assert(DeviceType::kCuda.number() == 1);
}

TEST(DeviceTypes, ANameIsOneTypeForEver) {
  EXPECT_FALSE(DeviceType::Find("npu").has_value());
  const int before = DeviceType::count();
  const DeviceType npu = DeviceType::Named("npu");
  EXPECT_EQ(DeviceType::Named(std::string("npu")), npu);
  EXPECT_EQ(DeviceType::Find("npu"), npu);
  EXPECT_EQ(DeviceType::count(), before + 1);
  EXPECT_EQ(DeviceType::Numbered(npu.number()), npu);
  EXPECT_EQ(DeviceTypeName(npu), "npu");
  EXPECT_FALSE(DeviceType::Find("np").has_value());
  EXPECT_NE(DeviceType::Named("npu2"), npu);
}

TEST(DeviceTypes, WhatIsNoNameIsRefused) {
  const int before = DeviceType::count();
  const std::string longest(31, 'x');
  for (const std::string& name :
       {std::string(), std::string("GPU"), std::string("2d"), std::string("a:0"), std::string("_a"),
        std::string("a\0b", 3), longest + "x"}) {
    EXPECT_THAT(CatchStatus([&] { DeviceType::Named(name); }).message(),
                HasSubstr("device type: found the name \"" + name + "\", expected at most 31"));
    EXPECT_FALSE(DeviceType::Find(name).has_value());
  }
  EXPECT_EQ(DeviceType::count(), before);
  EXPECT_EQ(DeviceTypeName(DeviceType::Named(longest)), longest);
}

TEST(DeviceTypes, NumbersThatNobodyHasAreRefused) {
  for (const int number : {-1, DeviceType::count(), 15, 255}) {
    EXPECT_THAT(CatchStatus([&] { DeviceType::Numbered(number); }).message(),
                HasSubstr("found number " + std::to_string(number) + ", expected 0 to "));
  }
}

// As one that another library has made of a number.
TEST(DeviceTypes, OneWithoutANameIsToldByItsNumber) {
  EXPECT_EQ(DeviceTypeName(std::bit_cast<DeviceType>(uint8_t{15})), "unnamed_15");
  EXPECT_EQ(DeviceName({std::bit_cast<DeviceType>(uint8_t{200}), 3}), "unnamed_200:3");
}

TEST(DeviceTypes, DevicesAreReadAsTheyAreWritten) {
  const DeviceType tpu = DeviceType::Named("tpu");
  for (const Device device : {Host(), Device{DeviceType::kCuda, 0}, Device{tpu, 15}}) {
    EXPECT_EQ(DeviceNamed(DeviceName(device)), device);
  }
  EXPECT_EQ(DeviceNamed("tpu"), (Device{tpu, 0}));
  for (const char* text :
       {"tpu:", "tpu:16", "tpu:-1", "tpu:1x", "tpu: 1", "tpu:+1", "tpu:99999999999"}) {
    EXPECT_THAT(
        CatchStatus([&] { DeviceNamed(text); }).message(),
        HasSubstr(std::string("found device \"") + text + "\", expected tpu or tpu:0 to :15"));
  }
  EXPECT_THAT(CatchStatus([] { DeviceNamed("host:0"); }).message(), HasSubstr("expected host"));
  for (const char* text : {"", ":0", "nobodys:0", "tpu0"}) {
    EXPECT_THAT(CatchStatus([&] { DeviceNamed(text); }).message(),
                HasSubstr("expected one of the types host, cuda"));
  }
  EXPECT_FALSE(DeviceType::Find("nobodys").has_value());
}

TEST(DeviceTypes, EachPossibleDeviceHasItsPlace) {
  const DeviceType dsp = DeviceType::Named("dsp");
  std::set<int> places;
  bool of_dsp = false;
  ForEachPossibleDevice([&](Device device) {
    of_dsp |= device == Device{dsp, 15};
    const int place = DevicePlace("test", device);
    EXPECT_TRUE(place < kDevicePlaces && places.insert(place).second);
    EXPECT_EQ(DeviceAt(place), device);
  });
  EXPECT_TRUE(of_dsp);
  EXPECT_EQ(places.size(), 1u + (DeviceType::count() - 1) * kMaxDevicesPerType);
}

// Eight threads name the same types at once, more than there may be in all.
TEST(DeviceTypesLast, ThreadsThatNameTheSameGetTheSameUntilThereIsNoRoom) {
  constexpr int kThreads = 8;
  std::vector<std::vector<std::pair<std::string, int>>> of_thread(kThreads);
  std::atomic<int> ready{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      ++ready;
      while (ready < kThreads) std::this_thread::yield();
      for (int i = 0; i < kMaxDeviceTypes; ++i) {
        const std::string name = "type" + std::to_string((i + t) % kMaxDeviceTypes);
        try {
          of_thread[t].push_back({name, DeviceType::Named(name).number()});
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), absl::StatusCode::kResourceExhausted);
          EXPECT_THAT(error.message(), HasSubstr("no room for \"" + name +
                                                 "\": the 16 there may be are host, cuda"));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(DeviceType::count(), kMaxDeviceTypes);
  std::set<std::string> named;
  for (const auto& known : of_thread) {
    for (const auto& [name, number] : known) {
      named.insert(name);
      EXPECT_EQ(DeviceTypeName(DeviceType::Numbered(number)), name);
    }
  }
  int of_this_test = 0;
  for (int number = 0; number < kMaxDeviceTypes; ++number) {
    of_this_test += DeviceTypeName(DeviceType::Numbered(number)).starts_with("type");
  }
  EXPECT_EQ(static_cast<int>(named.size()), of_this_test);
  EXPECT_EQ(DeviceNamed("host"), Host());  // what is known is found as before
}

}  // namespace
}  // namespace tidepool
