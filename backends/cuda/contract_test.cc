// Every kernel of the CUDA backend against the reference, on cuda:0: on a device where there is one,
// on an emulated one where this is linked with the emulation.
#include <set>
#include <string>
#include <vector>

#include "tidepool/ndarray/kernel/op_code.h"
#include "tidepool/ndarray/testing/op_contract_suite.h"

#ifndef TIDEPOOL_CONTRACT_SCALE
#define TIDEPOOL_CONTRACT_SCALE 0.25
#endif

namespace tidepool {
namespace {

// These run on the host, on copies; of i16, u16, u32 and u64 all but moves.
std::vector<std::string> Gaps() {
  std::vector<std::string> gaps = {
      "cumprod *",         "scatter *",           "search_sorted *",
      "conv3d *",          "conv3d_grad_input *", "conv3d_grad_filter *",
      "resize2d *",        "resize2d_grad *",     "group_norm *",
      "group_norm_grad *", "ctc_loss *",          "ctc_loss_grad *"};
  const std::set<std::string> moves = {"fill",    "copy", "where",   "gather",
                                       "one_hot", "flip", "triangle"};
  for (int i = 0; i < OperatorCount(); ++i) {
    const OperatorInfo& info = Info(static_cast<OpCode>(i));
    const bool compares_bits =
        info.name == std::string("equal") || info.name == std::string("not_equal");
    for (const DType dtype : {DType::kInt16, DType::kUInt16, DType::kUInt32, DType::kUInt64}) {
      if (!Contains(info.types, dtype) || moves.count(info.name) > 0) continue;
      if (compares_bits && DTypeBytes(dtype) > 2) continue;
      gaps.push_back(std::string(info.name) + " " + DTypeName(dtype));
    }
  }
  return gaps;
}

}  // namespace

const bool registered = RegisterOpContract({
    .provider = "cuda",
    .gaps = Gaps(),
    .may_refuse = {"copy *"},  // to and from types that are only moved
    // The programming guide allows the device's expf 2 ulp (of at most 1.2e-7) and log1pf 1. What is made of them rounds once
    // for the sum and once for the quotient or product, whether or not the compiler makes one of two; the reference once.
    // mean + deviation * sqrt(-2 log(u)) * cos(2 pi v) in double: the programming guide allows the device's log 1 ulp, its
    // cos and sin 2; with the host's own and the roundings between them less than 6 of the second term. The mean, of at
    // most 3 in the cases, may cancel that.
    .close = {{"exp f32", 3e-7, 1e-44},
              {"sigmoid f32", 4.2e-7, 1e-44},
              {"softplus f32", 4.8e-7, 1e-44},
              {"swish f32", 4.8e-7, 2e-43},
              {"random_normal f64", 6e-7, 2e-6}},
    .device = Device{DeviceType::kCuda, 0},
    .cases = TIDEPOOL_CONTRACT_SCALE,
});

// Where there is a cuDNN; elsewhere it refuses all.
const bool cudnn_registered = RegisterOpContract({
    .provider = "cudnn",
    .only = {"conv2d f32", "conv2d f16", "conv2d bf16", "conv2d_grad_input f32",
             "conv2d_grad_input f16", "conv2d_grad_input bf16", "conv2d_grad_filter f32",
             "conv2d_grad_filter f16", "conv2d_grad_filter bf16"},
    .may_refuse = {"conv2d *", "conv2d_grad_input *", "conv2d_grad_filter *"},
    .least_run = 0,
    .device = Device{DeviceType::kCuda, 0},
    .cases = TIDEPOOL_CONTRACT_SCALE,
});

}  // namespace tidepool
