#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/memory/testing/test_device.h"

namespace tidepool {

// With the host's alignment, so that the suites' byte counts hold.
Device TestDevice() {
  SimulatedDevice::Get().set_alignment(16);
  return SimulatedDevice::kDevice;
}

}  // namespace tidepool
