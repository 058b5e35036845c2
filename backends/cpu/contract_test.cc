// Every kernel of the CPU backend against the reference.
#include <string>
#include <vector>

#include "tidepool/ndarray/testing/op_contract_suite.h"

namespace tidepool {
namespace {

std::vector<std::string> Gaps() {
  // Fill is the array layer's own; integer products, setting one element, one exchange after the other
  // (permutations), updates that may meet, products of what came before, searching, and reductions of u64 that depend on
  // its highest bit run on the reference.
  return {"fill *",
          "matmul i32",
          "matmul i64",
          "one_hot *",
          "random_permutation *",
          "scatter *",
          "batch_norm_running *",
          "cumprod *",
          "search_sorted *",
          "mean u64",
          "variance u64",
          "norm1 u64",
          "norm2 u64",
          "norm_inf u64",
          "max u64",
          "min u64",
          "argmax u64",
          "argmin u64"};
}

}  // namespace

const bool cpu_registered = RegisterOpContract({
    .provider = "cpu",
    .gaps = Gaps(),
});

const bool xnnpack_registered = RegisterOpContract({
    .provider = "xnnpack",
    .only = {"matmul f32", "conv2d f32", "softmax f32"},
    // Constant right sides, long rows, finite operands. Of the products drawn at random about one in fifteen (3 to 10 in
    // 100, by the seed) has its left side as it is, a constant right side and nothing to add to.
    .may_refuse = {"matmul f32", "conv2d f32", "softmax f32"},
    .least_run = 0.05,
});

}  // namespace tidepool
