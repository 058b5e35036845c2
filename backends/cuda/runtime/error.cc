#include "tidepool/backends/cuda/runtime/error.h"

#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_loss.h"
#include "tidepool/memory/provider/device_provider.h"

namespace tidepool::cuda {
namespace {

Device CurrentDevice() {
  int index = 0;
  if (cudaGetDevice(&index) != cudaSuccess) index = 0;
  return {DeviceType::kCuda, static_cast<uint8_t>(index % kMaxDevicesPerType)};
}

}  // namespace

std::string Describe(cudaError_t error, const char* call) {
  return std::string(call) + ": " + cudaGetErrorName(error) + ": " + cudaGetErrorString(error);
}

// By numbers: some are newer than the oldest runtime that this is built with.
bool IsSticky(cudaError_t error) {
  switch (static_cast<int>(error)) {
    case 214:  // cudaErrorECCUncorrectable
    case 220:  // cudaErrorNvlinkUncorrectable
    case 700:  // cudaErrorIllegalAddress
    case 702:  // cudaErrorLaunchTimeout
    case 710:  // cudaErrorAssert
    case 714:  // cudaErrorHardwareStackError
    case 715:  // cudaErrorIllegalInstruction
    case 716:  // cudaErrorMisalignedAddress
    case 717:  // cudaErrorInvalidAddressSpace
    case 718:  // cudaErrorInvalidPc
    case 719:  // cudaErrorLaunchFailure
    case 721:  // cudaErrorTensorMemoryLeak
      return true;
    default:
      return false;
  }
}

void ThrowIfCurrentIsLost(const char* call) {
  const Device device = CurrentDevice();
  if (DeviceProvider* const provider = FindDeviceProvider(device)) provider->ThrowIfLost(call);
}

void ThrowError(cudaError_t error, const char* call) {
  ForgetLastError(error);
  if (IsSticky(error)) {
    const Device device = CurrentDevice();
    LoseDevice(device, Describe(error, call));
    ThrowLost(device, call);
  }
  if (error == cudaErrorMemoryAllocation) ThrowResourceExhausted(Describe(error, call));
  ThrowInternal(Describe(error, call));
}

}  // namespace tidepool::cuda
