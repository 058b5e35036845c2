// Arrays of a device that another library takes over by DLPack, and the reverse: with queued work on both sides
// that is late and reordered, so that work which nobody has ordered ends the test.
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/backends/simulated/dlpack_library.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/ring.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/manager/nd_manager.h"
#include "tidepool/ndarray/ops/elementwise.h"

namespace tidepool {
namespace {

using ::testing::HasSubstr;

const Device kDevice = SimulatedDevice::kDevice;

TEST_F(DLPackOnDeviceTest, WhatIsGivenAwayIsSafeInTheConsumersStreamAndBackAfterItsDeleter) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    TheDevice().set_asynchronous(seed);
    TheDevice().set_has_pinned_host(seed % 2 == 0);
    Stream consumer;
    std::vector<float> seen;
    {
      NDArray x = Add(Full({kElements}, 2, DType::kFloat32, Place::On(kDevice)),
                      Full({kElements}, 1, DType::kFloat32, Place::On(kDevice)));
      DLManagedTensorVersioned* const tensor = ToDLPackVersioned(x, {.stream = consumer.number()});
      EXPECT_EQ(tensor->dl_tensor.device.device_type, kDLExtDev);
      EXPECT_EQ(tensor->flags, 0u);
      consumer.Read(DataOf(tensor), &seen);
      consumer.Add(DataOf(tensor), 10);
      tensor->deleter(tensor);
      EXPECT_EQ(Add(x, x).ToVector<float>(), All(26));
    }
    EXPECT_EQ(seen, All(3));
    TheDevice().Reset();
  }
}

// Readers on both sides do not wait for each other; a read only tensor says so.
TEST_F(DLPackOnDeviceTest, ReadOnlyIsAReadOfTheConsumers) {
  TheDevice().set_asynchronous(4);
  Stream consumer;
  std::vector<float> seen;
  {
    NDArray x = Full({kElements}, 2, DType::kFloat32, Place::On(kDevice));
    DLManagedTensorVersioned* const tensor =
        ToDLPackVersioned(x, {.stream = consumer.number(), .read_only = true});
    EXPECT_EQ(tensor->flags, kDLPackReadOnly);
    consumer.Read(DataOf(tensor), &seen);
    const int64_t orders = TheDevice().counters().orders;
    EXPECT_EQ(Add(x, x).ToVector<float>(), All(4));
    EXPECT_EQ(TheDevice().counters().orders, orders);
    x += 1;  // behind the consumer's reading
    // The consumer was told of the bytes once; what comes after is the program's to order.
    consumer.queue().After(DeviceQueue::First(kDevice));
    consumer.Read(DataOf(tensor), &seen);
    tensor->deleter(tensor);
    x += 1;  // behind that, too
    EXPECT_EQ(x.ToVector<float>(), All(4));
    EXPECT_EQ(seen, All(3));
    EXPECT_THAT(ErrorOf([&] { ToDLPack(x, {.read_only = true}); }).message(),
                HasSubstr("a tensor without a version does not say"));
  }
}

// That the order is seen at all: with -1 nobody has ordered the consumer's work.
TEST_F(DLPackOnDeviceTest, WithoutOrderTheOracleEndsTheTest) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        TheDevice().set_asynchronous(5);
        Stream consumer;
        const DeviceQueue open = consumer.queue();
        NDArray x = Full({kElements}, 2, DType::kFloat32, Place::On(kDevice));
        for (int i = 0; i < 30; ++i) {
          x += 1;
          consumer.Add(DataOf(ToDLPackVersioned(x, {.stream = -1})), 1);
        }
      },
      "neither comes after the other");
}

// Every way in which our side may end while a tensor is out, and every place the deleter is called at.
enum class End { kNone, kHandle, kArray, kManager, kQueue, kDetachedFromCycle, kStreamsOwnHandle };
enum class At { kHere, kOtherThread, kThreadExit, kQueueOfOurs };

struct AtThreadExit {
  ~AtThreadExit() {
    if (run) run();
  }
  std::function<void()> run;
};
thread_local AtThreadExit at_thread_exit;

void RunAt(At at, const std::function<void()>& run) {
  switch (at) {
    case At::kHere:
      return run();
    case At::kOtherThread:
      return std::thread(run).join();
    case At::kThreadExit:
      return std::thread([&] {
               // Made first, so gone last, when what the runtime keeps for threads has gone.
               at_thread_exit.run = run;
               const NDArray used = Full({8}, 1, DType::kFloat32, Place::On(kDevice));
               EXPECT_EQ(Add(used, used).At<float>({7}), 2);
             })
          .join();
    case At::kQueueOfOurs: {
      const QueueScope scope(DeviceQueue::New(kDevice));
      return run();
    }
  }
}

TEST_F(DLPackOnDeviceTest, TheBytesStayUntilTheDeleterHoweverOurSideEnds) {
  uint64_t seed = 0;
  for (const End end : {End::kNone, End::kHandle, End::kArray, End::kManager, End::kQueue,
                        End::kDetachedFromCycle, End::kStreamsOwnHandle}) {
    for (const At at : {At::kHere, At::kOtherThread, At::kThreadExit, At::kQueueOfOurs}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(end) << " " << static_cast<int>(at));
      TheDevice().set_asynchronous(++seed);
      Stream consumer;
      std::vector<float> seen;
      {
        std::optional<DeviceQueue> queue;
        if (end == End::kQueue) queue = DeviceQueue::New(kDevice);
        NDManager manager = NDManager::NewBaseManager(kDevice, "exports");
        NDArray x;
        {
          std::optional<QueueScope> scope;
          if (queue.has_value()) scope.emplace(*queue);
          std::optional<Workspace> workspace;
          if (end == End::kManager) {
            x = manager.Full({kElements}, 7);
          } else if (end == End::kDetachedFromCycle) {
            workspace.emplace("cycle", WorkspaceConfig::Training(), kDevice);
            WorkspaceScope cycle(*workspace);
            x = Full({kElements}, 7, DType::kFloat32, Place::CurrentOn(kDevice)).Detach();
          } else {
            x = Full({kElements}, 7, DType::kFloat32, Place::On(kDevice));
          }
        }  // the cycle and its workspace have ended
        std::optional<DeviceQueue> streams;
        if (end == End::kStreamsOwnHandle) streams = consumer.queue();
        DLManagedTensorVersioned* const tensor =
            ToDLPackVersioned(x, {.stream = consumer.number()});
        consumer.Add(DataOf(tensor), 1);
        switch (end) {
          case End::kHandle:
            x = NDArray();
            break;
          case End::kArray:
            x.Close();
            break;
          case End::kManager:
            manager.Close();
            break;
          case End::kQueue:
            queue.reset();
            break;
          default:
            streams.reset();
            break;
        }
        EXPECT_EQ(x.is_closed(), end == End::kArray || end == End::kManager);
        if (x.is_closed()) {
          EXPECT_THAT(ErrorOf([&] { x.At<float>({0}); }).message(), HasSubstr("closed"));
          x = NDArray();
        }
        // Would have the memory if it had been given back.
        const NDArray other = Full({kElements}, 100, DType::kFloat32, Place::On(kDevice));
        consumer.Add(DataOf(tensor), 1);
        consumer.Read(DataOf(tensor), &seen);
        const size_t used = TheDevice().used_bytes();
        RunAt(at, [tensor] { tensor->deleter(tensor); });
        if (x.is_defined()) {
          EXPECT_EQ(TheDevice().used_bytes(), used);
          EXPECT_EQ(Add(x, other).ToVector<float>(), All(109));
        } else {
          EXPECT_LT(TheDevice().used_bytes(), used);
        }
        TheDevice().WaitFor({});
        EXPECT_EQ(other.ToVector<float>(), All(100));
      }
      EXPECT_EQ(seen, All(9));
      TheDevice().Reset();
    }
  }
}

// Two handles of the same bytes in two queues, by the order of the program.
TEST_F(DLPackOnDeviceTest, OneOfOursThatComesBackIsOrderedWithItsArray) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    TheDevice().set_asynchronous(seed);
    {
      Stream consumer;
      NDArray x = Full({kElements}, 1, DType::kFloat32, Place::On(kDevice));
      const bool has_stream = seed % 2 == 0;
      const std::optional<int64_t> stream =
          has_stream ? std::optional<int64_t>(consumer.number()) : std::nullopt;
      DLManagedTensorVersioned* const tensor = ToDLPackVersioned(x, {.stream = stream});
      if (has_stream) consumer.Add(DataOf(tensor), 3);
      NDArray y = FromDLPack(tensor, stream);
      EXPECT_EQ(y.buffer().get(), x.buffer().get());
      const DeviceQueue side = DeviceQueue::New(kDevice);
      {
        const QueueScope scope(side);
        x += 1;
      }
      const NDArray z = Add(y, y);
      EXPECT_EQ(z.ToVector<float>(), All(has_stream ? 10 : 4));
      {
        const QueueScope scope(side);
        y += 1;
      }
      EXPECT_EQ(x.ToVector<float>(), All(has_stream ? 6 : 3));
    }
    TheDevice().Reset();
  }
}

// Their cycle's end waits for nobody; a copy is the consumer's alone.
TEST_F(DLPackOnDeviceTest, WorkspacesAndRingSlotsGiveAwayCopies) {
  TheDevice().set_asynchronous(6);
  Stream consumer;
  std::vector<float> seen[2];
  {
    std::vector<DLManagedTensorVersioned*> tensors;
    Workspace workspace("step", WorkspaceConfig::Training(), kDevice);
    RingWorkspace ring("ring", WorkspaceConfig::Ring(2), kDevice);
    const auto give = [&](const NDArray& x) {
      EXPECT_THAT(ErrorOf([&] { ToDLPackVersioned(x, {.stream = consumer.number()}); }).message(),
                  HasSubstr("whose cycle would end under its other owner; Detach() it first"));
      tensors.push_back(ToDLPackVersioned(x, {.stream = consumer.number(), .copy = true}));
      EXPECT_EQ(tensors.back()->flags, kDLPackIsCopied);
      consumer.Read(DataOf(tensors.back()), &seen[tensors.size() - 1]);
    };
    for (int cycle = 0; cycle < 2; ++cycle) {
      WorkspaceScope scope(workspace);
      const NDArray x = Full({kElements}, 3, DType::kFloat32, Place::CurrentOn(kDevice));
      if (cycle == 0) give(x);
    }
    for (int batch = 0; batch < 3; ++batch) {
      RingSlotScope slot(ring);
      const NDArray x = Full({kElements}, 4, DType::kFloat32, Place::CurrentOn(kDevice));
      if (batch == 0) give(x);
      static_cast<void>(slot.Commit());
    }
    for (DLManagedTensorVersioned* tensor : tensors) tensor->deleter(tensor);
  }
  TheDevice().Reset();
  EXPECT_EQ(seen[0], All(3));
  EXPECT_EQ(seen[1], All(4));
}

TEST_F(DLPackOnDeviceTest, WhatIsTakenOverComesBehindItsProducerAndGoesBackBehindUs) {
  int not_waited = 0;
  for (const bool closed : {false, true}) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      TheDevice().set_asynchronous(seed);
      Stream producer;
      QueuePoint ours;
      const int64_t before = MemoryTracker::Global().CurrentBytes(kDevice, MemoryKind::kExternal);
      Foreign* known = nullptr;
      // The producer uses its memory again at once.
      auto foreign = std::make_unique<Foreign>([&] {
        not_waited += !TheDevice().HasPassed(ours);
        producer.Add(known->data, 100);
      });
      known = foreign.get();
      const DeviceQueue theirs = producer.queue();
      TheDevice().Fill(reinterpret_cast<std::byte*>(foreign->data), std::byte{0},
                       kElements * sizeof(float));
      producer.Add(foreign->data, 5);
      NDArray y, sum;
      {
        const QueueScope queue(seed % 3 == 0 ? DeviceQueue::New(kDevice)
                                             : DeviceQueue::First(kDevice));
        y = FromDLPack(&foreign->tensor, producer.number());
        EXPECT_EQ(y.device(), kDevice);
        EXPECT_EQ(MemoryTracker::Global().CurrentBytes(kDevice, MemoryKind::kExternal) - before,
                  kElements * static_cast<int64_t>(sizeof(float)));
        if (seed % 2 == 0) y += 1;
        sum = Add(y, y);
        ours = TheDevice().ComputePoint(QueueHere(kDevice));
      }
      EXPECT_EQ(foreign->deleted, 0);
      if (closed) y.Close();
      y = NDArray();
      EXPECT_EQ(foreign->deleted, 1);
      EXPECT_EQ(sum.ToVector<float>(), All(seed % 2 == 0 ? 12 : 10));
      EXPECT_EQ(MemoryTracker::Global().CurrentBytes(kDevice, MemoryKind::kExternal), before);
      sum = NDArray();
      foreign.reset();
      TheDevice().Reset();
    }
  }
  EXPECT_GT(not_waited, 10);  // the host goes on
}

// Nobody else could order the producer: what is queued has been done when the deleter is called.
TEST_F(DLPackOnDeviceTest, WithoutAStreamTheHostWaitsBeforeTheDeleter) {
  for (const bool in_ours : {false, true}) {
    TheDevice().set_asynchronous(9);
    {
      Foreign* known = nullptr;
      Foreign foreign([&] {
        auto* const bytes = reinterpret_cast<std::byte*>(known->data);
        // No wait: work that is still queued would run afterwards.
        std::memset(TheDevice().Hidden(bytes, 8), 0, 8);
      });
      known = &foreign;
      TheDevice().Fill(reinterpret_cast<std::byte*>(foreign.data), std::byte{0},
                       kElements * sizeof(float));
      const DeviceQueue ours = DeviceQueue::New(kDevice);
      NDArray y = FromDLPack(&foreign.tensor, in_ours ? DLPackStreamOf(ours) : -1);
      NDArray sum = Add(y, y);
      for (int i = 0; i < 5; ++i) sum += y;
      y += 1;
      y = NDArray();
      EXPECT_EQ(foreign.deleted, 1);
      float first;
      std::memcpy(&first, TheDevice().Hidden(reinterpret_cast<std::byte*>(foreign.data), 4), 4);
      EXPECT_EQ(first, 0);
      EXPECT_EQ(sum.ToVector<float>(), All(0));
      EXPECT_EQ(DeviceQueue::Adopt(kDevice, ours.native()), ours);
    }
    TheDevice().Reset();
  }
}

}  // namespace
}  // namespace tidepool
