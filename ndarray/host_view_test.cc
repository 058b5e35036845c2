#include "tidepool/ndarray/host_view.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_charge.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"

namespace tidepool {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Device kDevice = SimulatedDevice::kDevice;

// The pointer of a view that ends with the expression cannot be had.
template <typename View>
concept CanLeak = requires {
  std::declval<View>().data();
};
template <typename View>
concept CanUse = requires(View& view) {
  view.data();
};
template <typename View>
concept CanLeakElement = requires {
  std::declval<View>()[0];
};
template <typename View>
concept CanLeakIterator = requires {
  std::declval<View>().begin();
};
static_assert(!CanLeak<HostView<float>> && !CanLeak<HostView<const float>>);
static_assert(!CanLeak<DeviceView<float>> && CanUse<DeviceView<float>>);
static_assert(CanUse<HostView<float>> && CanUse<HostView<const float>>);
static_assert(!CanLeakElement<HostView<float>> && !CanLeakIterator<HostView<float>>);

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.message();
  }
  return "nothing was thrown";
}

class HostViewTest : public testing::Test {
 protected:
  void SetUp() override {
    device_.Reset();
    device_.set_asynchronous(17);
  }
  void TearDown() override { device_.Reset(); }
  SimulatedDevice& device_ = SimulatedDevice::Get();
};

TEST_F(HostViewTest, AMutableViewMakesExactlyItsRangeStale) {
  NDArray x = Arange(0, 10, 1, DType::kFloat32, Place::On(kDevice));
  NDArray middle = x.Slice(0, 3, 5);
  const int64_t before = device_.counters().bytes_from_host;
  {
    HostView<float> view(middle);
    EXPECT_EQ(view.size(), 2);
    for (float& value : view) value *= 10;
  }
  EXPECT_EQ(device_.counters().bytes_to_host, 8);
  const NDArray y = Add(x, x);  // the views share the mirror
  EXPECT_EQ(device_.counters().bytes_from_host, before + 8);
  EXPECT_THAT(y.ToVector<float>(), ElementsAre(0, 2, 4, 60, 80, 10, 12, 14, 16, 18));
  EXPECT_THAT(x.ToVector<float>(), ElementsAre(0, 1, 2, 30, 40, 5, 6, 7, 8, 9));
}

TEST_F(HostViewTest, OverwritingCopiesNothingBack) {
  NDArray x = Ones({100}, DType::kFloat32, Place::On(kDevice));
  {
    HostView<float> view(x, ViewContents::kOverwritten);
    for (float& value : view) value = 2;
  }
  EXPECT_EQ(device_.counters().copies_to_host, 0);
  x += 1;
  EXPECT_EQ(x.At<float>({99}), 3);
}

TEST_F(HostViewTest, WhileItLivesKernelsOnWhatOverlapsAreErrorsThatNameBoth) {
  NDArray x = Ones({4, 5}, DType::kFloat32, Place::On(kDevice));
  NDArray row = x.Index(0, 1), other = x.Index(0, 2);
  std::optional<HostView<float>> view(std::in_place, row);
  EXPECT_THAT(
      MessageOf([&] { Add(x, x); }),
      HasSubstr("Op [add] X argument (bytes 0 to 80 of a buffer on simulated:0) is in use by "
                "a mutable HostView of [5] f32 (bytes 20 to 40), which must end first"));
  EXPECT_THAT(MessageOf([&] { x.Index(1, 0) += 1; }), HasSubstr("Op [scale_shift] X argument"));
  other += 1;
  EXPECT_THAT(MessageOf([&] { x.CopyTo(Place::On(kDevice)); }), HasSubstr("Op [copy] X argument"));
  EXPECT_THAT(MessageOf([&] { HostView<const float> again(x); }), HasSubstr("Op [host_view]"));
  view.reset();
  HostView<const float> reading(x);
  HostView<const float> too(row);
  Add(x, x);
  EXPECT_THAT(MessageOf([&] { x += 1; }), HasSubstr("is in use by a HostView of ["));
  EXPECT_EQ(too.data()[0], 1);
}

// One element is read and looked at, whichever side has it.
TEST_F(HostViewTest, AnElementBesideAMutableViewIsRead) {
  for (const bool fetched : {false, true}) {
    NDArray x = Full(Shape({64}), 1, DType::kFloat32, Place::On(kDevice));
    if (fetched) x.data<float>();
    HostView<float> view(x.Slice(0, 4, 8));
    view[0] = 7;
    const int64_t before = device_.counters().copies_from_host;
    EXPECT_EQ(x.At<float>({0}), 1);
    EXPECT_EQ(x.At<float>({3}), 1);
    EXPECT_EQ(x.At<float>({8}), 1);
    EXPECT_EQ(x.At<float>({63}), 1);
    EXPECT_EQ(x.Slice(0, 3, 4).Item<float>(), 1);
    EXPECT_EQ(x.Slice(0, 8, 64).At<float>({0}), 1);
    EXPECT_EQ(device_.counters().copies_from_host, before);
    EXPECT_THAT(MessageOf([&] { x.At<float>({4}); }),
                HasSubstr("Op [read] X argument (bytes 16 to 20 of a buffer on simulated:0) is in "
                          "use by a mutable "
                          "HostView of [4] f32 (bytes 16 to 32)"));
    EXPECT_THAT(MessageOf([&] { x.ToVector<float>(); }), HasSubstr("(bytes 0 to 256 of a buffer"));
  }
}

TEST_F(HostViewTest, WhoeverReadsElementsBesideAMutableViewIsRefused) {
  NDArray x = Full(Shape({4, 4}), 1, DType::kFloat32, Place::On(kDevice));
  const NDArray column = x.Slice(1, 0, 1), elsewhere = x.Slice(0, 2, 4);
  const std::function<void()> readers[] = {[&] {
                                             x.At<float>({0, 0});
                                           },
                                           [&] { x.ToVector<float>(); },
                                           [&] { x.To(Host()); },
                                           [&] { x.ToString(3); },
                                           [&] { column.ToVector<float>(); },
                                           [&] { x.Slice(0, 0, 1).Slice(1, 0, 1).Item<float>(); }};
  const auto check = [&](const char* view) {
    for (const auto& read : readers) {
      EXPECT_THAT(MessageOf(read),
                  HasSubstr(std::string("is in use by a mutable ") + view + " of [2, 4]"));
    }
    EXPECT_THAT(elsewhere.ToVector<float>(), ElementsAre(1, 1, 1, 1, 1, 1, 1, 1));
  };
  const NDArray top = x.Slice(0, 0, 2);
  x.data<float>();  // the host has it
  {
    HostView<float> view(top);
    check("HostView");
  }
  {
    DeviceView<float> view(top);
    check("DeviceView");
  }
  {
    HostView<const float> view(top);
    for (const auto& read : readers) EXPECT_NO_THROW(read());
  }
  for (const auto& read : readers) EXPECT_NO_THROW(read());
}

TEST_F(HostViewTest, DeviceViewsGiveTheDevicesPointer) {
  NDArray x = Ones({3}, DType::kFloat32, Place::On(kDevice));
  x.mutable_data<float>()[1] = 5;
  {
    DeviceView<float> view(x);
    EXPECT_EQ(reinterpret_cast<std::byte*>(view.data()), x.raw_data());
    float* const hidden = reinterpret_cast<float*>(device_.Hidden(x.raw_data(), 12));
    const auto* begin = x.raw_data();
    device_.QueueKernel({{begin, begin + 12}}, [=] { hidden[0] += hidden[1]; });
    EXPECT_THAT(MessageOf([&] { x.data<float>(); }), HasSubstr("mutable DeviceView"));
  }
  EXPECT_THAT(x.ToVector<float>(), ElementsAre(6, 5, 1));
  EXPECT_EQ(x.data<float>()[0], 6);
}

TEST_F(HostViewTest, DataIsTheHostCopy) {
  NDArray x = Arange(0, 4, 1, DType::kFloat32, Place::On(kDevice));
  EXPECT_EQ(x.data<float>()[3], 3);
  EXPECT_EQ(x.Slice(0, 1, 3).data<float>()[0], 1);
  EXPECT_EQ(device_.counters().copies_to_host, 1);
  x.mutable_data<float>()[0] = 9;
  EXPECT_EQ(x.At<float>({0}), 9);  // from the host copy
  EXPECT_EQ(device_.counters().copies_to_host, 1);
  x *= 2;
  EXPECT_THAT(x.ToVector<float>(), ElementsAre(18, 2, 4, 6));
  // New arrays have nothing to copy.
  NDArray fresh({100}, DType::kFloat32, Place::On(kDevice));
  const int64_t copies = device_.counters().copies_to_host;
  fresh.mutable_data<float>()[0] = 1;
  EXPECT_EQ(device_.counters().copies_to_host, copies);
}

TEST_F(HostViewTest, PoliciesSayWhatTheHostMay) {
  WorkspaceConfig config;
  config.policy_mirroring = MirroringPolicy::kDisabled;
  Workspace workspace("device only", config, kDevice);
  {
    WorkspaceScope scope(workspace);
    NDArray x = Ones({3});
    EXPECT_THAT(MessageOf([&] { HostView<float> view(x); }),
                HasSubstr("workspace [device only] on simulated:0 is device memory only "
                          "(policy_mirroring kDisabled)"));
    EXPECT_THAT(MessageOf([&] { x.data<float>(); }), HasSubstr("Op [data]: host access"));
    EXPECT_THAT(x.ToVector<float>(), ElementsAre(1, 1, 1));  // a copy is not a view
  }
  config.policy_mirroring = MirroringPolicy::kHostOnly;
  Workspace host_only("host only", config, kDevice);
  WorkspaceScope scope(host_only);
  NDArray x = Ones({3});
  HostView<float> view(x);
  EXPECT_EQ(reinterpret_cast<std::byte*>(view.data()), x.raw_data());
}

TEST_F(HostViewTest, WrongTypesAndGapsAreErrors) {
  const NDArray x = Ones({3, 4}, DType::kFloat32, Place::On(kDevice));
  EXPECT_THAT(MessageOf([&] { HostView<const double> view(x); }),
              HasSubstr("the array is f32, asked for as f64"));
  EXPECT_THAT(MessageOf([&] { HostView<const float> view(x.Transpose()); }),
              HasSubstr("view with gaps"));
  const NDArray nothing = Ones({0}, DType::kFloat32, Place::On(kDevice));
  EXPECT_EQ(HostView<const float>(nothing).size(), 0);
}

// The Reclaimer runs while the host copy's memory is taken, and closes the array.
TEST_F(HostViewTest, AnArrayThatIsClosedWhileItsViewIsMadeKeepsBytesAndMirrorUntilItIsMade) {
  for (const bool by_view : {true, false}) {
    NDArray x = Arange(0, 1024, 1, DType::kFloat32, Place::On(kDevice)), y = x;
    std::optional<MemoryCharge> spare(std::in_place, MemoryKind::kAllocated, 1 << 20);
    const size_t used = device_.used_bytes();
    int closed = 0;
    const Reclaimer::Registration client =
        Reclaimer::Global().Register("closes", [&](ReclaimDepth) -> int64_t {
          if (closed++ > 0) return 0;
          y.Close();
          EXPECT_EQ(device_.used_bytes(), used);
          spare.reset();
          return 1 << 20;
        });
    MemoryBudget::Global().SetDeviceLimit(Host(), MemoryBudget::Global().Of(Host()).taken_bytes);
    if (by_view) {
      HostView<const float> view(x);
      EXPECT_LT(device_.used_bytes(), used);
      EXPECT_EQ(view[1023], 1023);  // the host copy is the view's
    } else {
      x.data<float>();
    }
    MemoryBudget::Global().SetDeviceLimit(Host(), MemoryBudget::kUnlimited);
    EXPECT_EQ(closed, 1);
    EXPECT_LT(device_.used_bytes(), used);
    EXPECT_THAT(MessageOf([&] { HostView<float> again(x); }), HasSubstr("was closed before"));
    EXPECT_THAT(MessageOf([&] { x.data<float>(); }), HasSubstr("was closed before"));
  }
}

// Made or refused, whatever another thread closes; the device ends the test where memory is used
// that was given back.
TEST_F(HostViewTest, AnArrayMayBeClosedOnAnotherThreadWhileViewsAreMade) {
  const std::function<void(NDArray&)> uses[] = {
      [](NDArray& x) { HostView<const float> view(x); },
      [](NDArray& x) { HostView<float> view(x); },
      [](NDArray& x) { DeviceView<float> view(x); },
      [](NDArray& x) { x.data<float>(); },
      [](NDArray& x) { x.mutable_data<float>(); },
  };
  for (const auto& use : uses) {
    int made = 0, refused = 0;
    for (int i = 0; i < 200; ++i) {
      Ownership owner = Ownership::Process().NewChild("closes");
      NDArray x = Full({4096}, 1, DType::kFloat32, Place::On(kDevice));
      owner.Attach(x.buffer());
      if (i % 2 == 0) x.mutable_data<float>();  // something to send to the device
      std::atomic<int> at{0};
      std::thread closer([&] {
        ++at;
        while (at < 2) std::this_thread::yield();
        owner.Close();
      });
      ++at;
      while (at < 2) std::this_thread::yield();
      const std::string message = MessageOf([&] { use(x); });
      if (message == "nothing was thrown") {
        ++made;
      } else {
        EXPECT_THAT(message, HasSubstr("was closed before"));
        ++refused;
      }
      closer.join();
    }
    EXPECT_EQ(made + refused, 200);
    EXPECT_EQ(device_.used_bytes(), 0u);
  }
}

// On the host kernels and views share the bytes: nothing to lock.
TEST_F(HostViewTest, HostArraysAreNotLocked) {
  NDArray x = Ones({3});
  HostView<float> view(x);
  view[0] = 4;
  x += 1;
  EXPECT_EQ(view[0], 5);
}

}  // namespace
}  // namespace tidepool
