// Arrays whose memory the host cannot touch: made, copied, viewed, read and saved, with kernels of
// the device linked and without.
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/io/npy_file.h"
#include "tidepool/ndarray/io/safetensors_arrays.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/linalg/solving.h"
#include "tidepool/ndarray/manager/nd_manager.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/convolution.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/indexing.h"
#include "tidepool/ndarray/ops/joining.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/ndarray/ops/reduction.h"

namespace tidepool {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Device kDevice = SimulatedDevice::kDevice;
const Device kOther{DeviceType::Named("simulated"), 1};

bool HasKernels() {
  return !KernelRegistry::Find(OpCode::kAdd, kDevice.type, DType::kFloat32).empty();
}

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.message();
  }
  return "nothing was thrown";
}

class DeviceArraysTest : public testing::Test {
 protected:
  void SetUp() override { SimulatedDevice::Get().Reset(); }
  void TearDown() override {
    SimulatedDevice::Get().Reset();  // nothing is left behind
    SimulatedDevice::Get(1).Reset();
  }
};

TEST_F(DeviceArraysTest, NumbersAndSubscripts) {
  if (!HasKernels()) GTEST_SKIP() << "arithmetic needs kernels";
  for (const bool asynchronous : {false, true}) {
    if (asynchronous) SimulatedDevice::Get().set_asynchronous(7);
    const auto same = [](const std::function<void(NDArray&)>& change) {
      for (const DType dtype : {DType::kFloat32, DType::kInt64}) {
        NDArray here = Arange(0, 12, 1, dtype).Reshape({3, 4}), there = here.To(kDevice);
        change(here);
        change(there);
        EXPECT_EQ(there.device(), kDevice);
        EXPECT_EQ(there.ToString(), here.ToString());
      }
    };
    same([](NDArray& x) { x = (INT64_MAX - x) / 3 + 2 * x; });
    same([](NDArray& x) { x = Where(x > 5.5, x, -1); });
    same([](NDArray& x) { FillInto(INT64_MAX, x); });
    same([](NDArray& x) { x(1, Range(1, {}, 2)) = 40; });
    same([](NDArray& x) { x(All(), Range(1, {})) = x(All(), Range(0, -1)); });
    same([](NDArray& x) { x(x > 6) -= 6; });
    same([](NDArray& x) {
      x(FromValues(absl::MakeConstSpan(std::vector<int64_t>{2, 0}), {2})) = x(Range(0, 2));
    });
    SimulatedDevice::Get().Reset();
  }
}

TEST_F(DeviceArraysTest, CreationOfEveryKindAndType) {
  const Place place = Place::On(kDevice);
  for (int i = 0; i < kDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    const auto same = [&](const std::function<NDArray(Place)>& make) {
      const NDArray there = make(place), here = make(Place::Heap());
      EXPECT_EQ(there.device(), kDevice);
      EXPECT_EQ(here.device(), Host());
      EXPECT_EQ(there.ToString(), here.ToString());
    };
    same([&](Place p) { return Zeros({2, 3}, dtype, p); });
    same([&](Place p) { return Ones({2, 3}, dtype, p); });
    same([&](Place p) { return Full({7}, 3, dtype, p); });
    same([&](Place p) { return Arange(1, 6, 2, dtype, p); });
    same([&](Place p) { return Linspace(0, 1, 4, dtype, p); });
    same([&](Place p) { return Eye(3, 4, 1, dtype, p); });
  }
  const std::vector<float> values = {1, 2};
  EXPECT_EQ(FromValues(absl::MakeConstSpan(values), {2}, place).ToVector<float>(), values);
  EXPECT_EQ(Zeros({0, 3}, DType::kFloat32, place).ToString(), "[]");
}

TEST_F(DeviceArraysTest, EmptyArraysAreWhereTheyWereMade) {
  const auto empty = [](Device device) {
    return NDArray({0, 3}, DType::kFloat32, Place::On(device));
  };
  NDArray there = empty(kDevice);
  EXPECT_EQ(there.device(), kDevice);
  EXPECT_EQ(empty(Host()).device(), Host());
  EXPECT_EQ(there.To(Host()).device(), Host());
  EXPECT_EQ(empty(Host()).To(kOther).device(), kOther);
  for (const NDArray& same :
       {NDArray(there), there.To(kDevice), there.Dup(), there.Detach(), there.Transpose(),
        there.Reshape({3, 0, 7}), there.Slice(1, 0, 2), there.Index(1, 2), there.ExpandDims(0),
        there.BroadcastTo({4, 0, 3}), there.Flatten(), there(All(), 1), there.Migrate(),
        there.CopyTo(Place::CurrentOn(kDevice))}) {
    EXPECT_EQ(same.device(), kDevice);
    EXPECT_EQ(same.NumElements(), 0);
    EXPECT_TRUE(same.ToVector<float>().empty());
  }
  NDArray moved = std::move(there);
  EXPECT_EQ(moved.device(), kDevice);
  EXPECT_EQ(there.device(), Host());  // NOLINT: undefined
  there = std::move(moved);
  EXPECT_EQ(there.device(), kDevice);
  there = Ones({2});
  EXPECT_EQ(there.device(), Host());
  // A view of an array that has memory.
  EXPECT_EQ(Zeros({2}, DType::kFloat32, Place::On(kDevice)).Slice(0, 1, 1).device(), kDevice);

  // Where arrays are made that are not told a place, as those with elements.
  Workspace workspace("there", WorkspaceConfig::Training(), kDevice);
  {
    WorkspaceScope scope(workspace);
    EXPECT_EQ(Zeros({0}).device(), kDevice);
    EXPECT_EQ(Zeros({0}, DType::kFloat32, Place::Heap()).device(), Host());
    EXPECT_EQ(Zeros({0}, DType::kFloat32, Place::In(workspace)).device(), kDevice);
    EXPECT_EQ(Zeros({0}, DType::kFloat32, Place::Heap()).Migrate().device(), kDevice);
  }
  NDManager manager = NDManager::NewBaseManager(kDevice, "there");
  EXPECT_EQ(Zeros({0}, DType::kFloat32, manager).device(), kDevice);
  {
    const ManagerScope entered(manager);
    EXPECT_EQ(Zeros({0}).device(), Zeros({1}).device());
  }
}

TEST_F(DeviceArraysTest, ResultsOfEmptyOperandsAreOnTheirDevice) {
  if (!HasKernels()) GTEST_SKIP() << "arithmetic needs kernels";
  const auto empty = [](const Shape& shape, Device device = kDevice) {
    return NDArray(shape, DType::kFloat32, Place::On(device));
  };
  const NDArray row = Ones({1, 3}, DType::kFloat32, Place::On(kDevice));
  for (const NDArray& result :
       {MatMul(empty({1, 0}), empty({0, 3})), Sum(empty({0, 1, 3}), {0}),
        Pad(empty({1, 0}), {0, 1}, {0, 2}),
        Concat({empty({1, 3}).Slice(0, 0, 0), empty({0, 3}, Host()), row - row}, 0),
        MatMul(empty({1, 0}, Host()), empty({0, 3}))}) {
    EXPECT_EQ(result.device(), kDevice);
    EXPECT_THAT((result + row).ToVector<float>(), ElementsAre(1, 1, 1));
  }
  // The bias alone has elements.
  const NDArray bias = Ones({3}, DType::kFloat32, Place::On(kDevice));
  const NDArray whole = Cast(bias, DType::kUInt8);
  for (const NDArray& result :
       {Conv2d(empty({1, 1, 1, 0}, Host()), empty({3, 1, 1, 0}, Host()), &bias, {}),
        Cast(MatMul(Zeros({1, 0}, DType::kUInt8), Zeros({0, 3}, DType::kUInt8), {}, &whole),
             DType::kFloat32)}) {
    EXPECT_EQ(result.device(), kDevice);
    EXPECT_THAT(result.ToVector<float>(), ElementsAre(1, 1, 1));
  }
  const NDArray gathered =
      GatherGrad(Zeros({0, 3}), Zeros({0}, DType::kInt64, Place::On(kDevice)), {1, 3}, 0);
  EXPECT_EQ(gathered.device(), kDevice);
  EXPECT_EQ(Shuffle(empty({0, 3}), 7, 1, 1).device(), kDevice);
  const NDArray solved = linalg::LeastSquares(empty({0, 3}, Host()), empty({0, 1})).solution;
  EXPECT_EQ(solved.device(), kDevice);
  EXPECT_THAT(solved.ToVector<float>(), ElementsAre(0, 0, 0));
  // Of those with elements, wherever the empty ones are.
  const NDArray here = Concat({empty({0, 3}), Ones({1, 3})}, 0);
  EXPECT_EQ(here.device(), Host());
  EXPECT_THAT(here.ToVector<float>(), ElementsAre(1, 1, 1));
}

// Empty parts of arrays of two devices meet in an operator: nothing comes of it for either.
TEST_F(DeviceArraysTest, GradientsOfEmptyPartsAreNowhere) {
  if (!HasKernels()) GTEST_SKIP() << "arithmetic needs kernels";
  const NDArray here = Ones({2, 1}), there = Ones({1, 2}, DType::kFloat32, Place::On(kDevice));
  const auto product = [&](const NDArray& x) {
    return Sum(MatMul(x.Slice(1, 0, 0), (there * 1).Slice(0, 0, 0)));
  };
  {
    GradientTape tape;
    tape.Watch(here);
    tape.Watch(there);
    tape.Backward(product(here * here));
    EXPECT_EQ(tape.Gradient(here).device(), Host());
    EXPECT_THAT(tape.Gradient(here).ToVector<float>(), ElementsAre(0, 0));
    EXPECT_EQ(tape.Gradient(there).device(), kDevice);
  }
  GradientTape tape;
  tape.Watch(here);
  tape.Watch(there);
  const NDArray h = here * 1;
  const NDArray outputs[] = {Sum(h * 3), product(h)};
  tape.Backward(outputs);
  EXPECT_THAT(tape.Gradient(here).ToVector<float>(), ElementsAre(3, 3));
  {
    // A part of what is watched, as of what was computed; the gradient of nothing may be on any device.
    GradientTape parts;
    parts.Watch(here);
    const NDArray of_none[] = {Sum(MatMul(here.Slice(1, 0, 0), Zeros({0, 2}))),
                               here.Slice(1, 1, 1)};
    const NDArray gradients[] = {Ones({}), Zeros({2, 0}, DType::kFloat32, Place::On(kDevice))};
    parts.Backward(of_none, gradients);
    EXPECT_THAT(parts.Gradient(here).ToVector<float>(), ElementsAre(0, 0));
  }
}

TEST_F(DeviceArraysTest, FillsWithoutAKernelUseTheProviderWhereThePatternAllowsIt) {
  if (HasKernels()) GTEST_SKIP() << "kernels are linked";
  const NDArray zeros = Zeros({100}, DType::kFloat32, Place::On(kDevice));
  const NDArray bytes = Full({100}, -1, DType::kInt64, Place::On(kDevice));
  EXPECT_EQ(SimulatedDevice::Get().counters().fills, 2);
  EXPECT_EQ(SimulatedDevice::Get().counters().copies_from_host, 0);
  EXPECT_EQ(bytes.At<int64_t>({99}), -1);
  Full({100}, 1, DType::kFloat32, Place::On(kDevice));
  EXPECT_EQ(SimulatedDevice::Get().counters().copies_from_host, 1);
}

TEST_F(DeviceArraysTest, CopiesBetweenAllDevicesOfAllViews) {
  const NDArray host = Arange(0, 120).Reshape({2, 3, 4, 5});
  const std::vector<std::function<NDArray(const NDArray&)>> views = {
      [](const NDArray& x) { return x; },
      [](const NDArray& x) { return x.Transpose(); },
      [](const NDArray& x) { return x.Slice(3, 1, 4).Slice(1, 2, 0, -1); },
      [](const NDArray& x) { return x.Index(2, 3); },
      [](const NDArray& x) {
        return x.Index(2, 3).ExpandDims(0).BroadcastTo({3, 2, 3, 5});
      },
  };
  for (Device from : {Host(), kDevice, kOther}) {
    const NDArray x = host.CopyTo(Place::On(from));
    for (const auto& view : views) {
      const std::vector<float> expected = view(host).ToVector<float>();
      EXPECT_EQ(view(x).ToVector<float>(), expected);
      for (Device to : {Host(), kDevice, kOther}) {
        const NDArray copy = view(x).CopyTo(Place::On(to));
        EXPECT_EQ(copy.device(), to);
        EXPECT_TRUE(copy.is_dense());
        EXPECT_EQ(copy.ToVector<float>(), expected);
        // Into a view with gaps, of another type: what lies in the gaps stays.
        NDArray wide = Full({2, 150}, 7, DType::kFloat64, Place::On(to));
        const NDArray target = wide.Index(0, 1).Slice(0, 1, 121, 2);
        const NDArray part = view(x).ReshapeOrCopy({view(x).NumElements()}).Slice(0, 0, 12);
        NDArray there = target.Slice(0, 0, 12);
        CopyInto(part, there);
        const std::vector<double> all = wide.ToVector<double>();
        for (int i = 0; i < 300; ++i) {
          const int at = i - 151;
          const bool written = at >= 0 && at < 24 && at % 2 == 0;
          ASSERT_EQ(all[i], written ? expected[at / 2] : 7) << i;
        }
      }
    }
  }
}

TEST_F(DeviceArraysTest, ToIsTheArrayItselfWhereItIs) {
  const NDArray x = Ones({3});
  EXPECT_EQ(x.To(Host()).buffer().get(), x.buffer().get());
  const NDArray y = x.To(kDevice);
  EXPECT_EQ(y.device(), kDevice);
  EXPECT_EQ(y.To(kDevice).buffer().get(), y.buffer().get());
  Workspace workspace("w", {}, kDevice);
  WorkspaceScope scope(workspace);
  EXPECT_TRUE(x.To(kDevice).IsAttached());
  EXPECT_FALSE(x.To(kOther).IsAttached());
  EXPECT_FALSE(y.To(Host()).IsAttached());
  EXPECT_EQ(y.To(Host()).device(), Host());
}

TEST_F(DeviceArraysTest, ElementsAreReadOneByOne) {
  const NDArray x = Arange(0, 12, 1, DType::kInt64, Place::On(kDevice)).Reshape({3, 4});
  EXPECT_EQ(x.At<int64_t>({2, 1}), 9);
  EXPECT_EQ(x.Transpose().At<int64_t>({1, 2}), 9);
  EXPECT_EQ(x.Index(0, 1).Slice(0, 2, 3).Item<int64_t>(), 6);
  EXPECT_EQ(SimulatedDevice::Get().counters().bytes_to_host, 3 * 8);
  EXPECT_THAT(MessageOf([&] { x.At<int64_t>({3, 0}); }), HasSubstr("index [3, 0]"));
  EXPECT_EQ(x.Slice(1, 1, 3).ToString(), "[[ 1,  2],\n [ 5,  6],\n [ 9, 10]]");
}

TEST_F(DeviceArraysTest, ManagersOfADevice) {
  NDManager manager = NDManager::NewBaseManager(kDevice, "there");
  const NDArray x = manager.Ones({3});
  EXPECT_EQ(x.device(), kDevice);
  {
    ManagerScope scope(manager);
    EXPECT_EQ(Zeros({3}).device(), kDevice);
    NDManager host = manager.NewSubManager("host", Host());
    EXPECT_EQ(host.Zeros({2}).device(), Host());
  }
  Workspace workspace("w", {}, kDevice);
  NDManager cycle = manager.NewCycleManager("cycle", workspace);
  EXPECT_TRUE(cycle.Ones({2}).IsAttached());
  cycle.Close();
  manager.Close();
  EXPECT_TRUE(x.is_closed());
}

TEST_F(DeviceArraysTest, MoversStayOnTheDevice) {
  Workspace workspace("w", {}, kDevice);
  NDArray kept;
  {
    WorkspaceScope scope(workspace);
    const NDArray x = Arange(0, 6).Reshape({2, 3});
    EXPECT_EQ(x.device(), kDevice);
    kept = x.Transpose().Detach();
    const NDArray on_host = Ones({2}, DType::kFloat32, Place::Heap());
    EXPECT_EQ(on_host.Dup().device(), Host());  // where its operand is
  }
  EXPECT_EQ(kept.device(), kDevice);
  EXPECT_THAT(kept.ToVector<float>(), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_EQ(kept.Dup().device(), kDevice);
}

TEST_F(DeviceArraysTest, FilesOfDeviceArrays) {
  const std::string path = testing::TempDir() + "/device_arrays";
  const NDArray x = Arange(0, 6, 1, DType::kFloat32, Place::On(kDevice)).Reshape({2, 3});
  WriteNpy(path + ".npy", x.Transpose());
  EXPECT_EQ(ReadNpy(path + ".npy").ToVector<float>(), x.Transpose().ToVector<float>());
  const NDArray back = ReadNpy(path + ".npy", Place::On(kDevice));
  EXPECT_EQ(back.device(), kDevice);
  EXPECT_EQ(back.ToVector<float>(), x.Transpose().ToVector<float>());
  WriteSafetensorsArrays(path + ".safetensors", {{"x", x}}, {});
  const auto arrays = ReadSafetensorsArrays(path + ".safetensors", Place::On(kDevice));
  EXPECT_EQ(arrays.at("x").device(), kDevice);
  EXPECT_EQ(arrays.at("x").ToVector<float>(), x.ToVector<float>());
}

TEST_F(DeviceArraysTest, OperatorsRunWhereTheirOperandsAre) {
  const NDArray x = Arange(1, 4, 1, DType::kFloat32, Place::On(kDevice));
  if (!HasKernels()) {
    EXPECT_THAT(MessageOf([&] { Add(x, x); }),
                HasSubstr("Op [add]: no kernel for f32 on simulated:0 is linked; linked providers: "
                          "builtin; not done on the host, as no kernel of the host is linked"));
    return;
  }
  NDArray z = Add(x, x);
  EXPECT_EQ(z.device(), kDevice);
  EXPECT_THAT(z.ToVector<float>(), ElementsAre(2, 4, 6));
  z /= 2;
  EXPECT_THAT(z.ToVector<float>(), ElementsAre(1, 2, 3));
  EXPECT_THAT(MessageOf([&] { Add(x, Ones({3})); }),
              HasSubstr("Op [add]: Y is on host, the output on simulated:0"));
  // Where there are no elements devices do not matter.
  EXPECT_EQ(Add(Zeros({0}, DType::kFloat32, Place::On(kDevice)), Zeros({0})).NumElements(), 0);
  // Checks of values look at them where they are.
  const NDArray whole = Arange(0, 3, 1, DType::kInt32, Place::On(kDevice));
  EXPECT_THAT(MessageOf([&] { Divide(whole, whole); }), HasSubstr("has a zero"));
}

}  // namespace
}  // namespace tidepool
