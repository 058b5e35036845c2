// Sticky errors of CUDA: the device is lost, and that is what everybody is told.
#include <functional>
#include <string>

#include "cuda_runtime_api.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/backends/cuda/emulation/emulated_cuda.h"
#include "tidepool/backends/cuda/runtime/cuda_device.h"
#include "tidepool/backends/cuda/runtime/error.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_loss.h"
#include "tidepool/memory/provider/device_queue.h"
#include "tidepool/memory/workspace/ring.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/matmul.h"

namespace tidepool {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const Device kDevice{DeviceType::kCuda, 0};

NDArray Filled(float value, Place place = Place::On(kDevice)) {
  return Full({64, 64}, value, DType::kFloat32, place);
}

class DeviceLossOnCudaTest : public testing::Test {
 protected:
  void SetUp() override { Filled(1).ToVector<float>(); }
  void TearDown() override {
    EmulatedCuda::Get().set_lost(false);
    EmulatedCuda::Get().kernel_faults().Clear();
    ForgetLossForTesting(kDevice);
    EXPECT_EQ(Add(Filled(1), Filled(2)).At<float>({1, 1}), 3);
  }
};

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const DeviceLostError& error) {
    EXPECT_EQ(error.device(), kDevice);
    return std::string(error.is_first() ? "first: " : "then: ") + error.message();
  } catch (const Error& error) {
    return "another error: " + error.message();
  }
  return "nothing was thrown";
}

TEST_F(DeviceLossOnCudaTest, AKernelPoisonsTheDevice) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    EmulatedCuda::Get().set_seed(seed);
    NDArray x = Filled(2), z = Filled(0);
    Workspace workspace("kept", WorkspaceConfig::Training(), kDevice);
    Workspace empty("empty", WorkspaceConfig::Training(), kDevice);
    RingWorkspace ring("ring", WorkspaceConfig::Ring(2), kDevice);
    for (int cycle = 0; cycle < 4; ++cycle) {
      WorkspaceScope scope(workspace);
      Filled(1, Place::CurrentOn(kDevice));
    }
    x.ToVector<float>();
    EmulatedCuda::Get().kernel_faults().FailRequest(1);
    z = Add(x, x);
    z -= x;  // poisons
    z *= x;
    EXPECT_THAT(MessageOf([&] { z.ToVector<float>(); }),
                testing::MatchesRegex(
                    "first: cuda.*: cuda:0 is lost: cuda[A-Za-z]*: cudaErrorIllegalAddress: an "
                    "illegal memory access was encountered; it was one of the operators queued "
                    "last, or one before them: .*\\[multiply\\] in queue 0.*"));
    int reclaims = 0;
    const Reclaimer::Registration watch = Reclaimer::Global().Register(
        "watch", [&](ReclaimDepth) -> int64_t { return ++reclaims, 0; });
    const uint64_t fallbacks = MemoryTracker::Global().Snapshot().host_fallbacks;
    const auto fails = [&](const char* what, const std::function<void()>& call) {
      EXPECT_THAT(MessageOf(call), StartsWith("then: ")) << what;
      EXPECT_THAT(MessageOf(call), HasSubstr("cuda:0 is lost: cuda")) << what;
    };
    fails("an operator", [&] { z += x; });
    fails("an operator of cuBLAS", [&] { MatMulInto(x, x, z); });
    fails("an array", [&] { Filled(1); });
    fails("a copy", [&] { x.To(Host()); });
    fails("a queue", [&] { DeviceQueue::New(kDevice); });
    fails("the page-locked memory", [&] {
      DeviceProvider& pinned = *GetDeviceProvider(kDevice, "test").PinnedHost();
      EXPECT_EQ(pinned.Allocate(100 << 20, 256), nullptr);
      pinned.ThrowIfLost("pinned");
    });
    for (Workspace* of : {&workspace, &empty}) {
      fails("a workspace", [&] {
        WorkspaceScope scope(*of);
        Filled(1, Place::CurrentOn(kDevice));
      });
    }
    fails("a ring", [&] {
      RingSlotScope slot(ring);
      Filled(1, Place::CurrentOn(kDevice));
    });
    EXPECT_EQ(reclaims, 0);
    EXPECT_EQ(MemoryTracker::Global().Snapshot().host_fallbacks, fallbacks);
    EmulatedCuda::Get().set_lost(false);
    EmulatedCuda::Get().kernel_faults().Clear();
    ForgetLossForTesting(kDevice);
  }
}

// A refusal of memory may be the first that shows it.
TEST_F(DeviceLossOnCudaTest, ARefusalOfMemoryIsLookedAt) {
  Workspace workspace("pages", WorkspaceConfig::Training(), kDevice);
  EmulatedCuda::Get().set_lost(true);
  EXPECT_THAT(MessageOf([] { NDArray(Shape{100}, DType::kFloat32, Place::On(kDevice)); }),
              testing::AllOf(StartsWith("first: heap: cuda:0 is lost: cuda"),
                             HasSubstr("cudaErrorIllegalAddress")));
  ForgetLossForTesting(kDevice);
  EXPECT_THAT(MessageOf([&] {
                WorkspaceScope scope(workspace);
                NDArray(Shape{100}, DType::kFloat32, Place::CurrentOn(kDevice));
              }),
              HasSubstr("cuda:0 is lost: cudaStreamQuery: cudaErrorIllegalAddress"));
  EmulatedCuda::Get().set_lost(false);
}

// Out of memory and other refusals are none.
TEST_F(DeviceLossOnCudaTest, OtherErrorsAreNoLoss) {
  EmulatedCuda::Get().call_faults().FailRequest(0, 1);
  EXPECT_THAT(MessageOf([] { cuda::CudaDevice::Find(0)->ComputePoint(0); }),
              testing::AllOf(StartsWith("another error: "), HasSubstr("cudaErrorUnknown")));
  EmulatedCuda::Get().call_faults().Clear();
  EmulatedCuda::Get().allocation_faults().FailRequest(0, 100);
  EXPECT_THAT(MessageOf([] { NDArray(Shape{100 << 20}, DType::kFloat32, Place::On(kDevice)); }),
              StartsWith("another error: "));
  EmulatedCuda::Get().allocation_faults().Clear();
  EXPECT_FALSE(IsLost(kDevice));
  for (const int sticky : {214, 220, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721}) {
    EXPECT_TRUE(cuda::IsSticky(static_cast<cudaError_t>(sticky))) << sticky;
  }
  for (const int passing : {0, 1, 2, 3, 9, 35, 100, 101, 400, 600, 701, 801, 900, 999}) {
    EXPECT_FALSE(cuda::IsSticky(static_cast<cudaError_t>(passing))) << passing;
  }
}

}  // namespace
}  // namespace tidepool
