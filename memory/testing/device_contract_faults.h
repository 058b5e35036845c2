// Providers that break the contract of a device's memory, for the tests that the suite finds them: a wrapper
// around the simulated device, of which a test replaces a part.
#ifndef TIDEPOOL_MEMORY_TESTING_DEVICE_CONTRACT_FAULTS_H_
#define TIDEPOOL_MEMORY_TESTING_DEVICE_CONTRACT_FAULTS_H_

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/memory/testing/device_contract_suite.h"
#include "tidepool/memory/testing/simulated_device.h"

namespace tidepool {

inline constexpr size_t kCapacity = size_t{64} << 20;

inline void QueueFillIn(int queue, std::byte* to, std::byte value, size_t bytes) {
  SimulatedDevice& device = SimulatedDevice::Get();
  std::byte* const hidden = device.Hidden(to, bytes);
  device.QueueKernel(
      {{to, to + bytes}}, [=] { std::memset(hidden, static_cast<int>(value), bytes); }, queue);
}
inline void QueueFill(std::byte* to, std::byte value, size_t bytes) {
  QueueFillIn(0, to, value, bytes);
}

inline void Begin() {
  SimulatedDevice::Get().Reset();
  SimulatedDevice::Get(1).Reset();
  SimulatedDevice::Get(1).set_asynchronous(2);
  SimulatedDevice::set_has_peers(true);
  SimulatedDevice::Get().set_capacity(kCapacity);
}
inline void End() {  // which finds what is left
  SimulatedDevice::Get().Reset();
  SimulatedDevice::Get(1).Reset();
}

inline DeviceContract Simulated(const char* name, void (*before)()) {
  return {.device = SimulatedDevice::kDevice,
          .name = name,
          .capacity_bytes = kCapacity,
          .queue_fill = &QueueFill,
          .queue_fill_in = &QueueFillIn,
          .peer = SimulatedDevice::Get(1).device(),
          .before = before,
          .after = &End};
}

// A provider in the place of the simulated device's, which passes everything on.
class Wrapper : public DeviceProvider {
 public:
  Wrapper() { SwapDeviceProviderForTesting(SimulatedDevice::kDevice, this); }
  ~Wrapper() { SwapDeviceProviderForTesting(SimulatedDevice::kDevice, &base()); }

  static SimulatedDevice& base() { return SimulatedDevice::Get(); }
  std::string name() const override { return base().name(); }
  Device device() const override { return base().device(); }
  MemoryTraits traits() const override { return base().traits(); }
  std::byte* Reserve(size_t bytes) noexcept override { return base().Reserve(bytes); }
  void Unreserve(std::byte* at, size_t bytes) noexcept override { base().Unreserve(at, bytes); }
  bool Commit(std::byte* at, size_t bytes, bool large_pages) noexcept override {
    return base().Commit(at, bytes, large_pages);
  }
  bool Decommit(std::byte* at, size_t bytes) noexcept override {
    return base().Decommit(at, bytes);
  }
  std::byte* Allocate(size_t bytes, size_t alignment) noexcept override {
    return base().Allocate(bytes, alignment);
  }
  void Release(std::byte* data, size_t bytes) noexcept override { base().Release(data, bytes); }
  void CopyFromHost(std::byte* to, const std::byte* from, size_t bytes) override {
    base().CopyFromHost(to, from, bytes);
  }
  void CopyToHost(std::byte* to, const std::byte* from, size_t bytes) override {
    base().CopyToHost(to, from, bytes);
  }
  void CopyOnDevice(std::byte* to, const std::byte* from, size_t bytes) override {
    base().CopyOnDevice(to, from, bytes);
  }
  void Fill(std::byte* to, std::byte value, size_t bytes) override {
    base().Fill(to, value, bytes);
  }
  QueuePoint QueueCopyFromHost(std::byte* to, const std::byte* from, size_t bytes,
                               QueuePoint after) override {
    return base().QueueCopyFromHost(to, from, bytes, after);
  }
  QueuePoint QueueCopyToHost(std::byte* to, const std::byte* from, size_t bytes,
                             QueuePoint after) override {
    return base().QueueCopyToHost(to, from, bytes, after);
  }
  QueuePoint ComputePoint(int queue) override { return base().ComputePoint(queue); }
  void ComputeAfter(int queue, QueuePoint point) override { base().ComputeAfter(queue, point); }
  void Prefault(std::byte* at, size_t bytes) noexcept override { base().Prefault(at, bytes); }
  void OpenQueue(int queue, void* native) override { base().OpenQueue(queue, native); }
  void CloseQueue(int queue) noexcept override { base().CloseQueue(queue); }
  void* NativeQueue(int queue) override { return base().NativeQueue(queue); }
  QueuePoint EarlierUses(const std::byte* data, size_t bytes) override {
    return base().EarlierUses(data, bytes);
  }
  bool NoteUsers(const std::byte* data, uint32_t queues) noexcept override {
    return base().NoteUsers(data, queues);
  }
  void ThrowIfLost(const std::string& who) override { base().ThrowIfLost(who); }
  bool HasPassed(QueuePoint point) override { return base().HasPassed(point); }
  void WaitFor(QueuePoint point) override { base().WaitFor(point); }
  DeviceProvider* PinnedHost() override { return base().PinnedHost(); }
};

// The names of the checks that find something.
inline std::set<std::string> Failing(const std::vector<std::string>& checks) {
  std::set<std::string> failing;
  for (const std::string& check : checks) {
    for (const std::string& problem : DeviceProblems(Simulated("", nullptr), check)) {
      if (failing.insert(check).second) std::printf("%s: %s\n", check.c_str(), problem.c_str());
    }
  }
  return failing;
}

class DeviceContractSuite : public testing::Test {
 protected:
  void SetUp() override {
    Begin();
    Wrapper::base().set_asynchronous(1);
  }
  void TearDown() override { End(); }
};

// Of providers that race with themselves.
class DeviceContractOrder : public DeviceContractSuite {
 protected:
  void SetUp() override {
    DeviceContractSuite::SetUp();
    // The suite is to find it, from what it sees.
    SimulatedDevice::Get().set_checks_order(false);
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the provider races, as the test wants";
#endif
  }
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_TESTING_DEVICE_CONTRACT_FAULTS_H_
