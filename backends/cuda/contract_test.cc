// Every kernel of the CUDA backend against the reference, on cuda:0: on a device where there is one,
// on an emulated one where this is linked with the emulation.
#include "tidepool/ndarray/testing/op_contract_suite.h"

#ifndef TIDEPOOL_CONTRACT_SCALE
#define TIDEPOOL_CONTRACT_SCALE 0.25
#endif

namespace tidepool {

const bool registered = RegisterOpContract({
    .provider = "cuda",
    .device = Device{DeviceType::kCuda, 0},
    .cases = TIDEPOOL_CONTRACT_SCALE,
});

}  // namespace tidepool
