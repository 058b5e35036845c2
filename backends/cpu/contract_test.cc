// Every kernel of the CPU backend against the reference.
#include <string>
#include <vector>

#include "tidepool/ndarray/testing/op_contract_suite.h"

namespace tidepool {
namespace {

std::vector<std::string> Gaps() {
  // Fill is the array layer's own; integer products, setting one element and one exchange after the
  // other (permutations) run on the reference.
  std::vector<std::string> gaps = {"fill *",    "matmul i32",           "matmul i64",
                                   "one_hot *", "random_permutation *", "batch_norm_running *"};
  // Operators of neural networks in f64 run on the reference.
  for (const char* op :
       {"conv2d", "conv2d_grad_input", "conv2d_grad_filter", "max_pool2d",
        "max_pool2d_grad", "average_pool2d", "average_pool2d_grad", "softmax",
        "log_softmax", "softmax_grad", "log_softmax_grad", "softmax_cross_entropy",
        "softmax_cross_entropy_grad", "dense_cross_entropy", "dense_cross_entropy_grad",
        "squared_error", "squared_error_grad", "binary_cross_entropy",
        "binary_cross_entropy_grad", "batch_norm", "batch_norm_inference",
        "batch_norm_grad", "layer_norm", "layer_norm_grad", "lstm_cell", "lstm_cell_grad",
        "gru_cell", "gru_cell_grad"}) {
    gaps.push_back(std::string(op) + " f64");
  }
  return gaps;
}

}  // namespace

const bool cpu_registered = RegisterOpContract({
    .provider = "cpu",
    .gaps = Gaps(),
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
