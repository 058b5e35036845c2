// Rings on a device whose memory the host cannot touch.
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_queue.h"
#include "tidepool/memory/queue_use.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/memory/testing/test_device.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/ring.h"
#include "tidepool/memory/workspace/ring_channel.h"

namespace tidepool {
namespace {

const Device kDevice = SimulatedDevice::kDevice;

struct Batch {
  SlotLease lease;  // first: it goes last
  std::vector<BufferHandle> arrays;
};

size_t SizeOf(int array) { return 1000 + 300 * static_cast<size_t>(array); }

Batch Make(RingWorkspace& ring, unsigned char value, int arrays = 6) {
  RingSlotScope slot(ring);
  Batch batch;
  for (int i = 0; i < arrays; ++i) {
    BufferHandle buffer(AllocateHere(SizeOf(i)));
    FillBuffer(*buffer.get(), static_cast<unsigned char>(value + i));
    if (i % 3 != 2) batch.arrays.push_back(std::move(buffer));  // every third was scratch
  }
  batch.lease = slot.Commit();
  return batch;
}

bool Holds(const Batch& batch, unsigned char value) {
  int i = 0;
  for (const BufferHandle& array : batch.arrays) {
    if (i % 3 == 2) ++i;
    if (!array->IsAlive() || array->device != kDevice) return false;
    if (!BufferHolds(*array.get(), static_cast<unsigned char>(value + i))) return false;
    ++i;
  }
  return true;
}

class RingDevice : public testing::Test {
 protected:
  void SetUp() override { device_.Reset(); }
  void TearDown() override { device_.Reset(); }  // dies when something was not given back
  SimulatedDevice& device_ = SimulatedDevice::Get();
};

TEST_F(RingDevice, BatchesCrossThreadsAndTheDeviceIsAskedForNothingOnceTheyAreLearned) {
  constexpr int kBatches = 300;
  RingWorkspace ring("ring", WorkspaceConfig::Ring(3), kDevice);
  // A slot takes what was learned when it is opened: each of the three has had a batch.
  for (int round = 0; round < 4; ++round) {
    const Batch first = Make(ring, 0), second = Make(ring, 0), third = Make(ring, 0);
  }
  RingChannel<Batch> channel(ring);
  SimulatedDevice::Counters learned;
  std::jthread producer([&] {
    for (int i = 0; i < kBatches; ++i) {
      if (i == 20) learned = device_.counters();
      Batch batch = Make(ring, static_cast<unsigned char>(i));
      SlotLease lease = std::move(batch.lease);
      if (!channel.Push(std::move(lease), std::move(batch))) return;
    }
    channel.Close();
  });
  int popped = 0;
  while (std::optional<RingChannel<Batch>::Item> item = channel.Pop()) {
    ASSERT_TRUE(Holds(item->value, static_cast<unsigned char>(popped))) << popped;
    ++popped;
  }
  producer.join();
  EXPECT_EQ(popped, kBatches);
  const SimulatedDevice::Counters after = device_.counters();
  EXPECT_EQ(after.commits, learned.commits);
  EXPECT_EQ(after.blocks, learned.blocks);
  EXPECT_EQ(after.decommits + after.releases, learned.decommits + learned.releases);
  EXPECT_EQ(ring.stats().misses, 0u);
}

TEST_F(RingDevice, TheLedgerCountsSlotsOnTheDevice) {
  const auto used = [] {
    return MemoryTracker::Global().CurrentBytes(kDevice, MemoryKind::kAllocated);
  };
  RingWorkspace ring("ring", WorkspaceConfig::Ring(2), kDevice);
  for (int i = 0; i < 4; ++i) Make(ring, 1);
  const int64_t before = used();
  {
    const Batch batch = Make(ring, 1);
    int64_t bytes = 0;
    for (const BufferHandle& array : batch.arrays) {
      bytes += static_cast<int64_t>((array->bytes + SimulatedDevice::kAlignment - 1) /
                                    SimulatedDevice::kAlignment * SimulatedDevice::kAlignment);
    }
    EXPECT_EQ(used() - before, bytes);
    EXPECT_GE(device_.used_bytes(), static_cast<size_t>(bytes));
  }
  EXPECT_EQ(used(), before);
  ring.Destroy();
  EXPECT_EQ(device_.used_bytes(), 0u);
}

TEST_F(RingDevice, ARefusedRequestLosesThatBatchOnly) {
  int64_t faults = 0;
  for (int64_t n = 0;; ++n) {
    device_.Reset();
    RingWorkspace ring("ring", WorkspaceConfig::Ring(2), kDevice);
    device_.faults().FailRequest(n);
    int made = 0;
    for (int i = 0; i < 6; ++i) {
      try {
        const Batch batch = Make(ring, static_cast<unsigned char>(i));
        ASSERT_TRUE(Holds(batch, static_cast<unsigned char>(i)));
        ++made;
      } catch (const Error&) {
        ASSERT_EQ(CurrentPlace(), nullptr);
      }
    }
    const bool happened = device_.faults().failed() > 0;
    device_.faults().Clear();
    ASSERT_GE(made, 5) << "request " << n;
    const Batch next = Make(ring, 9);
    ASSERT_TRUE(Holds(next, 9));
    if (!happened) break;
    ++faults;
  }
  EXPECT_GT(faults, 3);
}

TEST_F(RingDevice, AFullDeviceEndsTheBatchWithTheLedger) {
  device_.set_capacity(256 << 10);
  RingWorkspace ring("ring", WorkspaceConfig::Ring(2), kDevice);
  try {
    RingSlotScope slot(ring);
    BufferHandle large(AllocateHere(1 << 20));
    FAIL();
  } catch (const OutOfMemoryError& error) {
    EXPECT_NE(error.report().find("simulated:0"), std::string::npos) << error.report();
  }
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Holds(Make(ring, 3), 3));
}

// What a stream of the caller's was given to do for a batch is not theirs to keep it for: neither
// the batch nor its lease, nor the slot's next one, comes to the stream again.
TEST_F(RingDevice, AnAdoptedQueueIsTheCallersAgainWhileItsBatchIsLeased) {
  constexpr size_t kBytes = 5000;
  const auto fill = [&](Buffer* buffer, int value, int queue) {
    std::byte* const hidden = device_.Hidden(buffer->data, kBytes);
    const OrderedUses ordered(kDevice, queue, {{buffer, true}});
    device_.QueueKernel(
        {{buffer->data, buffer->data + kBytes, true}}, [=] { std::memset(hidden, value, kBytes); },
        queue);
  };
  for (uint64_t seed = 0; seed < 20; ++seed) {
    device_.set_asynchronous(seed);
    {
      RingWorkspace ring("ring", WorkspaceConfig::Ring(2), kDevice);
      for (int round = 0; round < 6; ++round) {
        SlotLease lease;
        BufferHandle array;
        auto theirs = std::make_unique<int>(round);
        {
          const QueueScope scope(DeviceQueue::Adopt(kDevice, theirs.get()));
          RingSlotScope slot(ring);
          array = BufferHandle(AllocateHere(kBytes));
          fill(array.get(), 7, QueueHere(kDevice));
          lease = slot.Commit();
          EXPECT_EQ(device_.NativeQueue(1), theirs.get());
        }
        EXPECT_EQ(OpenQueues(kDevice), 1u) << "no handle is left";
        theirs.reset();
        // Somebody else's may have the number then.
        std::optional<DeviceQueue> other;
        if (round % 2 != 0) other = DeviceQueue::New(kDevice);
        const int queue = other ? other->number() : 0;
        fill(array.get(), 8 + round, queue);
        EXPECT_TRUE(BufferHolds(*array.get(), static_cast<unsigned char>(8 + round)));
        fill(array.get(), 20, queue);
        array = BufferHandle();
        lease = SlotLease();
        other.reset();
        EXPECT_EQ(OpenQueues(kDevice), 1u);
      }
    }
    device_.Reset();
  }
}

// The cycle that is open in it holds it until it ends.
TEST_F(RingDevice, AnAdoptedQueueIsOpenAsLongAsItsCycle) {
  RingWorkspace ring("ring", WorkspaceConfig::Ring(2), kDevice);
  std::optional<RingSlotScope> slot;
  int theirs;
  {
    const QueueScope scope(DeviceQueue::Adopt(kDevice, &theirs));
    slot.emplace(ring);
  }
  EXPECT_EQ(OpenQueues(kDevice), 3u);
  slot.reset();
  EXPECT_EQ(OpenQueues(kDevice), 1u);
}

}  // namespace
}  // namespace tidepool
