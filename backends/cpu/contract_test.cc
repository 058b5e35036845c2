// Every kernel of the CPU backend against the reference.
#include "tidepool/ndarray/testing/op_contract_suite.h"

namespace tidepool {

const bool cpu_registered = RegisterOpContract({
    .provider = "cpu",
    // Fill is the array layer's own; integers are added up by the reference.
    .gaps = {"fill *", "sum i64", "argmax i64"},
});

const bool xnnpack_registered = RegisterOpContract({
    .provider = "xnnpack",
    .only = {"matmul f32", "conv2d f32", "softmax f32"},
    // Constant right sides, long rows, finite operands, one thread. Of the products drawn at random
    // one in eight has its left side as it is, a constant right side and nothing to add to.
    .may_refuse = {"matmul f32", "conv2d f32", "softmax f32"},
    .least_run = 0.05,
});

}  // namespace tidepool
