#include "tidepool/ndarray/testing/op_contract_suite.h"

namespace tidepool {

const bool registered = RegisterOpContract({
    .provider = "square",
    .only = {"add f32", "subtract f32", "multiply f32"},
});

}  // namespace tidepool
