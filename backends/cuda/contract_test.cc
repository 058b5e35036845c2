// Every kernel of the CUDA backend against the reference, on cuda:0: on a device where there is one,
// on an emulated one where this is linked with the emulation.
#include "tidepool/ndarray/testing/op_contract_suite.h"

#ifndef TIDEPOOL_CONTRACT_SCALE
#define TIDEPOOL_CONTRACT_SCALE 0.25
#endif

namespace tidepool {

// These run on the host, on copies.
const bool registered = RegisterOpContract({
    .provider = "cuda",
    .gaps = {"cumprod *", "scatter *", "search_sorted *", "attention *", "attention_grad *", "conv3d *", "conv3d_grad_input *",
             "conv3d_grad_filter *", "resize2d *", "resize2d_grad *", "rms_norm *", "rms_norm_grad *", "group_norm *",
             "group_norm_grad *", "sgd_update f64", "nesterovs_update f64", "absolute_error *", "absolute_error_grad *", "huber_error *", "huber_error_grad *",
             "ctc_loss *", "ctc_loss_grad *", "adagrad_update f64", "rms_prop_update f64", "adam_update f64"},
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
