// What a device's kernels find wrong with values they are given: an index that is outside, a zero that integers are
// divided by. On the host such values are looked at before an operator begins; bringing those of a device to the host
// would wait for it at each call. So the kernels of a device that checks values look themselves: they neither read nor
// write outside, put zeros where nothing is to be had, and make a note in their compute queue, of the first fault in
// the order of the queue. The host is told when it next waits for that queue: when it reads values of an array that was
// used there, or DeviceQueue::Wait()s for it. That call throws kInvalidArgument with operator, position, found and
// expected, once; what was queued has been done, and calls after it go on.
//
// A backend whose kernels do that says so by linking a target that is alwayslink and holds
//
//   const ValueFaultRegistrar registrar(DeviceType::kCuda, &ThrowFound);
//
// Threads: any. Cost: a load to ask where no backend does.
#ifndef TIDEPOOL_MEMORY_PROVIDER_VALUE_FAULTS_H_
#define TIDEPOOL_MEMORY_PROVIDER_VALUE_FAULTS_H_

#include <atomic>
#include <cstdint>

#include "tidepool/memory/device.h"

namespace tidepool {

// Throws what has been found in one of the queues (a bit each), by work that has been waited for, and forgets it.
// Returns when there is nothing. Of a device that there is.
using ThrowValueFaultsFunction = void (*)(Device device, uint32_t queues);

namespace internal {
extern std::atomic<ThrowValueFaultsFunction> value_fault_functions[kMaxDeviceTypes];
}

class ValueFaultRegistrar {
 public:
  ValueFaultRegistrar(DeviceType type, ThrowValueFaultsFunction function) {
    internal::value_fault_functions[type.number()].store(function, std::memory_order_release);
  }
};

// Whether the device's kernels look at the values that operators say they check.
inline bool ChecksValues(Device device) {
  return internal::value_fault_functions[device.type.number()].load(std::memory_order_acquire) !=
         nullptr;
}

// Behind a wait for those queues.
inline void ThrowValueFaults(Device device, uint32_t queues) {
  const auto function =
      internal::value_fault_functions[device.type.number()].load(std::memory_order_acquire);
  if (function != nullptr) function(device, queues);
}

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PROVIDER_VALUE_FAULTS_H_
