// oneDNN's kernels against the reference.
#include "tidepool/ndarray/testing/op_contract_suite.h"

namespace tidepool {

const bool registered = RegisterOpContract({
    .provider = "onednn",
    .only = {"matmul f32", "conv2d f32", "conv2d_grad_input f32", "conv2d_grad_filter f32"},
    // Empty operands, stacks of matrices; convolutions of which oneDNN has no right code or only
    // reference code.
    .may_refuse = {"matmul f32", "conv2d f32", "conv2d_grad_input f32", "conv2d_grad_filter f32"},
    .least_run = 0.4,
});

}  // namespace tidepool
