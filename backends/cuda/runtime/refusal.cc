#include "tidepool/backends/cuda/runtime/refusal.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/backends/cuda/runtime/driver_memory.h"
#include "tidepool/backends/cuda/runtime/error.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_loss.h"

namespace tidepool::cuda {
namespace {

struct Reason {
  const char* call = nullptr;  // null: there is none
  Device device = {};
  int error = 0;
  bool of_driver = false;
};
thread_local constinit Reason reason;

}  // namespace

void ForgetRefusal() noexcept { reason.call = nullptr; }

void NoteRefusal(Device device, cudaError_t error, const char* call) noexcept {
  ForgetLastError(error);
  if (error == cudaErrorMemoryAllocation) return ForgetRefusal();
  reason = {call, device, static_cast<int>(error), false};
  try {
    if (IsSticky(error)) LoseDevice(device, Describe(error, call));
  } catch (...) {  // no memory for the words: ThrowIfLost asks the device
  }
}

void NoteRefusal(Device device, CUresult error, const char* call) noexcept {
  if (error == CUDA_ERROR_OUT_OF_MEMORY) return ForgetRefusal();
  reason = {call, device, static_cast<int>(error), true};
}

void ThrowIfRefused(Device device, const std::string& who) {
  if (reason.call == nullptr || reason.device != device) return;
  const char* const call = std::exchange(reason.call, nullptr);
  const std::string words = reason.of_driver
                                ? DescribeDriver(static_cast<CUresult>(reason.error), call)
                                : Describe(static_cast<cudaError_t>(reason.error), call);
  ThrowInternal(absl::StrCat(who, ": ", DeviceName(device), ": ", words));
}

}  // namespace tidepool::cuda
