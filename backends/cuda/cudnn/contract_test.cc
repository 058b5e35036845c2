// Convolutions by the emulated cuDNN against the reference.
#include "tidepool/backends/cuda/emulation/emulated_cudnn.h"
#include "tidepool/backends/cuda/matmul/cublas.h"
#include "tidepool/ndarray/testing/op_contract_suite.h"

namespace tidepool {

const bool found = [] {
  SetEmulatedCudnn(EmulatedCudnn::kPresent);
  cuda::Cublas::set_tf32(
      true);  // without it filters' gradients of f32 are ours; emulated ones are exact
  return true;
}();

const bool registered = RegisterOpContract({
    .provider = "cudnn",
    .only = {"conv2d f32", "conv2d f16", "conv2d bf16", "conv2d_grad_input f32",
             "conv2d_grad_input f16", "conv2d_grad_input bf16", "conv2d_grad_filter f32",
             "conv2d_grad_filter f16", "conv2d_grad_filter bf16"},
    // Padding that differs between sides, empty batches, operands between vectors.
    .may_refuse = {"conv2d *", "conv2d_grad_input *", "conv2d_grad_filter *"},
    .least_run = 0.1,
    .device = Device{DeviceType::kCuda, 0},
    .cases = 0.3,
});

}  // namespace tidepool
