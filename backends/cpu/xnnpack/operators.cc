#include "tidepool/backends/cpu/xnnpack/operators.h"

#include <limits>

#include "tidepool/memory/provider/device_provider.h"

namespace tidepool::cpu {
namespace {

static_assert(XNN_EXTRA_BYTES <= kReadableTailBytes);

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr size_t kWorkspaceAlignment = 64;  // of a kernel's scratch

// Calls of XNNPACK below are templates over its operator type, so that a function or a form of one
// that this <xnnpack.h> lacks is no error in a branch that is not taken.
template <typename Op>
concept Reshapes = requires(Op op, size_t n) {
  xnn_reshape_softmax_nc_f32(op, n, n, n, n, nullptr);
};
template <typename Op>
concept SetsUpAtOnce = requires(Op op, size_t n) {
  xnn_setup_softmax_nc_f32(op, n, nullptr, nullptr, nullptr);
};
static_assert(Reshapes<xnn_operator_t> != SetsUpAtOnce<xnn_operator_t>,
              "XNNPACK's interface is neither that of 2022 nor that of 2024");

template <typename Op>
xnn_status FullyConnected(size_t k, size_t n, size_t stride, const float* weights,
                          const float* bias, float lowest, uint32_t flags, Op* op) {
  if constexpr (Reshapes<Op>) {
    return xnn_create_fully_connected_nc_f32(k, n, k, stride, weights, bias, lowest, kInfinity,
                                             flags,
                                             /*code_cache=*/nullptr, /*weights_cache=*/nullptr, op);
  } else {
    return xnn_create_fully_connected_nc_f32(k, n, k, stride, weights, bias, lowest, kInfinity,
                                             flags, op);
  }
}

template <typename Op>
xnn_status SetUpFullyConnected(Op op, size_t rows, const float* x, float* z) {
  if constexpr (Reshapes<Op>) {
    const xnn_status status = xnn_reshape_fully_connected_nc_f32(op, rows, nullptr);
    return status == xnn_status_success ? xnn_setup_fully_connected_nc_f32(op, x, z) : status;
  } else {
    return xnn_setup_fully_connected_nc_f32(op, rows, x, z, nullptr);
  }
}

template <typename Op>
xnn_status Convolution(const Conv2dProblem& p, const ConvolutionPart& part, const float* filter,
                       const float* bias, float lowest, Op* op) {
  const auto create = [&](auto... caches_and_op) {
    return xnn_create_convolution2d_nhwc_f32(
        p.pad_top, p.pad_right, p.pad_bottom, p.pad_left, p.kernel_height, p.kernel_width,
        p.stride_height, p.stride_width, p.dilation_height, p.dilation_width, part.groups, part.in,
        part.out, p.in_channels, p.out_channels, filter, bias, lowest, kInfinity, /*flags=*/0,
        caches_and_op...);
  };
  if constexpr (Reshapes<Op>) {
    return create(/*code_cache=*/nullptr, /*weights_cache=*/nullptr, op);
  } else {
    return create(op);
  }
}

template <typename Op>
xnn_status ReshapeConvolution(Op op, const Conv2dProblem& p, size_t* bytes) {
  *bytes = 0;
  if constexpr (Reshapes<Op>) {
    size_t alignment = 1, out_height, out_width;
    const xnn_status status = xnn_reshape_convolution2d_nhwc_f32(
        op, p.batch, p.in_height, p.in_width, bytes, &alignment, &out_height, &out_width, nullptr);
    if (status != xnn_status_success) return status;
    return alignment <= kWorkspaceAlignment ? status : xnn_status_unsupported_parameter;
  } else {
    return xnn_status_success;
  }
}

template <typename Op>
xnn_status SetUpConvolution(Op op, const Conv2dProblem& p, const float* x, float* z,
                            void* workspace) {
  if constexpr (Reshapes<Op>) {
    size_t bytes;
    const xnn_status status = ReshapeConvolution(op, p, &bytes);
    if (status != xnn_status_success) return status;
    if (bytes > 0 && workspace == nullptr) return xnn_status_invalid_parameter;
    return xnn_setup_convolution2d_nhwc_f32(op, workspace, x, z);
  } else {
    return xnn_setup_convolution2d_nhwc_f32(op, p.batch, p.in_height, p.in_width, x, z, nullptr);
  }
}

template <typename Op>
xnn_status Softmax(size_t n, Op* op) {
  if constexpr (Reshapes<Op>) {
    return xnn_create_softmax_nc_f32(/*flags=*/0, op);
  } else {
    return xnn_create_softmax_nc_f32(n, n, n, /*flags=*/0, op);
  }
}

template <typename Op>
xnn_status SetUpSoftmax(Op op, size_t rows, size_t n, const float* x, float* z) {
  if constexpr (Reshapes<Op>) {
    const xnn_status status = xnn_reshape_softmax_nc_f32(op, n, n, n, rows, nullptr);
    return status == xnn_status_success ? xnn_setup_softmax_nc_f32(op, x, z) : status;
  } else {
    return xnn_setup_softmax_nc_f32(op, rows, x, z, nullptr);
  }
}

xnn_status RunIf(xnn_status is_set_up, xnn_operator_t op) {
  return is_set_up == xnn_status_success ? xnn_run_operator(op, nullptr) : is_set_up;
}

}  // namespace

const char* XnnpackInterface() { return Reshapes<xnn_operator_t> ? "2024" : "2022"; }

xnn_status CreateFullyConnected(size_t inputs, size_t outputs, size_t stride, const float* weights,
                                const float* bias, float lowest, uint32_t flags,
                                xnn_operator_t* op) {
  return FullyConnected(inputs, outputs, stride, weights, bias, lowest, flags, op);
}

xnn_status RunFullyConnected(xnn_operator_t op, size_t rows, const float* x, float* z) {
  return RunIf(SetUpFullyConnected(op, rows, x, z), op);
}

xnn_status CreateConvolution(const Conv2dProblem& p, const ConvolutionPart& part,
                             const float* filter, const float* bias, float lowest,
                             xnn_operator_t* op) {
  return Convolution(p, part, filter, bias, lowest, op);
}

bool ConvolutionsTakeWorkspace() { return Reshapes<xnn_operator_t>; }

xnn_status ConvolutionWorkspace(xnn_operator_t op, const Conv2dProblem& p, size_t* bytes) {
  return ReshapeConvolution(op, p, bytes);
}

xnn_status RunConvolution(xnn_operator_t op, const Conv2dProblem& p, const float* x, float* z,
                          void* workspace) {
  return RunIf(SetUpConvolution(op, p, x, z, workspace), op);
}

xnn_status CreateSoftmax(size_t n, xnn_operator_t* op) { return Softmax(n, op); }

xnn_status RunSoftmaxRows(xnn_operator_t op, size_t rows, size_t n, const float* x, float* z) {
  return RunIf(SetUpSoftmax(op, rows, n, x, z), op);
}

}  // namespace tidepool::cpu
