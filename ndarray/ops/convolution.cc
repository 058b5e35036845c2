#include "tidepool/ndarray/ops/convolution.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/ops/checks.h"

namespace tidepool {
namespace {

void RequireRank4(const char* op, const char* operand, const Shape& shape) {
  if (shape.rank() == 4) return;
  ThrowInvalidArgument(absl::StrCat("Op [", op, "]: ", operand, " has shape ", shape.ToString(),
                                    ", expected rank 4"));
}

int64_t OutputSize(const char* op, const char* axis, int64_t in, int64_t kernel, int64_t stride,
                   int64_t dilation, int64_t pads) {
  if (kernel < 1 || stride < 1 || dilation < 1 || pads < 0) {
    ThrowInvalidArgument(absl::StrCat("Op [", op, "]: ", axis, ": kernel ", kernel, ", stride ",
                                      stride, ", dilation ", dilation, ", padding ", pads,
                                      "; expected at least 1, 1, 1 and 0"));
  }
  const int64_t covered = dilation * (kernel - 1) + 1;
  if (in + pads < covered) {
    ThrowInvalidArgument(absl::StrCat("Op [", op, "]: ", axis, ": the kernel covers ", covered,
                                      " of an input of ", in, " with ", pads, " padding"));
  }
  return (in + pads - covered) / stride + 1;
}

}  // namespace

Shape Conv2dOutputShape(const Shape& input, const Shape& filter, const Conv2dAttributes& a) {
  RequireRank4("conv2d", "input", input);
  RequireRank4("conv2d", "filter", filter);
  if (input[3] != filter[3]) {
    ThrowInvalidArgument(absl::StrCat("Op [conv2d]: input ", input.ToString(), " has ", input[3],
                                      " channels, filter ", filter.ToString(), " has ", filter[3]));
  }
  if (std::min({a.pad_top, a.pad_bottom, a.pad_left, a.pad_right}) < 0) {
    ThrowInvalidArgument("Op [conv2d]: a padding is negative");
  }
  return {input[0],
          OutputSize("conv2d", "height", input[1], filter[1], a.stride_height, a.dilation_height,
                     a.pad_top + a.pad_bottom),
          OutputSize("conv2d", "width", input[2], filter[2], a.stride_width, a.dilation_width,
                     a.pad_left + a.pad_right),
          filter[0]};
}

NDArray Conv2d(const NDArray& input, const NDArray& filter, const NDArray* bias,
               const Conv2dAttributes& attributes) {
  CheckOperands(OpCode::kConv2d, {&input, &filter, bias});
  CheckDType("conv2d", "input", input, DType::kFloat32);
  CheckDType("conv2d", "filter", filter, DType::kFloat32);
  NDArray output(Conv2dOutputShape(input.shape(), filter.shape(), attributes), DType::kFloat32);
  if (bias != nullptr) {
    CheckDType("conv2d", "bias", *bias, DType::kFloat32);
    CheckShape("conv2d", "bias", *bias, {filter.dim(0)});
  }
  Dispatch(OpCode::kConv2d, {&input, &filter, bias}, {&output}, &attributes);
  return output;
}

NDArray Conv2dGradInput(const NDArray& output_gradient, const NDArray& filter,
                        const Shape& input_shape, const Conv2dAttributes& attributes) {
  CheckOperands(OpCode::kConv2dGradInput, {&output_gradient, &filter});
  CheckDType("conv2d_grad_input", "output_gradient", output_gradient, DType::kFloat32);
  CheckDType("conv2d_grad_input", "filter", filter, DType::kFloat32);
  CheckShape("conv2d_grad_input", "output_gradient", output_gradient,
             Conv2dOutputShape(input_shape, filter.shape(), attributes));
  NDArray input_gradient(input_shape, DType::kFloat32);
  Dispatch(OpCode::kConv2dGradInput, {&output_gradient, &filter}, {&input_gradient}, &attributes);
  return input_gradient;
}

void Conv2dGradFilterInto(const NDArray& input, const NDArray& output_gradient,
                          NDArray& filter_gradient, const Conv2dAttributes& attributes) {
  CheckOperands(OpCode::kConv2dGradFilter, {&input, &output_gradient});
  filter_gradient.CheckAlive("conv2d_grad_filter", "filter_gradient");
  CheckDType("conv2d_grad_filter", "input", input, DType::kFloat32);
  CheckDType("conv2d_grad_filter", "output_gradient", output_gradient, DType::kFloat32);
  CheckDType("conv2d_grad_filter", "filter_gradient", filter_gradient, DType::kFloat32);
  CheckShape("conv2d_grad_filter", "output_gradient", output_gradient,
             Conv2dOutputShape(input.shape(), filter_gradient.shape(), attributes));
  Dispatch(OpCode::kConv2dGradFilter, {&input, &output_gradient}, {&filter_gradient}, &attributes);
}

Shape MaxPool2dOutputShape(const Shape& input, const Pool2dAttributes& a) {
  RequireRank4("max_pool2d", "input", input);
  return {input[0],
          OutputSize("max_pool2d", "height", input[1], a.kernel_height, a.stride_height, 1, 0),
          OutputSize("max_pool2d", "width", input[2], a.kernel_width, a.stride_width, 1, 0),
          input[3]};
}

NDArray MaxPool2d(const NDArray& input, const Pool2dAttributes& attributes) {
  CheckOperands(OpCode::kMaxPool2d, {&input});
  CheckDType("max_pool2d", "input", input, DType::kFloat32);
  NDArray output(MaxPool2dOutputShape(input.shape(), attributes), DType::kFloat32);
  Dispatch(OpCode::kMaxPool2d, {&input}, {&output}, &attributes);
  return output;
}

NDArray MaxPool2dGrad(const NDArray& input, const NDArray& output, const NDArray& output_gradient,
                      const Pool2dAttributes& attributes) {
  CheckOperands(OpCode::kMaxPool2dGrad, {&input, &output, &output_gradient});
  const Shape expected = MaxPool2dOutputShape(input.shape(), attributes);
  CheckShape("max_pool2d_grad", "output", output, expected);
  CheckShape("max_pool2d_grad", "output_gradient", output_gradient, expected);
  CheckDType("max_pool2d_grad", "input", input, DType::kFloat32);
  CheckDType("max_pool2d_grad", "output", output, DType::kFloat32);
  CheckDType("max_pool2d_grad", "output_gradient", output_gradient, DType::kFloat32);
  NDArray input_gradient(input.shape(), DType::kFloat32);
  Dispatch(OpCode::kMaxPool2dGrad, {&input, &output, &output_gradient}, {&input_gradient},
           &attributes);
  return input_gradient;
}

}  // namespace tidepool
