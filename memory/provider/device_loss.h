// A device that is lost: after some errors (a kernel that used a wrong address, an uncorrectable error
// of its memory, a kernel that was stopped) a device refuses everything for as long as the process lives. CUDA
// calls them sticky. That is told as what it is, and never taken for lack of memory: nothing is
// reclaimed, spilled, tried again or done on the host in its place.
//
// Whoever sees such an error first says so, with its cause, and throws:
//
//   LoseDevice(device, "cudaEventQuery: cudaErrorIllegalAddress: an illegal ...");
//   ThrowLost(device, "cudaEventQuery");
//
// From then on operators on the device, copies from and to it, and refusals of its memory throw
// DeviceLostError with that cause, before anything is tried. Arrays there can still be released, closed and
// destroyed, quietly; what the host has of their bytes (mirrors that are fresh on the host) can be read. A device that was
// copying from it is lost as well, unless the copy had been seen to end (device_dependence.h).
//
// Which operator it was: a device tells late, at whichever call comes next. Where its provider knows the
// operator it is named; else those that were queued last in each compute queue, one of which, or one
// before them, it was.
//
// A device that there cannot be (memory/device_check.h) is never lost: LoseDevice and NoteOperation do nothing,
// CauseOfLoss and ThrowLost throw kInvalidArgument.
//
// Threads: any. Cost: one load to ask.
#ifndef TIDEPOOL_MEMORY_PROVIDER_DEVICE_LOSS_H_
#define TIDEPOOL_MEMORY_PROVIDER_DEVICE_LOSS_H_

#include <atomic>
#include <string>
#include <string_view>

#include "tidepool/memory/device.h"
#include "tidepool/memory/device_check.h"
#include "tidepool/memory/error.h"

namespace tidepool {

// Code kInternal, as of other failures of devices.
class DeviceLostError : public Error {
 public:
  DeviceLostError(Device device, std::string message)
      : Error(absl::StatusCode::kInternal, std::move(message)), device_(device) {}

  Device device() const { return device_; }  // which is lost
  // Whether this is asked for the first time of the device's loss, of whichever error: a program that tells of it where this
  // is true tells once. (Errors on the way of releases and the like end where they are.)
  bool is_first() const;

 private:
  Device device_;
};

namespace internal {
struct DeviceLoss;
extern std::atomic<DeviceLoss*> device_losses[kDevicePlaces];
// As LoseDevice, because `source` is lost, of which it has something that had not been seen to arrive.
bool LoseDependent(Device target, Device source) noexcept;
}  // namespace internal

// Whether LoseDevice was called for it.
inline bool IsLost(Device device) {
  if (device.index >= kMaxDevicesPerType) [[unlikely]]
    return false;
  const int place = device.type.number() * kMaxDevicesPerType + device.index;
  return internal::device_losses[place].load(std::memory_order_acquire) != nullptr;
}
// `cause` is what the device says; `operation`, if not null, the operator whose work failed. The first
// loss of a device is the one that is known; true when this is it.
bool LoseDevice(Device device, std::string_view cause, const char* operation = nullptr) noexcept;
// What LoseDevice was told; of a device that is lost.
const std::string& CauseOfLoss(Device device);
// `who` was about to use it, or found out. Of a device that is lost.
[[noreturn]] void ThrowLost(Device device, std::string_view who);
// ThrowLost where the device is lost.
inline void CheckNotLost(Device device, std::string_view who) {
  if (IsLost(device)) [[unlikely]]
    ThrowLost(device, who);
}

// `name`, which lives as long as the program, is about to be queued in that compute queue. Null: it is a new one.
void NoteOperation(Device device, int queue, const char* name) noexcept;
// What was noted last there; null: nothing yet, or there is no such queue.
const char* LastOperation(Device device, int queue) noexcept;

// As if it had never happened, for tests of devices that can be mended. While nothing else uses the device.
void ForgetLossForTesting(Device device) noexcept;

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PROVIDER_DEVICE_LOSS_H_
