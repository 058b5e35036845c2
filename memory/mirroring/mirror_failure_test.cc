// Mirrors of a device whose provider throws something else than an Error, as one does whose books lack memory.
#include <cstring>
#include <functional>
#include <new>
#include <stdexcept>

#include "gtest/gtest.h"
#include "tidepool/memory/device_copy.h"
#include "tidepool/memory/mirroring/buffer_mirror.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/memory/workspace/allocate.h"

namespace tidepool {
namespace {

const Device kDevice = SimulatedDevice::kDevice;
constexpr size_t kBytes = 4096;

// In the simulated device's place. What waits has waited when it throws.
class Throwing final : public DeviceProvider {
 public:
  Throwing() { SwapDeviceProviderForTesting(kDevice, this); }
  ~Throwing() { SwapDeviceProviderForTesting(kDevice, &base()); }
  static SimulatedDevice& base() { return SimulatedDevice::Get(); }

  std::function<void()> at_order = [] {}, at_wait = [] {};

  std::string name() const override { return base().name(); }
  Device device() const override { return base().device(); }
  MemoryTraits traits() const override { return base().traits(); }
  std::byte* Reserve(size_t bytes) noexcept override { return base().Reserve(bytes); }
  void Unreserve(std::byte* at, size_t bytes) noexcept override { base().Unreserve(at, bytes); }
  bool Commit(std::byte* at, size_t bytes, bool large) noexcept override {
    return base().Commit(at, bytes, large);
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
  void ComputeAfter(int queue, QueuePoint point) override {
    at_order();
    base().ComputeAfter(queue, point);
  }
  bool HasPassed(QueuePoint point) override { return base().HasPassed(point); }
  void WaitFor(QueuePoint point) override {
    base().WaitFor(point);
    at_wait();
  }
};

const std::function<void()> kThrows[] = {[] { throw std::bad_alloc(); },
                                         [] { throw std::runtime_error("mine"); }, [] { throw 7; }};

class MirrorFailure : public testing::Test {
 protected:
  void SetUp() override {
    device_.Reset();
    device_.set_asynchronous(3);
  }
  void TearDown() override { device_.Reset(); }

  BufferHandle NewOnDevice(int value) {
    BufferHandle buffer(NewHeapBuffer(kBytes, 64, MemoryKind::kAllocated, kDevice));
    device_.Fill(buffer->data, static_cast<std::byte>(value), kBytes);
    buffer->version = 1;
    return buffer;
  }
  static void WriteOnHost(const BufferHandle& buffer, int value) {
    std::memset(
        BufferMirror::Of(*buffer.get()).OnHost(MirrorEvent::kHostOverwrite, 0, kBytes, "test"),
        value, kBytes);
  }
  static void PrepareToRead(const BufferHandle& buffer) {
    const BufferMirror::DeviceUse use = {buffer.get(), 0, kBytes, false, "add", "X"};
    BufferMirror::PrepareForDevice(absl::MakeConstSpan(&use, 1));
  }
  // What a kernel sees that is queued now. One beside the copy ends the test.
  int SeenByKernel(const BufferHandle& buffer) {
    std::byte seen{};
    device_.QueueKernel(
        {{buffer->data, buffer->data + kBytes}},
        [&, hidden = device_.Hidden(buffer->data, kBytes)] { seen = hidden[kBytes - 1]; });
    device_.WaitFor(device_.ComputePoint(0));
    return static_cast<int>(seen);
  }

  SimulatedDevice& device_ = SimulatedDevice::Get();
};

TEST_F(MirrorFailure, WhereTheDeviceCannotOrderTheHostWaits) {
  for (const auto& throws : kThrows) {
    Throwing provider;
    const BufferHandle buffer = NewOnDevice(1);
    WriteOnHost(buffer, 7);
    int orders = 0;
    provider.at_order = [&] {
      if (++orders == 1) throws();
    };
    EXPECT_NO_THROW(PrepareToRead(buffer));
    EXPECT_EQ(orders, 1);
    EXPECT_EQ(SeenByKernel(buffer), 7);
  }
}

TEST_F(MirrorFailure, WhereItCannotWaitEitherTheNextCallIsInOrder) {
  for (const auto& throws : kThrows) {
    Throwing provider;
    const BufferHandle buffer = NewOnDevice(1);
    WriteOnHost(buffer, 7);
    provider.at_order = provider.at_wait = throws;
    EXPECT_ANY_THROW(PrepareToRead(buffer));
    provider.at_order = provider.at_wait = [] {};
    EXPECT_NO_THROW(PrepareToRead(buffer));
    EXPECT_EQ(SeenByKernel(buffer), 7);
  }
}

TEST_F(MirrorFailure, ACopyToTheHostThatCannotBeWaitedForIsTheCallersError) {
  for (const auto& throws : kThrows) {
    Throwing provider;
    const BufferHandle buffer = NewOnDevice(5);
    BufferMirror& mirror = BufferMirror::Of(*buffer.get());
    provider.at_wait = throws;
    EXPECT_ANY_THROW(mirror.OnHost(MirrorEvent::kHostRead, 0, kBytes, "test"));
    provider.at_wait = [] {};
    EXPECT_FALSE(mirror.IsFreshOnHost(0, 1));
    EXPECT_EQ(mirror.OnHost(MirrorEvent::kHostRead, 0, kBytes, "test")[9], std::byte{5});
  }
}

TEST_F(MirrorFailure, ABufferGoesWhileItsCopyCannotBeWaitedFor) {
  for (const auto& throws : kThrows) {
    Throwing provider;
    BufferHandle buffer = NewOnDevice(1);
    WriteOnHost(buffer, 7);
    PrepareToRead(buffer);
    provider.at_wait = throws;
    buffer = BufferHandle();
    provider.at_wait = [] {};
    device_.WaitFor(device_.ComputePoint(0));
  }
}

TEST_F(MirrorFailure, ACopyToAPeerThatCannotBeWaitedForIsTheCallersError) {
  SimulatedDevice& other = SimulatedDevice::Get(1);
  for (const auto& throws : kThrows) {
    SimulatedDevice::set_has_peers(true);
    ForgetDeviceCopiesForTesting();
    Throwing provider;
    const BufferHandle source = NewOnDevice(5);
    const BufferHandle target(NewHeapBuffer(kBytes, 64, MemoryKind::kAllocated, other.device()));
    target->version = 1;
    const auto copy = [&] {
      CopyBetweenDevices(*target.get(), target->data, *source.get(), source->data, kBytes);
    };
    provider.at_order = provider.at_wait = throws;
    EXPECT_ANY_THROW(copy());
    provider.at_order = provider.at_wait = [] {};
    EXPECT_NO_THROW(copy());
    other.WaitFor(other.ComputePoint(0));
    EXPECT_EQ(other.Hidden(target->data, kBytes)[9], std::byte{5});
  }
  SimulatedDevice::set_has_peers(false);
  ForgetDeviceCopiesForTesting();
  other.Reset();
}

TEST(PeerCopiesDeathTest, NullIsRefused) {
  EXPECT_DEATH(PeerCopiesRegistrar(kDevice.type, nullptr),
               "the PeerCopies of simulated devices is null");
}

}  // namespace
}  // namespace tidepool
