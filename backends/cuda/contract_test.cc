// Every kernel of the CUDA backend against the reference, on cuda:0: on a device where there is one,
// on an emulated one where this is linked with the emulation.
#include <string>
#include <vector>

#include "tidepool/ndarray/testing/op_contract_suite.h"

#ifndef TIDEPOOL_CONTRACT_SCALE
#define TIDEPOOL_CONTRACT_SCALE 0.25
#endif

namespace tidepool {
namespace {

// Operators without kernels here.
std::vector<std::string> Gaps() {
  std::vector<std::string> gaps;
  for (const char* op :
       {"conv2d", "conv2d_grad_input", "conv2d_grad_filter", "max_pool2d", "max_pool2d_grad",
        "average_pool2d", "average_pool2d_grad", "softmax", "log_softmax", "softmax_grad",
        "log_softmax_grad", "softmax_cross_entropy", "softmax_cross_entropy_grad",
        "dense_cross_entropy", "dense_cross_entropy_grad", "squared_error", "squared_error_grad",
        "binary_cross_entropy", "binary_cross_entropy_grad", "batch_norm", "batch_norm_inference",
        "batch_norm_grad", "batch_norm_running", "layer_norm", "layer_norm_grad", "lstm_cell",
        "lstm_cell_grad", "gru_cell", "gru_cell_grad", "sum", "prod", "mean", "variance", "norm1",
        "norm2", "norm_inf", "log_sum_exp", "max", "min", "any", "all", "argmax", "argmin", "sort",
        "argsort", "top_k", "cumsum"}) {
    gaps.push_back(std::string(op) + " *");
  }
  return gaps;
}

}  // namespace

const bool registered = RegisterOpContract({
    .provider = "cuda",
    .gaps = Gaps(),
    .device = Device{DeviceType::kCuda, 0},
    .cases = TIDEPOOL_CONTRACT_SCALE,
});

}  // namespace tidepool
