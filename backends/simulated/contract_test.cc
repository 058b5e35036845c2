// Every operator on simulated:0, whose memory the host cannot touch: what the array layer does around
// the kernels (copies, views, scratch, workspaces of the device), as the kernels are the reference's.
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/ndarray/testing/op_contract_suite.h"

namespace tidepool {

const bool registered = RegisterOpContract({
    .provider = "simulated",
    .device = SimulatedDevice::kDevice,
    .cases = 0.025,
});

}  // namespace tidepool
