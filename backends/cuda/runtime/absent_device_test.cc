// Linked, but there is no device: FindDeviceProvider gives null, and the kernel table says why.
#include <string>

#include "gtest/gtest.h"
#include "tidepool/backends/cuda/emulation/emulated_cuda.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/ndarray/kernel/registry.h"

namespace tidepool {
namespace {

constexpr Device kCuda{DeviceType::kCuda, 0};

TEST(AbsentDevice, IsNotFoundAndSaysWhy) {
  EmulatedCuda::Get().set_devices(0);
  EXPECT_EQ(FindDeviceProvider(kCuda), nullptr);
  try {
    GetDeviceProvider(kCuda, "test");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kNotFound);
  }
  EXPECT_NE(KernelRegistry::Global().Notes().find(
                "cuda: not used: cudaGetDeviceCount: cudaErrorNoDevice: no CUDA-capable device"),
            std::string::npos)
      << KernelRegistry::Global().Notes();
  // A device that comes later is found by who looks again.
  EmulatedCuda::Get().set_devices(1);
  EXPECT_EQ(FindDeviceProvider(kCuda), nullptr);
  LookForDevicesAgain();
  ASSERT_NE(FindDeviceProvider(kCuda), nullptr);
  EXPECT_EQ(FindDeviceProvider({DeviceType::kCuda, 1}), nullptr);
  EXPECT_NE(KernelRegistry::Global().Notes().find("cuda: cuda:0 is emulated device 0, 1024 MiB"),
            std::string::npos)
      << KernelRegistry::Global().Notes();
}

}  // namespace
}  // namespace tidepool
