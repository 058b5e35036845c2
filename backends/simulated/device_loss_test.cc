// A kernel that poisons its device: everything fails with that cause from then on, nothing takes it for lack of
// memory, and what is there goes quietly.
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_loss.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/memory/workspace/ring.h"
#include "tidepool/memory/workspace/workspace_pool.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/host_fallback.h"
#include "tidepool/ndarray/host_view.h"
#include "tidepool/ndarray/io/dlpack.h"
#include "tidepool/ndarray/io/dlpack_devices.h"
#include "tidepool/ndarray/manager/nd_manager.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/unary.h"

namespace tidepool {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const Device kDevice = SimulatedDevice::kDevice;
const Device kOther{kDevice.type, 1};
const DLPackDeviceRegistrar registrar(kDLExtDev, kDevice.type, DLPackStreams::kNative);

SimulatedDevice& TheDevice() { return SimulatedDevice::Get(); }
NDArray Filled(float value, Place place = Place::On(kDevice)) {
  return Full({1000}, value, DType::kFloat32, place);
}

class DeviceLossTest : public testing::Test {
 protected:
  void SetUp() override { TheDevice().Reset(); }
  void TearDown() override { TheDevice().Reset(); }  // dies when something was not given back
};

// The square's kernel, whatever was queued around it.
void PoisonBySquare(const NDArray& x) {
  const NDArray before = Add(x, x);
  DeviceQueue::Here(kDevice).Wait();
  TheDevice().poison().FailRequest(0);
  try {
    const NDArray bad = Square(x), after = Add(bad, bad);
  } catch (const DeviceLostError&) {
    // The square has run before the sum was queued.
  }
}

// What a call throws, which must be of a device that is lost.
struct Thrown {
  bool is_lost = false, is_first = false;
  std::string message = "nothing was thrown";
};
Thrown ThrownBy(const std::function<void()>& call) {
  try {
    call();
  } catch (const DeviceLostError& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kInternal);
    EXPECT_EQ(error.device(), kDevice);
    return {true, error.is_first(), error.message()};
  } catch (const Error& error) {
    return {false, false, error.message()};
  }
  return {};
}

void ExpectFailsFast(const char* what, const std::function<void()>& call) {
  const Thrown thrown = ThrownBy(call);
  EXPECT_TRUE(thrown.is_lost) << what << ": " << thrown.message;
  EXPECT_FALSE(thrown.is_first) << what;
  EXPECT_THAT(thrown.message, HasSubstr("simulated:0 is lost: a kernel used a wrong address"))
      << what;
}

TEST_F(DeviceLossTest, ToldOnceWithItsOperatorThenByItsCause) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    TheDevice().set_asynchronous(seed);
    {
      const NDArray x = Filled(2);
      PoisonBySquare(x);
      const Thrown first = ThrownBy([&] { x.ToVector<float>(); });
      EXPECT_TRUE(first.is_first);
      EXPECT_EQ(first.message,
                "copy: simulated:0 is lost: a kernel used a wrong address, as the test "
                "wanted; the operator that failed is [square]; what its memory holds is gone, and "
                "nothing is "
                "done on it any more in this process");
      ExpectFailsFast("the same", [&] { x.ToVector<float>(); });
      // Another device goes on.
      EXPECT_EQ(Square(Filled(3, Place::On(kOther))).At<float>({0}), 9);
    }
    TheDevice().Reset();
  }
}

// What is refused has not made the host's copy older.
TEST_F(DeviceLossTest, RefusedWorkLeavesTheHostsCopyReadable) {
  TheDevice().set_asynchronous(3);
  {
    NDArray x = Filled(2), fresh = Filled(5);
    const NDArray host = Ones({1000}), other = Filled(1, Place::On(kOther));
    EXPECT_EQ(fresh.data<float>()[0], 5);  // on both sides
    PoisonBySquare(x);
    EXPECT_TRUE(ThrownBy([&] { x.ToVector<float>(); }).is_first);
    const std::pair<const char*, std::function<void()>> calls[] = {
        {"copy from the host", [&] { CopyInto(host, fresh); }},
        {"copy from another device", [&] { CopyInto(other, fresh); }},
        {"export", [&] { ToDLPackVersioned(fresh); }},
        {"view", [&] { const DeviceView<float> view(fresh); }},
        {"operator", [&] { fresh += fresh; }},
    };
    for (const auto& [what, call] : calls) {
      ExpectFailsFast(what, call);
      EXPECT_EQ(fresh.data<float>()[0], 5) << what;
      EXPECT_EQ(fresh.At<float>({3}), 5) << what;
    }
  }
  TheDevice().Reset();
}

TEST_F(DeviceLossTest, NothingIsTakenForLackOfMemoryOrDoneOnTheHost) {
  TheDevice().set_asynchronous(3);
  TheDevice().set_has_pinned_host(true);
  {
    NDArray x = Filled(2), on_host = Filled(5);
    const NDArray from = Ones({1000});
    EXPECT_EQ(on_host.data<float>()[0], 5);  // fresh on both sides
    Workspace filled("filled", WorkspaceConfig::Training(), kDevice);
    for (int cycle = 0; cycle < 4; ++cycle) {
      WorkspaceScope scope(filled);
      const NDArray y = Filled(1, Place::CurrentOn(kDevice));
    }
    Workspace workspace("empty", WorkspaceConfig::Training(), kDevice);
    WorkspacePool pool("pool", WorkspaceConfig::Inference(), kDevice);
    RingWorkspace ring("ring", WorkspaceConfig::Ring(2), kDevice);
    for (int cycle = 0; cycle < 8; ++cycle) {
      PooledScope scope(pool);
      const NDArray y = Filled(1, Place::CurrentOn(kDevice)),
                    z = Filled(1, Place::CurrentOn(kDevice));
    }
    pool.Trim();  // it knows what it needs, and has it not
    std::vector<DeviceQueue> queues;
    for (int number = 1; number < kMostQueues; ++number)
      queues.push_back(DeviceQueue::New(kDevice));
    PoisonBySquare(x);
    EXPECT_TRUE(ThrownBy([&] { x.ToVector<float>(); }).is_first);
    queues.clear();  // their ends cannot be told

    int reclaims = 0;
    const Reclaimer::Registration watch = Reclaimer::Global().Register(
        "watch", [&](ReclaimDepth) -> int64_t { return ++reclaims, 0; });
    const uint64_t fallbacks = MemoryTracker::Global().Snapshot().host_fallbacks;
    ExpectFailsFast("an operator", [&] { x += 1; });
    ExpectFailsFast("an operator on fresh host copies", [&] { Add(on_host, on_host); });
    ExpectFailsFast("an array", [&] { Filled(1); });
    ExpectFailsFast("memory", [&] { NDArray(Shape{100}, DType::kFloat32, Place::On(kDevice)); });
    ExpectFailsFast("a copy to it", [&] { from.To(kDevice); });
    ExpectFailsFast("a copy from it", [&] { x.To(Host()); });
    ExpectFailsFast("a copy between devices", [&] { x.To(kOther); });
    ExpectFailsFast("a view", [&] { HostView<const float> view(x); });
    ExpectFailsFast("a queue", [&] { DeviceQueue::New(kDevice); });
    ExpectFailsFast("a tensor", [&] { ToDLPackVersioned(x); });
    ExpectFailsFast("pages", [] {
      WorkspaceConfig config = WorkspaceConfig::Training();
      config.initial_size = 1 << 20;
      const Workspace large("large", config, kDevice);
    });
    const auto in_cycle = [&](Workspace& of) {
      return [&] {
        WorkspaceScope scope(of);
        Square(Filled(1, Place::CurrentOn(kDevice)));
      };
    };
    for (int cycle = 0; cycle < 3; ++cycle) {
      ExpectFailsFast("a workspace with pages", in_cycle(filled));
      ExpectFailsFast("a workspace without", in_cycle(workspace));
      ExpectFailsFast("a workspace of a pool", [&] {
        PooledScope scope(pool);
        Square(Filled(1, Place::CurrentOn(kDevice)));
      });
      ExpectFailsFast("a ring", [&] {
        RingSlotScope slot(ring);
        Square(Filled(1, Place::CurrentOn(kDevice)));
      });
    }
    EXPECT_EQ(reclaims, 0);
    EXPECT_EQ(MemoryTracker::Global().Snapshot().host_fallbacks, fallbacks);
    // What the host has is the host's.
    EXPECT_EQ(on_host.data<float>()[999], 5);
  }
}

// Every owner of device memory goes, with work that was queued and never done.
TEST_F(DeviceLossTest, WhatIsThereGoesQuietly) {
  for (const bool several_queues : {false, true}) {
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      TheDevice().set_asynchronous(seed);
      TheDevice().set_has_pinned_host(seed % 2 == 0);
      {
        std::optional<DeviceQueue> queue;
        std::optional<QueueScope> in_queue;
        if (several_queues) in_queue.emplace(queue.emplace(DeviceQueue::New(kDevice)));
        NDManager manager = NDManager::NewBaseManager(kDevice, "owner");
        NDArray managed = manager.Full({100}, 1), closed = Filled(1), mirrored = Filled(2),
                dropped = Filled(3);
        mirrored.mutable_data<float>()[0] = 1;
        DLManagedTensorVersioned* const tensor = ToDLPackVersioned(dropped);
        auto workspace = std::make_unique<Workspace>("goes", WorkspaceConfig::Training(), kDevice);
        auto ring = std::make_unique<RingWorkspace>("ring", WorkspaceConfig::Ring(2), kDevice);
        SlotLease lease;
        {
          RingSlotScope slot(*ring);
          Square(Filled(1, Place::CurrentOn(kDevice)));
          lease = slot.Commit();
        }
        {
          WorkspaceScope scope(*workspace);
          const NDArray x = Filled(2, Place::CurrentOn(kDevice));
          PoisonBySquare(x);
          if (seed % 3 == 0) {
            EXPECT_TRUE(ThrownBy([&] { x.ToVector<float>(); }).is_lost);
          } else {
            LoseDevice(kDevice, "by another's hand");
          }
        }
        closed.Close();
        manager.Close();
        tensor->deleter(tensor);
        lease = SlotLease();
        ring.reset();
        workspace.reset();
        in_queue.reset();
        queue.reset();
      }
      TheDevice().Reset();
    }
  }
}

// The provider knows no operator: those that were queued last are told.
TEST_F(DeviceLossTest, WithoutAnOperatorThoseQueuedLastAreTold) {
  const DeviceQueue side = DeviceQueue::New(kDevice);
  {
    const NDArray x = Filled(2);
    const NDArray y = Square(x);
    const QueueScope scope(side);
    NDArray z = Add(y, y);
    EXPECT_TRUE(LoseDevice(kDevice, "cosmic rays"));
    EXPECT_FALSE(LoseDevice(kDevice, "something else"));
    const Thrown thrown = ThrownBy([&] { z += z; });
    EXPECT_TRUE(thrown.is_first);
    EXPECT_EQ(thrown.message,
              "Op [add]: simulated:0 is lost: cosmic rays; it was one of the operators queued "
              "last, or one before "
              "them: [square] in queue 0, [add] in queue 1; what its memory holds is gone, and "
              "nothing is done on "
              "it any more in this process");
    EXPECT_THAT(ThrownBy([&] { z += z; }).message,
                StartsWith("Op [add]: simulated:0 is lost: cosmic rays; it was"));
  }
}

}  // namespace
}  // namespace tidepool
