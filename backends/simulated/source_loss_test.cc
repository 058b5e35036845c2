// A device that is lost while others copy from it: what they did not get is not read as if they had.
#include <array>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/device_copy.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_dependence.h"
#include "tidepool/memory/provider/device_loss.h"
#include "tidepool/memory/provider/device_queue.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/host_view.h"
#include "tidepool/ndarray/io/dlpack.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/unary.h"

namespace tidepool {
namespace {

using ::testing::HasSubstr;

const Device kDevice = SimulatedDevice::kDevice;
const Device kOther{kDevice.type, 1};
const Device kThird{kDevice.type, 2};

NDArray Filled(float value, Device device) {
  return Full({1000}, value, DType::kFloat32, Place::On(device));
}

class LossOfASourceTest : public testing::Test {
 protected:
  void SetUp() override { Reset(); }
  void TearDown() override { Reset(); }
  static void Reset() {
    for (int i = 0; i < 3; ++i) SimulatedDevice::Get(i).Reset();
    SimulatedDevice::set_has_peers(false);
    ForgetDeviceCopiesForTesting();
  }
  static void Restart(uint64_t seed) {
    Reset();
    SimulatedDevice::set_has_peers(true);
    for (int i = 0; i < 3; ++i) {
      SimulatedDevice::Get(i).set_asynchronous(seed + static_cast<uint64_t>(i));
      SimulatedDevice::Get(i).set_tells_late(true);
    }
  }
};

// In each of the ways that the host may read it.
std::vector<float> SeenIn(const NDArray& x, uint64_t way) {
  switch (way % 5) {
    case 0:
      return x.To(Host()).ToVector<float>();
    case 1:
      return std::vector<float>(1000, x.At<float>({999}));
    case 2: {
      HostView<const float> view(x);
      return {view.begin(), view.end()};
    }
    case 3:  // staged on its way
      SimulatedDevice::set_has_peers(false);
      ForgetDeviceCopiesForTesting();
      return x.To(x.device() == kThird ? kOther : kThird).ToVector<float>();
    default:
      return x.ToVector<float>();
  }
}

// What is read is what was copied, or the reader is told, whenever the source is lost and whoever asks first.
TEST_F(LossOfASourceTest, NobodyReadsBytesThatWereNotCopied) {
  int lost = 0, right = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    Restart(seed);
    {
      const NDArray x = Filled(2, kDevice);
      NDArray target = Filled(7, kOther), third = Filled(7, kThird);
      DeviceQueue::Here(kDevice).Wait();
      SimulatedDevice::Get().poison().FailRequest(static_cast<int64_t>(seed % 3));
      try {
        // The square's kernel may poison the device; so may one before or behind the copy.
        const NDArray a = Add(x, x), b = Square(a);
        CopyInto(b, target);
        const NDArray behind = Add(target, target);
        if (seed % 5 == 0) Add(b, b);
        if (seed % 4 == 0) CopyInto(behind, third);
        const NDArray& last = seed % 4 == 0 ? third : behind;
        const std::vector<float> seen = SeenIn(last, seed);
        EXPECT_EQ(seen, std::vector<float>(1000, 32));
        ++right;
      } catch (const DeviceLostError& error) {
        EXPECT_THAT(error.message(), HasSubstr("a kernel used a wrong address"));
        ++lost;
      }
    }
  }
  EXPECT_GT(lost, 50);
  EXPECT_GT(right, 10);
}

// Each is the first to ask a device that has not told yet.
TEST_F(LossOfASourceTest, EveryWayToWaitForTheTargetTells) {
  const std::pair<const char*, std::function<void(const NDArray&)>> ways[] = {
      {"to the host", [](const NDArray& x) { SeenIn(x, 0); }},
      {"an element", [](const NDArray& x) { SeenIn(x, 1); }},
      {"a view", [](const NDArray& x) { SeenIn(x, 2); }},
      {"staged", [](const NDArray& x) { SeenIn(x, 3); }},
      {"a vector", [](const NDArray& x) { SeenIn(x, 4); }},
      {"a queue", [](const NDArray& x) { DeviceQueue::Here(x.device()).Wait(); }},
      {"bytes",
       [](const NDArray& x) {
         std::byte bytes[4];
         CopyBytes(Host(), bytes, x.device(), x.raw_data(), 4);
       }},
      {"bytes to another device",
       [](const NDArray& x) {
         const NDArray other = Filled(7, kThird);
         DeviceQueue::Here(kThird).Wait();
         CopyBytes(kThird, other.raw_data(), x.device(), x.raw_data(), 4);
       }},
      {"a tensor",
       [](const NDArray& x) {
         DLManagedTensorVersioned* const tensor = ToDLPackVersioned(x);
         tensor->deleter(tensor);
       }},
  };
  for (const auto& [what, call] : ways) {
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      Restart(seed);
      {
        const NDArray x = Filled(2, kDevice);
        NDArray target = Filled(7, kOther);
        DeviceQueue::Here(kDevice).Wait();
        SimulatedDevice::Get().poison().FailRequest(0);
        bool is_told = false;
        try {
          const NDArray bad = Square(x);
          CopyInto(bad, target);
        } catch (const DeviceLostError&) {
          continue;  // it ran at once
        }
        try {
          call(target);
        } catch (const DeviceLostError& error) {
          is_told = true;
        }
        EXPECT_TRUE(is_told) << what;
      }
    }
  }
}

// The device that fails comes last in a ring of copies, however the looking goes round it.
TEST_F(LossOfASourceTest, ARingOfCopiesHidesNothing) {
  const Device devices[] = {kDevice, kOther, kThird};
  int told = 0;
  for (int turn = 0; turn < 3; ++turn) {
    const auto place = [&](int i) { return devices[(i + turn) % 3]; };
    for (int look = 0; look < 3; ++look) {
      for (uint64_t seed = 1; seed <= 10; ++seed) {
        Restart(seed);
        {
          const NDArray x = Filled(2, place(1)), unrelated = Filled(3, place(2));
          NDArray a = Filled(7, place(0)), c = Filled(7, place(2)), d = Filled(7, place(1));
          for (int i = 0; i < 3; ++i) DeviceQueue::Here(devices[i]).Wait();
          SimulatedDevice::Get(place(1).index).poison().FailRequest(0);
          int queued =
              0;  // copies that were accepted: what is refused at once leaves its target as it was
          try {
            const NDArray bad = Square(x);
            CopyInto(bad, a), ++queued;
            CopyInto(a, c), ++queued;
            CopyInto(unrelated, d), ++queued;
          } catch (const DeviceLostError&) {
            // The device failed before the rest could be queued.
          }
          const std::array<const NDArray*, 3> arrays{&a, &c, &d};
          const std::array<float, 3> copied{4, 4, 3};
          // Whoever is looked at first, nobody sees what was not copied.
          for (int i = 0; i < 3; ++i) {
            const size_t of = static_cast<size_t>((i + look) % 3);
            try {
              const float seen = arrays[of]->At<float>({5});
              const float wanted = static_cast<int>(of) < queued ? copied[of] : 7;
              EXPECT_EQ(seen, wanted)
                  << of << " of " << queued << " queued, turn " << turn << ", look " << look;
            } catch (const DeviceLostError&) {
              ++told;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(told, 100);
}

TEST_F(LossOfASourceTest, TheTargetIsLostWithItAndSaysWhy) {
  Restart(3);
  {
    const NDArray x = Filled(2, kDevice), y = x.To(kOther);  // nobody has waited for it
    const NDArray z = y.To(kThird);
    const NDArray elsewhere = Filled(1, kOther);
    LoseDevice(kDevice, "cosmic rays");
    EXPECT_TRUE(IsLost(kOther));
    EXPECT_TRUE(IsLost(kThird));
    try {
      Add(z, z);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const DeviceLostError& error) {
      EXPECT_EQ(error.device(), kThird);
      EXPECT_THAT(
          error.message(),
          HasSubstr(
              "simulated:2 is lost: a copy from simulated:1 had not been seen to end when that "
              "was lost (a copy from simulated:0 had not been seen to end when that was lost "
              "(cosmic "
              "rays; it was one of the operators queued last, or one before them: "));
    }
  }
}

TEST_F(LossOfASourceTest, ACopyThatHasBeenSeenToEndIsGood) {
  for (const bool by_its_own_device : {false, true}) {
    Restart(3);
    {
      const NDArray x = Filled(2, kDevice), y = x.To(kOther), z = y.To(kThird);
      if (by_its_own_device) {
        DeviceQueue::Here(kThird).Wait();
      } else {
        EXPECT_EQ(z.At<float>({0}), 2);
      }
      LoseDevice(kDevice, "cosmic rays");
      EXPECT_EQ(Square(z).At<float>({0}), 4);
      EXPECT_EQ(Square(y).At<float>({0}), 4);
      // What is lost later has no share in it either.
      LoseDevice(kOther, "more of them");
      EXPECT_EQ(Square(z).At<float>({0}), 4);
    }
  }
}

// The loss is told before the copy has been noted.
TEST_F(LossOfASourceTest, ALossInTheMiddleOfACopyIsSeen) {
  Restart(3);
  {
    const NDArray x = Filled(2, kDevice), y = Filled(7, kOther);
    PrepareToDepend(kOther, kDevice);
    DeviceQueue::Here(kOther).Wait();
    const QueuePoint point = SimulatedDevice::Get().ComputePoint(0);
    LoseDevice(kDevice, "cosmic rays");
    EXPECT_FALSE(IsLost(kOther));
    DependOn(kOther, kDevice, point);
    EXPECT_TRUE(IsLost(kOther));
  }
}

}  // namespace
}  // namespace tidepool
