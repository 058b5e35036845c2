#include "tidepool/memory/provider/value_faults.h"

namespace tidepool::internal {

constinit std::atomic<ThrowValueFaultsFunction> value_fault_functions[kMaxDeviceTypes] = {};

}  // namespace tidepool::internal
