// Arrays in several compute queues of a device whose work is delayed and reordered: bytes are those of a model
// on the host, and work that would disturb other work ends the test, with nobody having ordered a queue.
// TIDEPOOL_MODEL_SEED and TIDEPOOL_MODEL_OPERATIONS set another run.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/mirroring/buffer_mirror.h"
#include "tidepool/memory/provider/device_queue.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/memory/workspace/ring.h"
#include "tidepool/memory/workspace/workspace_pool.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ops/elementwise.h"

namespace tidepool {
namespace {

const Device kDevice = SimulatedDevice::kDevice;
constexpr int kQueues = 4;

int64_t FromEnvironment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoll(text) : otherwise;
}

std::vector<DeviceQueue> MakeQueues() {
  std::vector<DeviceQueue> queues = {DeviceQueue::First(kDevice)};
  while (queues.size() < kQueues) queues.push_back(DeviceQueue::New(kDevice));
  return queues;
}

class QueuesTest : public testing::Test {
 protected:
  void SetUp() override { SimulatedDevice::Get().Reset(); }
  void TearDown() override { SimulatedDevice::Get().Reset(); }
};

// Random operators of random queues, in cycles of two workspaces and on the heap.
class Model {
 public:
  explicit Model(uint64_t seed) : random_(seed) {
    SimulatedDevice::Get().set_has_pinned_host(seed % 2 == 0);
    if (seed % 3 != 0) SimulatedDevice::Get().set_keeps_blocks(size_t{1} << 20);
    SimulatedDevice::Get().set_asynchronous(seed);
  }

  void Run(int64_t operations) {
    for (int64_t done = 0; done < operations && !testing::Test::HasFailure();) {
      // Each cycle in a queue of its own, and whatever queue its memory was used in before.
      const QueueScope queue(AnyQueue());
      std::optional<WorkspaceScope> scope;
      const uint64_t where = random_() % 5;
      if (where < 4) scope.emplace(workspaces_[where % 2]);
      std::vector<Kept> arrays(kArrays);
      for (Kept& kept : arrays) Renew(kept);
      for (int64_t n = random_() % 60; n > 0; --n, ++done) Step(arrays);
      // What is on the heap lives on.
      if (random_() % 2 == 0) {
        Kept& kept = arrays[random_() % kArrays];
        heap_.push_back({kept.array.Detach(), kept.values});
      }
      if (heap_.size() > 4)
        heap_.erase(heap_.begin() + static_cast<int64_t>(random_() % heap_.size()));
    }
    for (const Kept& kept : heap_) EXPECT_EQ(kept.array.ToVector<float>(), kept.values);
  }

 private:
  static constexpr int kArrays = 5;
  struct Kept {
    NDArray array;
    std::vector<float> values;
  };

  DeviceQueue& AnyQueue() { return queues_[random_() % kQueues]; }

  void Renew(Kept& kept) {
    const auto value = static_cast<float>(random_() % 100);
    kept.array = Full({kElements[random_() % 3]}, value, DType::kFloat32, AnyPlace());
    kept.values.assign(static_cast<size_t>(kept.array.NumElements()), value);
  }
  Place AnyPlace() { return random_() % 4 == 0 ? Place::On(kDevice) : Place::CurrentOn(kDevice); }

  void Step(std::vector<Kept>& arrays) {
    const QueueScope queue(AnyQueue());
    Kept& kept = arrays[random_() % kArrays];
    Kept& other = !heap_.empty() && random_() % 4 == 0 ? heap_[random_() % heap_.size()]
                                                       : arrays[random_() % kArrays];
    switch (random_() % 10) {
      case 0:
        return Renew(kept);
      case 1: {  // on the host, to the device and back
        float* const bytes = kept.array.mutable_data<float>();
        for (size_t i = 0; i < kept.values.size(); ++i) {
          bytes[i] = kept.values[i] = static_cast<float>(random_() % 100);
        }
        return;
      }
      case 2:
        EXPECT_EQ(kept.array.ToVector<float>(), kept.values);
        return;
      case 3:
        EXPECT_EQ(kept.array.data<float>()[kept.values.size() - 1], kept.values.back());
        return;
      case 4:
        kept = {other.array.Dup(), other.values};
        return;
      case 5:
        kept.array.Close();
        return Renew(kept);
      default:
        break;
    }
    if (kept.values.size() != other.values.size()) return;
    std::vector<float> sum(kept.values.size());
    for (size_t i = 0; i < sum.size(); ++i) {
      sum[i] = kept.values[i] + other.values[i];
      if (sum[i] > 1e6f) return Renew(kept);  // stays a whole number
    }
    if (random_() % 2 == 0) {
      AddInto(kept.array, other.array, kept.array);
      kept.values = sum;
      if (&kept != &other && kept.array.buffer().get() == other.array.buffer().get())
        other.values = sum;
    } else {
      kept = {Add(kept.array, other.array), sum};
    }
  }

  static constexpr int64_t kElements[] = {16, 1000, 5000};
  std::mt19937_64 random_;
  std::vector<DeviceQueue> queues_ = MakeQueues();
  Workspace workspaces_[2] = {Workspace("a", WorkspaceConfig::Training(), kDevice),
                              Workspace("b", WorkspaceConfig::Training(), kDevice)};
  std::vector<Kept> heap_;
};

TEST_F(QueuesTest, RandomOperatorsInRandomQueues) {
  const auto first = static_cast<uint64_t>(FromEnvironment("TIDEPOOL_MODEL_SEED", 1));
  const int64_t operations = FromEnvironment("TIDEPOOL_MODEL_OPERATIONS", 1200);
  for (uint64_t seed = first; seed < first + 6 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    SimulatedDevice::Get().Reset();
    Model(seed).Run(operations);
  }
}

// Memory of a cycle goes to the next one in another queue, whose kernels begin behind those that are under way.
TEST_F(QueuesTest, CyclesOfOneWorkspaceInQueuesInTurns) {
  SimulatedDevice::Get().set_asynchronous(11);
  std::vector<DeviceQueue> queues = MakeQueues();
  Workspace workspace("cycles", WorkspaceConfig::Training(), kDevice);
  std::vector<NDArray> kept;
  for (int cycle = 0; cycle < 40; ++cycle) {
    const QueueScope queue(queues[cycle % kQueues]);
    WorkspaceScope scope(workspace);
    NDArray x = Full({4096}, cycle, DType::kFloat32, Place::CurrentOn(kDevice));
    for (int i = 0; i < 4; ++i) x = Add(x, x);
    kept.push_back(x.Detach());
  }
  EXPECT_EQ(workspace.stats().misses, 0u);
  for (int cycle = 0; cycle < 40; ++cycle) {
    EXPECT_EQ(kept[cycle].ToVector<float>(), std::vector<float>(4096, 16.0f * cycle));
  }
}

// The producer's queue fills slots while the consumer's reads others; a slot is filled anew behind its readers.
TEST_F(QueuesTest, RingsBetweenAProducersAndAConsumersQueue) {
  SimulatedDevice::Get().set_asynchronous(12);
  const DeviceQueue made_in = DeviceQueue::New(kDevice), used_in = DeviceQueue::New(kDevice);
  RingWorkspace ring("ring", WorkspaceConfig::Ring(3), kDevice);
  std::vector<NDArray> sums;
  for (int batch = 0; batch < 60; ++batch) {
    SlotLease lease;
    NDArray made;  // goes before its lease
    {
      const QueueScope queue(made_in);
      RingSlotScope slot(ring);
      NDArray x = Full({3000}, batch, DType::kFloat32, Place::CurrentOn(kDevice));
      x += x;
      NDArray y = Add(x, x);
      y.mutable_data<float>()[7] = -1;  // by way of the host
      made = y;
      x = y = NDArray();
      lease = slot.Commit();
    }
    const QueueScope queue(used_in);
    sums.push_back(Add(made, made));
  }
  for (int batch = 0; batch < 60; ++batch) {
    const std::vector<float> values = sums[batch].ToVector<float>();
    EXPECT_EQ(values[0], 8.0f * batch);
    EXPECT_EQ(values[7], -2.0f);
    EXPECT_EQ(values[2999], 8.0f * batch);
  }
}

// Threads with a queue each, whose cycles take turns with the memory of one pool.
TEST_F(QueuesTest, PoolsOfWorkspacesAcrossQueues) {
  SimulatedDevice::Get().set_asynchronous(13);
  WorkspacePool pool("pool", WorkspaceConfig::Inference(), kDevice);
  std::vector<std::thread> threads;
  for (int t = 0; t < kQueues; ++t) {
    threads.emplace_back([&, t] {
      const DeviceQueue queue = t == 0 ? DeviceQueue::First(kDevice) : DeviceQueue::New(kDevice);
      const QueueScope in_queue(queue);
      std::mt19937 random(static_cast<uint32_t>(t));
      for (int cycle = 0; cycle < 80; ++cycle) {
        const int64_t elements = 500 << random() % 4;
        NDArray kept;
        {
          PooledScope scope(pool);
          NDArray x = Full({elements}, cycle, DType::kFloat32, Place::CurrentOn(kDevice));
          for (int i = 0; i < 3; ++i) x = Add(x, x);
          kept = x.Detach();
        }
        if (cycle % 8 != 0) continue;
        EXPECT_EQ(kept.ToVector<float>(), std::vector<float>(static_cast<size_t>(elements),
                                                             8.0f * static_cast<float>(cycle)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Arrays of the heap that the host fills, one after the other, while the compute queue is busy: each is on the device
// before the queue gets to what uses it.
TEST_F(QueuesTest, FirstCopiesIntoHeapArraysAreNotBehindTheirQueue) {
  constexpr int kSeeds = 24;
  SimulatedDevice& device = SimulatedDevice::Get();
  for (const int number : {0, 1}) {
    int waited = 0;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      device.Reset();
      device.set_keeps_blocks(size_t{1} << 24);
      device.set_asynchronous(seed);
      const DeviceQueue side = DeviceQueue::New(kDevice);
      std::optional<QueueScope> scope;
      if (number != 0) scope.emplace(side);
      std::atomic<bool> begun = false;
      device.QueueKernel(
          {}, [&] { begun = true; }, QueueHere(kDevice));
      NDArray x(Shape({1000}), DType::kFloat32, Place::On(kDevice));
      x.mutable_data<float>()[999] = 3;
      BufferMirror::Find(*x.buffer().get())->DropHostCopy();  // which waits for the copy
      waited += begun;
      EXPECT_EQ(Add(x, x).At<float>({999}), 6);
    }
    EXPECT_LT(waited, kSeeds * 3 / 4) << "queue " << number;
  }
}

// Weights that two queues read: once each has come behind what wrote them, neither waits for the other.
TEST_F(QueuesTest, ReadersOfOneArrayDoNotWaitForEachOther) {
  SimulatedDevice::Get().set_asynchronous(14);
  std::vector<DeviceQueue> queues = MakeQueues();
  const NDArray weights = Full({100}, 3, DType::kFloat32, Place::On(kDevice));
  SimulatedDevice& device = SimulatedDevice::Get();
  const auto use = [&](int queue) {
    const QueueScope scope(queues[queue]);
    return Add(weights, weights);
  };
  for (int queue = 1; queue < kQueues; ++queue) use(queue);
  const int64_t orders = device.counters().orders;
  std::vector<NDArray> sums;
  for (int i = 0; i < 30; ++i) sums.push_back(use(1 + i % (kQueues - 1)));
  EXPECT_EQ(device.counters().orders, orders);
  for (const NDArray& sum : sums) EXPECT_EQ(sum.ToVector<float>()[99], 6.0f);
}

// Two queues have read an array; the host writes it, one of them brings it to the device.
TEST_F(QueuesTest, WhatOneQueueSendsTheOthersWaitFor) {
  for (uint64_t seed = 20; seed < 30; ++seed) {
    SimulatedDevice::Get().Reset();
    SimulatedDevice::Get().set_asynchronous(seed);
    std::vector<DeviceQueue> queues = MakeQueues();
    NDArray x = Full({1000}, 1, DType::kFloat32, Place::On(kDevice));
    std::vector<NDArray> sums;
    for (int round = 0; round < 5; ++round) {
      x.mutable_data<float>()[999] = static_cast<float>(round);
      for (int queue = 0; queue < kQueues; ++queue) {
        const QueueScope scope(queues[queue]);
        sums.push_back(Add(x, x));
      }
    }
    for (size_t i = 0; i < sums.size(); ++i) {
      EXPECT_EQ(sums[i].ToVector<float>()[999], 2.0f * static_cast<float>(i / kQueues));
    }
  }
}

// y = x by way of scratch memory, in two pieces of work.
size_t ScratchBytes(const KernelCall& call) {
  return static_cast<size_t>(call.inputs[0].NumElements()) * sizeof(float);
}
void ByWayOfScratch(const KernelCall& call) {
  SimulatedDevice& device = SimulatedDevice::Get(call.device.index);
  const size_t bytes = ScratchBytes(call);
  auto* const scratch = static_cast<std::byte*>(call.scratch);
  const std::byte* const x = call.inputs[0].as<std::byte>();
  std::byte* const y = call.outputs[0].as<std::byte>();
  std::byte* const here = device.Hidden(scratch, bytes);
  std::byte* const from = device.Hidden(x, bytes);
  std::byte* const to = device.Hidden(y, bytes);
  device.QueueKernel(
      {{x, x + bytes, false}, {scratch, scratch + bytes, true}},
      [=] { std::copy_n(from, bytes, here); }, call.queue);
  device.QueueKernel(
      {{scratch, scratch + bytes, false}, {y, y + bytes, true}},
      [=] { std::copy_n(here, bytes, to); }, call.queue);
}
const OpCode kByWayOfScratch = AddOperator(
    {.name = "by_way_of_scratch", .inputs = "X", .outputs = "Y", .types = SetOf(DType::kFloat32)});
const KernelRegistrar registrar({{kByWayOfScratch, kDevice.type, DType::kFloat32, "scratch", 1,
                                  &ByWayOfScratch, &ScratchBytes}});

TEST_F(QueuesTest, ScratchOfOneQueueIsUsedAgainInAnother) {
  SimulatedDevice::Get().set_asynchronous(31);
  std::vector<DeviceQueue> queues = MakeQueues();
  const NDArray x = Full({2000}, 5, DType::kFloat32, Place::On(kDevice));
  std::vector<NDArray> copies;
  for (int i = 0; i < 20; ++i) {
    copies.push_back(Full({2000}, 0, DType::kFloat32, Place::On(kDevice)));
  }
  Workspace workspace("scratch", WorkspaceConfig::Training(), kDevice);
  for (int cycle = 0; cycle < 5; ++cycle) {
    WorkspaceScope scope(workspace);
    for (int i = 0; i < 4; ++i) {
      const QueueScope queue(queues[i]);
      Dispatch(kByWayOfScratch, {&x}, {&copies[4 * cycle + i]});
    }
  }
  for (const NDArray& copy : copies) EXPECT_EQ(copy.ToVector<float>(), std::vector<float>(2000, 5));
}

}  // namespace
}  // namespace tidepool
