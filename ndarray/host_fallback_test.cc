// A device without kernels: what runs on the host instead, when it may, and what is counted.
#include "tidepool/ndarray/host_fallback.h"

#include <functional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/mirroring/buffer_mirror.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/sorting.h"

namespace tidepool {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Device kDevice = SimulatedDevice::kDevice;

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.message();
  }
  return "nothing was thrown";
}

class HostFallbackTest : public testing::Test {
 protected:
  void SetUp() override { device_.Reset(); }
  void TearDown() override { device_.Reset(); }
  SimulatedDevice& device_ = SimulatedDevice::Get();
};

TEST_F(HostFallbackTest, OperatorsWithoutAKernelRunThroughTheMirrors) {
  const uint64_t before = HostFallbacksOf(OpCode::kAdd);
  Workspace workspace("w", {}, kDevice);
  {
    WorkspaceScope scope(workspace);
    const NDArray x = Arange(0, 6).Reshape({2, 3});
    NDArray y = Add(x, x);
    EXPECT_EQ(y.device(), kDevice);
    EXPECT_EQ(device_.counters().copies_to_host, 1);  // of x, once
    y = Add(y, x.Slice(0, 1, 2));
    EXPECT_EQ(device_.counters().copies_to_host, 1);  // all of it is on the host by now
    y += 1;
    EXPECT_THAT(y.ToVector<float>(), ElementsAre(4, 7, 10, 10, 13, 16));
    // In place through views with gaps, and kernels for dense operands only.
    NDArray column = y.Index(1, 1);
    column *= 2;
    EXPECT_THAT(Sort(y.Transpose(), 0).ToVector<float>(), ElementsAre(4, 10, 10, 16, 14, 26));
    // What is written comes to the device when that needs it.
    const NDArray there = y.CopyTo(Place::On(kDevice));
    EXPECT_EQ(there.At<float>({1, 1}), 26);
  }
  EXPECT_EQ(HostFallbacksOf(OpCode::kAdd), before + 2);
  EXPECT_EQ(workspace.stats().host_fallbacks, 5);
  EXPECT_THAT(DescribeHostFallbacks(), HasSubstr("add "));
  EXPECT_GE(MemoryTracker::Global().Snapshot().host_fallbacks, 5u);
  EXPECT_GT(workspace.stats().mirror_copies_to_host, 0);
}

TEST_F(HostFallbackTest, NotAllowedItIsAnErrorWithTheReason) {
  const NDArray x = Ones({3}, DType::kFloat32, Place::On(kDevice));
  WorkspaceConfig config;
  config.helper_allow_fallback = false;
  Workspace workspace("strict", config, kDevice);
  {
    WorkspaceScope scope(workspace);
    EXPECT_THAT(MessageOf([&] { Add(x, x); }),
                HasSubstr("Op [add]: no kernel for f32 on simulated:0 is linked"));
    EXPECT_THAT(MessageOf([&] { Add(x, x); }),
                HasSubstr("helper_allow_fallback of workspace [strict] is off"));
  }
  config.helper_allow_fallback = true;
  config.policy_mirroring = MirroringPolicy::kDisabled;
  Workspace disabled("disabled", config, kDevice);
  WorkspaceScope scope(disabled);
  EXPECT_THAT(MessageOf([&] { Add(x, x); }), HasSubstr("policy_mirroring kDisabled"));
}

// An operator that the host has no kernel for, with scratch that the device has no room for.
TEST_F(HostFallbackTest, LackOfMemoryIsNotToldAsLackOfAKernel) {
  const OpCode op = AddOperator(
      {.name = "own_on_device", .inputs = "X", .outputs = "Z", .types = SetOf(DType::kFloat32)});
  KernelRegistry::Global().Add({op, kDevice.type, DType::kFloat32, "own", 1,
                                [](const KernelCall&) {},
                                [](const KernelCall&) { return size_t{1} << 20; }});
  const NDArray x = Ones({3}, DType::kFloat32, Place::On(kDevice));
  NDArray z = Zeros({3}, DType::kFloat32, Place::On(kDevice));
  EXPECT_NO_THROW(Dispatch(op, {&x}, {&z}));
  device_.set_capacity(size_t{1} << 16);
  EXPECT_THROW(Dispatch(op, {&x}, {&z}), OutOfMemoryError);
  EXPECT_EQ(HostFallbacksOf(op), 0u);
}

TEST_F(HostFallbackTest, AFailedCopyIsTheCallersErrorAndTheNextCallWorks) {
  const NDArray x = Arange(0, 3, 1, DType::kFloat32, Place::On(kDevice));
  NDArray z = Zeros({3}, DType::kFloat32, Place::On(kDevice));
  for (int64_t n = 0;; ++n) {
    device_.faults().FailRequest(n);
    const std::string message = MessageOf([&] { AddInto(x, x, z); });
    const bool failed = device_.faults().failed() > 0;
    device_.faults().Clear();
    if (!failed) break;
    EXPECT_THAT(message, HasSubstr("copy to the host failed"));
  }
  EXPECT_THAT(z.ToVector<float>(), ElementsAre(0, 2, 4));
}

}  // namespace
}  // namespace tidepool
