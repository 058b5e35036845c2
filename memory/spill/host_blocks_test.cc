#include "tidepool/memory/spill/host_blocks.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_queue.h"
#include "tidepool/memory/queue_use.h"
#include "tidepool/memory/spill/tier_counters.h"
#include "tidepool/memory/testing/simulated_device.h"

namespace tidepool {
namespace {

constexpr size_t kBytes = 4096;

// A kernel that writes that byte everywhere, some time.
void Write(Buffer& buffer, uint8_t value) {
  const Device device = buffer.device;
  const OrderedUses ordered(device, QueueHere(device), {{&buffer, true}});
  std::byte* const data = buffer.data;
  const size_t bytes = buffer.bytes;
  SimulatedDevice::Get().QueueKernel(
      {{data, data + bytes, true}},
      [=] { std::memset(SimulatedDevice::Get().Hidden(data, bytes), value, bytes); },
      QueueHere(device));
}

bool Holds(const Buffer& buffer, uint8_t value) {
  std::vector<std::byte> there(buffer.bytes);
  SimulatedDevice::Get().WaitFor(PointAfterUses(buffer));
  SimulatedDevice::Get().CopyToHost(there.data(), buffer.data, buffer.bytes);
  return there == std::vector<std::byte>(buffer.bytes, std::byte{value});
}

BufferHandle OnDevice(size_t bytes = kBytes) {
  return BufferHandle(
      NewHeapBuffer(bytes, kHeapAlignment, MemoryKind::kAllocated, SimulatedDevice::kDevice));
}

DeviceSpillTier OnHost() {
  for (const DeviceSpillTier& tier : SpillTiersByDevice()) {
    if (tier.device == Host()) return tier;
  }
  return {};
}

class HostBlocksTest : public testing::Test {
 protected:
  ~HostBlocksTest() override { SimulatedDevice::Get().Reset(); }
};

// In whatever order the device runs what may be in any; disturbed work ends the test.
TEST_F(HostBlocksTest, BytesComeBackAsTheyWereQueued) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SimulatedDevice::Get().Reset();
    SimulatedDevice::Get().set_has_pinned_host(seed % 2 == 0);
    SimulatedDevice::Get().set_asynchronous(seed);
    {
      HostBlocks blocks;
      for (uint8_t round = 1; round < 5; ++round) {
        blocks.EndRound();
        BufferHandle a = OnDevice(), b = OnDevice();
        Write(*a.get(), round);
        Write(*b.get(), static_cast<uint8_t>(100 + round));
        HostWait of_a(*a.get(), blocks);
        std::optional<HostWait> of_b(std::in_place, *b.get(), blocks);
        of_a.LetGo();
        Write(*a.get(), 77);  // its next user's
        a.Reset();
        if (round == 2) of_b.reset();  // given up
        BufferHandle c = OnDevice();
        Write(*c.get(), 55);
        of_a.BeginBack(*c.get());
        of_a.Arrive();
        EXPECT_TRUE(Holds(*c.get(), round)) << "seed " << seed;
        EXPECT_TRUE(Holds(*b.get(), static_cast<uint8_t>(100 + round))) << "seed " << seed;
      }
      EXPECT_EQ(blocks.bytes(), 2 * kBytes);
    }
    EXPECT_EQ(MemoryBudget::Global().Of(SimulatedDevice::kDevice).taken_bytes, 0);
  }
}

// Each call in one of two queues, and blocks that are used again before earlier uses of them are done.
TEST_F(HostBlocksTest, InAnyQueue) {
  const Device device = SimulatedDevice::kDevice;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SimulatedDevice::Get().Reset();
    SimulatedDevice::Get().set_keeps_blocks(size_t{1} << 20);
    SimulatedDevice::Get().set_asynchronous(seed);
    {
      std::mt19937_64 random(seed);
      const DeviceQueue queues[] = {DeviceQueue::First(device), DeviceQueue::New(device)};
      const auto in_any = [&](const auto& call) {
        const QueueScope scope(queues[random() % 2]);
        return call();
      };
      HostBlocks blocks;
      for (uint8_t round = 1; round < 6; ++round) {
        blocks.EndRound();
        BufferHandle a = in_any([] { return OnDevice(); });
        in_any([&] { Write(*a.get(), round); });
        std::optional<HostWait> wait;
        in_any([&] { wait.emplace(*a.get(), blocks); });
        in_any([&] { wait->LetGo(); });
        in_any([&] { a.Reset(); });
        BufferHandle b = in_any([] { return OnDevice(); });
        if (random() % 2 == 0) in_any([&] { Write(*b.get(), 55); });
        in_any([&] { wait->BeginBack(*b.get()); });
        in_any([&] { wait->Arrive(); });
        if (random() % 2 == 0) in_any([&] { wait.reset(); });
        // Looking waits for everything.
        if (round == 5 || random() % 4 == 0)
          in_any([&] { EXPECT_TRUE(Holds(*b.get(), round)) << "seed " << seed; });
        in_any([&] { b.Reset(); });
      }
    }
    Reclaimer::Global().RunNow();
  }
}

TEST_F(HostBlocksTest, WhatIsNotTakenInARoundGoes) {
  SimulatedDevice::Get().Reset();
  SimulatedDevice::Get().set_has_pinned_host(true);
  const BufferHandle a = OnDevice(), b = OnDevice(2 * kBytes);
  HostBlocks blocks;
  { const HostWait one(*a.get(), blocks), two(*b.get(), blocks); }
  blocks.EndRound();
  EXPECT_EQ(SimulatedDevice::Get().pinned_bytes(), 3 * kBytes);
  { const HostWait one(*a.get(), blocks); }
  blocks.EndRound();
  EXPECT_EQ(blocks.bytes(), kBytes);
  EXPECT_EQ(SimulatedDevice::Get().pinned_bytes(), kBytes);
  blocks.EndRound();
  EXPECT_EQ(SimulatedDevice::Get().pinned_bytes(), 0u);
}

TEST_F(HostBlocksTest, ARefusalLeavesTheBuffer) {
  SimulatedDevice::Get().Reset();
  const BufferHandle a = OnDevice();
  Write(*a.get(), 9);
  HostBlocks blocks;
  MemoryBudget& budget = MemoryBudget::Global();
  budget.SetDeviceLimit(Host(), budget.Of(Host()).taken_bytes + 100);
  EXPECT_THROW(HostWait(*a.get(), blocks), OutOfMemoryError);
  budget.SetDeviceLimit(Host(), MemoryBudget::kUnlimited);
  EXPECT_EQ(blocks.bytes(), 0u);
  {
    HostWait wait(*a.get(), blocks);
    wait.LetGo();
  }
  EXPECT_TRUE(Holds(*a.get(), 9));
}

// Nobody waits for what is queued.
TEST_F(HostBlocksTest, TheyAreCountedInTheHostsTier) {
  SimulatedDevice::Get().Reset();
  constexpr auto kEach = static_cast<int64_t>(kBytes);
  const BufferHandle a = OnDevice(), b = OnDevice();
  HostBlocks blocks;
  const auto waiting = [] { return OnHost().waiting_bytes; };
  const DeviceSpillTier before = OnHost();
  EXPECT_EQ(before.waiting_bytes, 0);
  {
    HostWait one(*a.get(), blocks);
    HostWait other(*b.get(), blocks);
    EXPECT_EQ(waiting(), 2 * kEach);
    one.LetGo();
    const HostWait moved(std::move(other));
    EXPECT_EQ(waiting(), 2 * kEach);
    one.BeginBack(*a.get());
    one.Arrive();
  }
  EXPECT_EQ(waiting(), 0);
  EXPECT_EQ(blocks.bytes(), 2 * kBytes);  // kept, with nothing that waits
  const DeviceSpillTier after = OnHost();
  EXPECT_GE(after.peak_bytes, 2 * kEach);
  EXPECT_EQ(after.counters.came - before.counters.came, 2);
  EXPECT_EQ(after.counters.came_bytes - before.counters.came_bytes, 2 * kEach);
  EXPECT_EQ(after.counters.returned - before.counters.returned, 1);
  EXPECT_EQ(after.counters.returned_bytes - before.counters.returned_bytes, kEach);
  EXPECT_EQ(after.counters.went_on, 0);
  EXPECT_EQ(after.counters.came_nanoseconds + after.counters.returned_nanoseconds, 0);
}

TEST_F(HostBlocksTest, ARefusedWaitIsNotCounted) {
  SimulatedDevice::Get().Reset();
  const BufferHandle a = OnDevice();
  HostBlocks blocks;
  const DeviceSpillTier before = OnHost();
  MemoryBudget& budget = MemoryBudget::Global();
  budget.SetDeviceLimit(Host(), budget.Of(Host()).taken_bytes + 100);
  EXPECT_THROW(HostWait(*a.get(), blocks), OutOfMemoryError);
  budget.SetDeviceLimit(Host(), MemoryBudget::kUnlimited);
  EXPECT_EQ(OnHost().counters.came, before.counters.came);
  EXPECT_EQ(OnHost().waiting_bytes, 0);
}

}  // namespace
}  // namespace tidepool
