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
       {"gather", "scatter_add", "one_hot", "flip", "triangle", "sort", "argsort", "top_k", "cumsum",
        "random_uniform", "random_normal", "random_bernoulli", "random_integers",
        "random_permutation", "dropout", "matmul", "sgd_update", "nesterovs_update", "adam_update"}) {
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
