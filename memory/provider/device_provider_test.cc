#include "tidepool/memory/provider/device_provider.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_loss.h"
#include "tidepool/memory/provider/host_provider.h"
#include "tidepool/memory/testing/simulated_device.h"

namespace tidepool {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Device kFirst{DeviceType::Named("simulated"), 0};
const Device kSecond{DeviceType::Named("simulated"), 1};

TEST(DeviceProvider, TheHostIsBuiltInLinkedDevicesAreFound) {
  EXPECT_EQ(FindDeviceProvider(Host()), &HostProvider());
  EXPECT_EQ(FindDeviceProvider(kFirst), &SimulatedDevice::Get(0));
  EXPECT_EQ(FindDeviceProvider(kSecond), &SimulatedDevice::Get(1));
  EXPECT_EQ(FindDeviceProvider(kSecond), &SimulatedDevice::Get(1));
  EXPECT_EQ(FindDeviceProvider({DeviceType::Named("simulated"), 7}), nullptr);
  EXPECT_EQ(FindDeviceProvider({DeviceType::Named("simulated"), 200}), nullptr);
  EXPECT_EQ(FindDeviceProvider({DeviceType::kCuda, 0}), nullptr);
}

TEST(DeviceProvider, WhatIsMissingIsNamed) {
  const absl::Status not_linked = CatchStatus([] {
    GetDeviceProvider({DeviceType::kCuda, 1}, "workspace [w]");
  });
  EXPECT_EQ(not_linked.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(not_linked.message()),
              HasSubstr("workspace [w]: no memory provider is linked for cuda:1"));
  EXPECT_THAT(std::string(not_linked.message()),
              HasSubstr("add the target of the cuda backend that registers one"));
  const absl::Status no_device = CatchStatus([] {
    GetDeviceProvider({DeviceType::Named("simulated"), 9}, "workspace [w]");
  });
  EXPECT_EQ(no_device.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(no_device.message()), HasSubstr("there is no device simulated:9"));
}

TEST(DeviceProviderDeathTest, ASecondProviderOfATypeEndsTheProgram) {
  auto none = [](uint8_t) -> DeviceProvider* { return nullptr; };
  EXPECT_DEATH(DeviceProviderRegistrar(DeviceType::Named("simulated"), none), "simulated devices");
  EXPECT_DEATH(DeviceProviderRegistrar(DeviceType::kHost, none), "host devices");
  EXPECT_DEATH(DeviceProviderRegistrar(DeviceType::Named("factoryless"), nullptr),
               "null as the factory of factoryless devices");
  for (const uint8_t number : {uint8_t{15}, uint8_t{200}}) {
    EXPECT_DEATH(DeviceProviderRegistrar(std::bit_cast<DeviceType>(number), none),
                 "is for device type " + std::to_string(number));
  }
}

TEST(DeviceProvider, BytesAreCopiedBetweenAnyTwoDevices) {
  constexpr size_t kBytes = (size_t{1} << 20) * 2 + 12345;  // several pieces of staging
  std::vector<std::byte> source(kBytes), result(kBytes);
  for (size_t i = 0; i < kBytes; ++i) source[i] = static_cast<std::byte>(i * 7 + i / 251);
  DeviceProvider& first = GetDeviceProvider(kFirst, "test");
  DeviceProvider& second = GetDeviceProvider(kSecond, "test");
  std::byte* const a = first.Allocate(kBytes, 256);
  std::byte* const b = first.Allocate(kBytes, 256);
  std::byte* const c = second.Allocate(kBytes, 256);
  CopyBytes(kFirst, a, Host(), source.data(), kBytes);
  CopyBytes(kFirst, b, kFirst, a, kBytes);
  CopyBytes(kSecond, c, kFirst, b, kBytes);
  CopyBytes(Host(), result.data(), kSecond, c, kBytes);
  EXPECT_EQ(std::memcmp(source.data(), result.data(), kBytes), 0);
  std::vector<std::byte> again(kBytes);
  CopyBytes(Host(), again.data(), Host(), result.data(), kBytes);
  EXPECT_EQ(std::memcmp(source.data(), again.data(), kBytes), 0);
  first.Release(a, kBytes);
  first.Release(b, kBytes);
  second.Release(c, kBytes);
}

TEST(DeviceProvider, TheHostServesRangesAndBlocks) {
  DeviceProvider& host = HostProvider();
  EXPECT_TRUE(host.traits().host_readable);
  std::byte* const base = host.Reserve(8 << 20);
  ASSERT_NE(base, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(base) % kMaxAlignment, 0);
  ASSERT_TRUE(host.Commit(base, 4 << 20, true));
  host.Fill(base, std::byte{5}, 4 << 20);
  host.Prefault(base, 4 << 20);  // contents stay
  EXPECT_EQ(base[(4 << 20) - 1], std::byte{5});
  ASSERT_TRUE(host.Decommit(base, 2 << 20));
  ASSERT_TRUE(host.Commit(base, 2 << 20, false));
  EXPECT_EQ(base[0], std::byte{0});
  host.Unreserve(base, 8 << 20);
  EXPECT_EQ(host.Reserve(size_t{1} << 60), nullptr);
  EXPECT_EQ(host.Reserve(SIZE_MAX), nullptr);
  EXPECT_EQ(host.Allocate(SIZE_MAX, 64), nullptr);
#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)  // whose malloc ends the process
  EXPECT_EQ(host.Allocate(size_t{1} << 60, 64), nullptr);
#endif
  std::byte* const block = host.Allocate(100, 4096);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 4096, 0);
  host.Fill(block, std::byte{1}, 100 + kReadableTailBytes);
  host.Release(block, 100);
}

// The simulated device's memory by other traits.
class WithTraits : public DeviceProvider {
 public:
  explicit WithTraits(MemoryTraits traits) : traits_(traits) {}
  std::string name() const override { return "odd:0"; }
  Device device() const override { return {DeviceType::Named("odd"), 0}; }
  MemoryTraits traits() const override { return traits_; }
  std::byte* Reserve(size_t) noexcept override { return nullptr; }
  void Unreserve(std::byte*, size_t) noexcept override {}
  bool Commit(std::byte*, size_t, bool) noexcept override { return false; }
  bool Decommit(std::byte*, size_t) noexcept override { return false; }
  std::byte* Allocate(size_t, size_t) noexcept override { return nullptr; }
  void Release(std::byte*, size_t) noexcept override {}
  void CopyFromHost(std::byte*, const std::byte*, size_t) override {}
  void CopyToHost(std::byte*, const std::byte*, size_t) override {}
  void CopyOnDevice(std::byte*, const std::byte*, size_t) override {}
  void Fill(std::byte*, std::byte, size_t) override {}

 private:
  const MemoryTraits traits_;
};

class OfDevice final : public WithTraits {
 public:
  explicit OfDevice(Device device) : WithTraits({}), device_(device) {}
  std::string name() const override { return "one of " + DeviceName(device_); }
  Device device() const override { return device_; }

 private:
  const Device device_;
};

MemoryTraits odd_traits;

TEST(DeviceProvider, TraitsThatCannotBeAreRefused) {
  const DeviceProviderRegistrar registrar(DeviceType::Named("odd"), [](uint8_t) -> DeviceProvider* {
    static std::vector<std::unique_ptr<WithTraits>> made;
    return made.emplace_back(std::make_unique<WithTraits>(odd_traits)).get();
  });
  const Device odd{DeviceType::Named("odd"), 0};
  const MemoryTraits good = {
      .alignment = 64, .granularity = 4096, .large_granularity = 8192, .reserve_bytes = 1 << 20};
  const auto refused = [&](size_t MemoryTraits::*field, size_t value) {
    odd_traits = good;
    odd_traits.*field = value;
    const absl::Status status = CatchStatus([&] { FindDeviceProvider(odd); });
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << value;
    return std::string(status.message());
  };
  EXPECT_THAT(refused(&MemoryTraits::alignment, 0),
              HasSubstr("traits of the memory provider of odd:0: found alignment 0, expected a "
                        "power of two up to 2097152"));
  EXPECT_THAT(refused(&MemoryTraits::alignment, 3), HasSubstr("found alignment 3"));
  EXPECT_THAT(refused(&MemoryTraits::alignment, 4 << 20), HasSubstr("found alignment 4194304"));
  EXPECT_THAT(refused(&MemoryTraits::granularity, 0),
              HasSubstr("provider of odd:0: found granularity 0, expected a power of two up to "));
  EXPECT_THAT(refused(&MemoryTraits::granularity, 1000), HasSubstr("found granularity 1000"));
  EXPECT_THAT(refused(&MemoryTraits::granularity, SIZE_MAX / 2 + 1),
              HasSubstr("found granularity"));
  EXPECT_THAT(
      refused(&MemoryTraits::large_granularity, 5000),
      HasSubstr("found large_granularity 5000, expected 0 or a power of two from 4096 to "));
  EXPECT_THAT(refused(&MemoryTraits::large_granularity, 2048),
              HasSubstr("found large_granularity 2048"));
  EXPECT_THAT(
      refused(&MemoryTraits::reserve_bytes, SIZE_MAX),
      HasSubstr("found reserve_bytes 18446744073709551615, expected at most 4611686018427387903"));
  // It was not taken; one that can be is.
  odd_traits = good;
  ASSERT_NE(FindDeviceProvider(odd), nullptr);
  EXPECT_EQ(FindDeviceProvider(odd)->traits().granularity, 4096u);
}

// A factory that does not look at the index, and one of another type's.
TEST(DeviceProvider, ProvidersOfOtherDevicesAreRefusedAndTheFactoryIsAskedAgain) {
  static DeviceProvider* given;
  static int asked;
  static bool throws;
  const DeviceType type = DeviceType::Named("strange");
  const DeviceProviderRegistrar registrar(type, [](uint8_t) {
    ++asked;
    if (throws) throw std::runtime_error("not now");
    return given;
  });
  static OfDevice first({type, 0}), second({type, 1}), none({type, 200}), of_host(Host()),
      of_another(kFirst);
  for (DeviceProvider* const wrong : {&first, &none, &of_host, &of_another}) {
    given = wrong;
    for (const bool gets : {false, true}) {
      const int before = asked;
      const absl::Status status = CatchStatus([&] {
        gets ? void(GetDeviceProvider({type, 1}, "test")) : void(FindDeviceProvider({type, 1}));
      });
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(
          std::string(status.message()),
          HasSubstr("memory provider of strange:1: found one of " + DeviceName(wrong->device()) +
                    " (\"" + wrong->name() + "\"), expected one whose device() is strange:1"));
      EXPECT_EQ(asked, before + 1);
    }
  }
  throws = true;
  for (int i = 0; i < 2; ++i) EXPECT_THROW(FindDeviceProvider({type, 1}), std::runtime_error);
  throws = false;
  given = &second;
  EXPECT_EQ(FindDeviceProvider({type, 1}), &second);
  EXPECT_EQ(FindDeviceProvider({type, 1}), &second);
  EXPECT_EQ(asked, 11);
  // One that is not there is asked for again when devices may have come.
  given = nullptr;
  for (int i = 0; i < 2; ++i) EXPECT_EQ(FindDeviceProvider({type, 0}), nullptr);
  EXPECT_EQ(asked, 12);
  given = &first;
  LookForDevicesAgain();
  EXPECT_EQ(FindDeviceProvider({type, 0}), &first);
}

const DeviceType kLooking = DeviceType::Named("looking");
std::vector<DeviceProvider*> looked_up;

// They share what they share, as devices of one driver do.
TEST(DeviceProvider, AFactoryFindsOtherDevices) {
  const DeviceProviderRegistrar registrar(kLooking, [](uint8_t index) -> DeviceProvider* {
    if (index > 2) return nullptr;
    const auto look = [](Device device) { looked_up.push_back(FindDeviceProvider(device)); };
    if (index == 2) throw std::runtime_error("the driver is out");
    if (index == 1) {
      look({kLooking, 1});  // which is being made, by this one
      look({kLooking, 0});  // by the one that looked this one up
      look({kLooking, 3});
      LookForDevicesAgain();
      EXPECT_THROW(look({kLooking, 2}), std::runtime_error);
      look(kSecond);
    } else {
      look({kLooking, 1});
      look({kLooking, 1});
    }
    static OfDevice made[] = {OfDevice({kLooking, 0}), OfDevice({kLooking, 1})};
    return &made[index];
  });
  DeviceProvider* const first = FindDeviceProvider({kLooking, 0});
  DeviceProvider* const second = FindDeviceProvider({kLooking, 1});
  ASSERT_NE(first, nullptr);
  EXPECT_THAT(looked_up,
              ElementsAre(nullptr, nullptr, nullptr, &SimulatedDevice::Get(1), second, second));
  EXPECT_EQ(FindDeviceProvider({kLooking, 0}), first);
  EXPECT_EQ(FindDeviceProvider({kLooking, 1}), second);
  // Other threads find them too: nothing stays locked, whatever a factory threw.
  EXPECT_THROW(FindDeviceProvider({kLooking, 2}), std::runtime_error);
  std::thread([&] {
    EXPECT_EQ(FindDeviceProvider({kLooking, 0}), first);
    EXPECT_EQ(FindDeviceProvider({kLooking, 3}), nullptr);
    EXPECT_EQ(looked_up.size(), 6u);
  }).join();
}

// What one factory did not find because another was at it was not said to be missing for good.
TEST(DeviceProvider, AFactoryThatMetADeviceBeingMadeIsAskedAgain) {
  static const DeviceType type = DeviceType::Named("entangled");
  static int asked[3];
  const DeviceProviderRegistrar registrar(type, [](uint8_t index) -> DeviceProvider* {
    static OfDevice made[] = {OfDevice({type, 0}), OfDevice({type, 1}), OfDevice({type, 2})};
    if (index > 2) return nullptr;
    ++asked[index];
    if (index == 0) {
      EXPECT_EQ(FindDeviceProvider({type, 1}), nullptr);
    }
    if (index == 1 && FindDeviceProvider({type, 2}) == nullptr) return nullptr;
    if (index == 2 && FindDeviceProvider({type, 0}) == nullptr) return nullptr;
    return &made[index];
  });
  EXPECT_NE(FindDeviceProvider({type, 0}), nullptr);
  EXPECT_NE(FindDeviceProvider({type, 1}), nullptr);
  EXPECT_NE(FindDeviceProvider({type, 2}), nullptr);
  EXPECT_THAT(asked, ElementsAre(1, 2, 2));
}

TEST(DeviceLoss, OfDevicesThatThereCannotBeIsNone) {
  // What a number too large would meet in tables by device.
  const Device next{DeviceType::Numbered(kFirst.type.number() + 1), 0};
  NoteOperation(next, 0, "next");
  for (const int index : {16, 17, 255}) {
    const Device none{kFirst.type, static_cast<uint8_t>(index)};
    EXPECT_FALSE(LoseDevice(none, "test"));
    EXPECT_FALSE(IsLost(none));
    EXPECT_NO_THROW(CheckNotLost(none, "test"));
    NoteOperation(none, 0, "none");
    EXPECT_EQ(LastOperation(none, 0), nullptr);
    EXPECT_FALSE(DeviceLostError(none, "test").is_first());
    ForgetLossForTesting(none);
    const auto expect_refused = [&](const std::function<void()>& call) {
      const absl::Status refused = CatchStatus(call);
      EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(refused.message()),
                  HasSubstr("found device simulated:" + std::to_string(index)));
    };
    expect_refused([&] { ThrowLost(none, "test"); });
    expect_refused([&] { CauseOfLoss(none); });
  }
  EXPECT_FALSE(IsLost(next));
  EXPECT_STREQ(LastOperation(next, 0), "next");
  NoteOperation(next, kMostQueues, "beside");
  NoteOperation(next, -1, "beside");
  EXPECT_EQ(LastOperation(next, kMostQueues), nullptr);
  EXPECT_EQ(LastOperation(next, -1), nullptr);
  EXPECT_EQ(LastOperation({next.type, 1}, 0), nullptr);
  // Two hosts there are not.
  EXPECT_FALSE(LoseDevice({DeviceType::kHost, 1}, "test"));
  EXPECT_FALSE(IsLost({DeviceType::kHost, 1}));
  // Nor is anything lost of the last one that there may be.
  const Device last{kFirst.type, kMaxDevicesPerType - 1};
  EXPECT_TRUE(LoseDevice(last, "test"));
  EXPECT_TRUE(IsLost(last));
  EXPECT_FALSE(IsLost(next));
  ForgetLossForTesting(last);
  EXPECT_FALSE(IsLost(last));
}

int factory_calls = 0;

// A driver that has no such device may take long to say so. Last: it registers a type for good.
TEST(DeviceProvider, AFactoryIsAskedOnceAlsoWhenThereIsNoSuchDevice) {
  const DeviceProviderRegistrar registrar(DeviceType::kCuda, [](uint8_t) -> DeviceProvider* {
    ++factory_calls;
    return nullptr;
  });
  constexpr Device kNone{DeviceType::kCuda, 3};
  for (int i = 0; i < 5; ++i) EXPECT_EQ(FindDeviceProvider(kNone), nullptr);
  EXPECT_EQ(CatchStatus([&] { GetDeviceProvider(kNone, "test"); }).code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(factory_calls, 1);
  EXPECT_EQ(FindDeviceProvider({DeviceType::kCuda, 4}), nullptr);
  EXPECT_EQ(factory_calls, 2);
  // A test may put one in its place, and take it away again.
  EXPECT_EQ(SwapDeviceProviderForTesting(kNone, &HostProvider()), nullptr);
  EXPECT_EQ(FindDeviceProvider(kNone), &HostProvider());
  SwapDeviceProviderForTesting(kNone, nullptr);
  EXPECT_EQ(FindDeviceProvider(kNone), nullptr);
  EXPECT_EQ(factory_calls, 2);
}

}  // namespace
}  // namespace tidepool
