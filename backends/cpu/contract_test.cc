// Every kernel of the CPU backend against the reference.
#include "tidepool/ndarray/testing/op_contract_suite.h"

namespace tidepool {

const bool cpu_registered = RegisterOpContract({
    .provider = "cpu",
    // Integer arithmetic runs on the reference; fill and copy are the array layer's own.
    .gaps = {"fill *", "copy *", "add i64", "subtract i64", "multiply i64", "divide i64",
             "scale_shift i64",
             // Filling and setting one element is what the reference does.
             "one_hot *",
             // One exchange after the other.
             "random_permutation *"},
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
