#include "tidepool/memory/provider/device_loss.h"

#include <memory>
#include <new>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/provider/device_dependence.h"
#include "tidepool/memory/provider/device_provider.h"

namespace tidepool {

namespace internal {

struct DeviceLoss {
  std::string cause, operators;
  std::atomic<bool> told{false};
  DeviceLoss* forgotten_before = nullptr;
};

constinit std::atomic<DeviceLoss*> device_losses[kDevicePlaces] = {};

}  // namespace internal

namespace {

using internal::device_losses;
using internal::DeviceLoss;

constinit std::atomic<const char*> last_operations[kDevicePlaces][kMostQueues] = {};

// Of a device that there may be.
int PlaceOf(Device device) { return device.type.number() * kMaxDevicesPerType + device.index; }

// Null: it is not lost.
DeviceLoss* LossOf(Device device) {
  return MayBeDevice(device) ? device_losses[PlaceOf(device)].load(std::memory_order_acquire)
                             : nullptr;
}

// Null: there is no such queue.
std::atomic<const char*>* LastOperationOf(Device device, int queue) {
  const bool there_may_be = MayBeDevice(device) && queue >= 0 && queue < kMostQueues;
  return there_may_be ? &last_operations[PlaceOf(device)][queue] : nullptr;
}

std::string DescribeOperators(Device device, const char* operation) {
  if (operation != nullptr) return absl::StrCat("the operator that failed is [", operation, "]");
  std::string queued;
  for (int queue = 0; queue < kMostQueues; ++queue) {
    const char* const name = LastOperation(device, queue);
    if (name == nullptr) continue;
    absl::StrAppend(&queued, queued.empty() ? "" : ", ", "[", name, "] in queue ", queue);
  }
  if (queued.empty()) return "no operator had been queued";
  return absl::StrCat("it was one of the operators queued last, or one before them: ", queued);
}

// Loses it for what `describe` writes into cause and operators.
template <typename Describe>
bool Lose(Device device, const Describe& describe) noexcept {
  if (!MayBeDevice(device)) return false;
  std::atomic<DeviceLoss*>& known = device_losses[PlaceOf(device)];
  if (known.load(std::memory_order_acquire) != nullptr) return false;
  static DeviceLoss unknown;  // without memory to write the cause down
  DeviceLoss* loss = &unknown;
  try {
    auto made = std::make_unique<DeviceLoss>();
    describe(*made);
    loss = made.release();
  } catch (const std::bad_alloc&) {
  }
  DeviceLoss* none = nullptr;
  if (known.compare_exchange_strong(none, loss, std::memory_order_acq_rel)) return true;
  if (loss != &unknown) delete loss;
  return false;
}

}  // namespace

bool LoseDevice(Device device, std::string_view cause, const char* operation) noexcept {
  const bool first = Lose(device, [&](DeviceLoss& loss) {
    loss.cause = cause;
    loss.operators = absl::StrCat("; ", DescribeOperators(device, operation));
  });
  if (first) internal::LoseDependents(device);
  return first;
}

// Its own operators are not to blame.
bool internal::LoseDependent(Device target, Device source) noexcept {
  return Lose(target, [&](DeviceLoss& loss) {
    const DeviceLoss* const first = LossOf(source);
    loss.cause = absl::StrCat("a copy from ", DeviceName(source),
                              " had not been seen to end when that was lost");
    if (first != nullptr) absl::StrAppend(&loss.cause, " (", first->cause, first->operators, ")");
  });
}

bool DeviceLostError::is_first() const {
  DeviceLoss* const loss = LossOf(device_);
  return loss != nullptr && !loss->told.exchange(true, std::memory_order_relaxed);
}

const std::string& CauseOfLoss(Device device) {
  CheckDevice("CauseOfLoss", device);
  return LossOf(device)->cause;
}

void ThrowLost(Device device, std::string_view who) {
  CheckDevice(std::string(who).c_str(), device);
  const DeviceLoss& loss = *LossOf(device);
  throw DeviceLostError(
      device, absl::StrCat(std::string(who), ": ", DeviceName(device), " is lost: ", loss.cause,
                           loss.operators,
                           "; what its memory holds is gone, and nothing is done on it any more "
                           "in this process"));
}

void NoteOperation(Device device, int queue, const char* name) noexcept {
  if (std::atomic<const char*>* const last = LastOperationOf(device, queue)) {
    last->store(name, std::memory_order_relaxed);
  }
}

const char* LastOperation(Device device, int queue) noexcept {
  const std::atomic<const char*>* const last = LastOperationOf(device, queue);
  return last != nullptr ? last->load(std::memory_order_relaxed) : nullptr;
}

void ForgetLossForTesting(Device device) noexcept {
  if (!MayBeDevice(device)) return;
  // Not destroyed: somebody may be telling of it.
  static constinit std::atomic<DeviceLoss*> forgotten{nullptr};
  DeviceLoss* const loss =
      device_losses[PlaceOf(device)].exchange(nullptr, std::memory_order_acq_rel);
  if (loss != nullptr && loss->forgotten_before == nullptr) {
    loss->forgotten_before = forgotten.exchange(loss, std::memory_order_relaxed);
  }
  internal::ForgetDependencesForTesting(device);
}

}  // namespace tidepool
