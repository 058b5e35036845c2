// Captured steps: a device's work that is queued once and launched again with one call.
//
// A backend whose device can do that plugs it in by linking a target that is alwayslink and holds
//
//   const StepCaptureRegistrar registrar(DeviceType::kCuda, &MakeCapturedStep);
//
// Code above asks NewCapturedStep(device) and is told null where there is none: the host and the
// simulated device. ReplayedStep (replayed_step.h) is what programs use.
//
// While a step is captured nothing of it is done, so nothing of it may be read by the host, and what
// the host computes from call to call (a step number, the stream of random numbers) would be the same
// in every replay. Operators that cannot be right then throw by RefuseWhileCapturing.
// Threads: registration at any time; a captured step is one thread's at a time.
#ifndef TIDEPOOL_NDARRAY_CAPTURE_STEP_CAPTURE_H_
#define TIDEPOOL_NDARRAY_CAPTURE_STEP_CAPTURE_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "tidepool/memory/device.h"

namespace tidepool {

class CapturedStep {
 public:
  // Waits for launches under way.
  virtual ~CapturedStep() = default;

  // Calls `step`, which queues work, and keeps that work instead of doing it; what was captured before
  // is gone. Throws what `step` throws, kFailedPrecondition when it waits or asks for memory, kInternal
  // when the device refuses; then nothing is captured and the device is as before.
  virtual void Capture(absl::FunctionRef<void()> step) = 0;
  // Queues what was captured, behind what is queued already. Throws kInternal when the device refuses;
  // nothing is queued then.
  virtual void Launch() = 0;
  // What was captured goes, after the launches under way. Throws what waiting for them throws, as of a
  // device that is lost; it is gone then as well.
  virtual void Forget() = 0;
  virtual size_t nodes() const = 0;  // kernels, copies and fills of it
};

using StepCaptureFactory = std::unique_ptr<CapturedStep> (*)(uint8_t index);

class StepCaptureRegistrar {
 public:
  // A second factory of one type ends the program.
  StepCaptureRegistrar(DeviceType type, StepCaptureFactory factory);
};

// Whether steps of that device can be captured.
bool CanCaptureSteps(Device device);
// Null when they cannot. Throws kNotFound without such a device, kInvalidArgument for one that there cannot be, and
// what the device's factory throws, as an Error.
std::unique_ptr<CapturedStep> NewCapturedStep(Device device);

// Whether the calling thread is capturing.
bool IsCapturingStep();
// Throws kFailedPrecondition then: "Op [dropout]: not in a captured step: <why>".
void RefuseWhileCapturing(const char* op, const char* why);

// For implementations: the calling thread captures from here to the end of the block.
class CapturingThreadScope {
 public:
  CapturingThreadScope();
  ~CapturingThreadScope();
  CapturingThreadScope(const CapturingThreadScope&) = delete;
  CapturingThreadScope& operator=(const CapturingThreadScope&) = delete;
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_CAPTURE_STEP_CAPTURE_H_
