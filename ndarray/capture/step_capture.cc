#include "tidepool/ndarray/capture/step_capture.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/device_check.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/provider_calls.h"

namespace tidepool {
namespace {

// By device type.
constinit std::atomic<StepCaptureFactory> factories[kMaxDeviceTypes] = {};
thread_local constinit int captures = 0;  // under way on this thread

}  // namespace

StepCaptureRegistrar::StepCaptureRegistrar(DeviceType type, StepCaptureFactory factory) {
  StepCaptureFactory known = nullptr;
  if (factories[type.number()].compare_exchange_strong(known, factory, std::memory_order_acq_rel)) {
    return;
  }
  std::fprintf(stderr, "tidepool: a second factory of captured steps for %s\n",
               DeviceName(Device{type, 0}).c_str());
  std::abort();
}

bool CanCaptureSteps(Device device) {
  return MayBeDevice(device) &&
         factories[device.type.number()].load(std::memory_order_acquire) != nullptr;
}

std::unique_ptr<CapturedStep> NewCapturedStep(Device device) {
  CheckDevice("NewCapturedStep", device);
  const StepCaptureFactory factory =
      factories[device.type.number()].load(std::memory_order_acquire);
  if (factory == nullptr) return nullptr;
  return AskProvider("NewCapturedStep", device, [&] { return factory(device.index); });
}

bool IsCapturingStep() { return captures > 0; }

void RefuseWhileCapturing(const char* op, const char* why) {
  if (captures == 0) return;
  ThrowFailedPrecondition(absl::StrCat("Op [", op, "]: not in a captured step: ", why));
}

CapturingThreadScope::CapturingThreadScope() { ++captures; }
CapturingThreadScope::~CapturingThreadScope() { --captures; }

}  // namespace tidepool
