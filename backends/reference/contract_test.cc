// The contract of the reference and of the array layer's own fill and copy. The reference cannot be
// its own oracle: its values are tested in reference_test.cc.
#include "tidepool/ndarray/testing/op_contract_suite.h"

namespace tidepool {

const bool reference_registered = RegisterOpContract({
    .provider = "reference",
    .gaps = {"fill *", "copy *"},
});

const bool builtin_registered = RegisterOpContract({
    .provider = "builtin",
    .only = {"fill *", "copy *"},
});

}  // namespace tidepool
