#include "tidepool/ndarray/capture/step_capture.h"

#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

constinit StepCaptureFactory factories[kDeviceTypes] = {};
thread_local constinit int captures = 0;  // under way on this thread

}  // namespace

StepCaptureRegistrar::StepCaptureRegistrar(DeviceType type, StepCaptureFactory factory) {
  StepCaptureFactory& known = factories[static_cast<int>(type)];
  if (known != nullptr) {
    std::fprintf(stderr, "tidepool: a second factory of captured steps for %s\n",
                 DeviceName(Device{type, 0}).c_str());
    std::abort();
  }
  known = factory;
}

bool CanCaptureSteps(Device device) { return factories[static_cast<int>(device.type)] != nullptr; }

std::unique_ptr<CapturedStep> NewCapturedStep(Device device) {
  const StepCaptureFactory factory = factories[static_cast<int>(device.type)];
  return factory != nullptr ? factory(device.index) : nullptr;
}

bool IsCapturingStep() { return captures > 0; }

void RefuseWhileCapturing(const char* op, const char* why) {
  if (captures == 0) return;
  ThrowFailedPrecondition(absl::StrCat("Op [", op, "]: not in a captured step: ", why));
}

CapturingThreadScope::CapturingThreadScope() { ++captures; }
CapturingThreadScope::~CapturingThreadScope() { --captures; }

}  // namespace tidepool
