#include "tidepool/ndarray/ops/convolution3d.h"

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/checks.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/nn_checks.h"

namespace tidepool {
namespace {

constexpr const char* kAxes[3] = {"depth", "height", "width"};

void CheckRank5(const char* op, const char* operand, const Shape& shape) {
  if (shape.rank() == 5) return;
  ThrowInvalidArgument(absl::StrCat("Op [", op, "]: ", operand, " has shape ", shape.ToString(),
                                    ", expected rank 5"));
}

void CheckChannels(const char* op, const Shape& input, const Shape& filter, int64_t channels,
                   int64_t groups) {
  if (groups >= 1 && channels == filter[4] * groups && filter[0] % groups == 0) return;
  ThrowInvalidArgument(absl::StrCat("Op [", op, "]: input ", input.ToString(), ", filter ",
                                    filter.ToString(), ", ", groups, " groups; expected ",
                                    filter[4],
                                    " channels for each group and a "
                                    "multiple of them of filters"));
}

void CheckBias(const char* op, const NDArray* bias, const NDArray& input, int64_t size) {
  if (bias == nullptr) return;
  CheckDType(op, "bias", *bias, input.dtype());
  CheckShape(op, "bias", *bias, {size});
}

Conv3dAttributes Linear(Conv3dAttributes attributes) {
  attributes.relu = false;
  return attributes;
}

}  // namespace

Shape Conv3dOutputShape(const Shape& input, const Shape& filter, const Conv3dAttributes& a) {
  CheckRank5("conv3d", "input", input);
  CheckRank5("conv3d", "filter", filter);
  CheckChannels("conv3d", input, filter, input[4], a.groups);
  int64_t out[3];
  for (int i = 0; i < 3; ++i) {
    out[i] = WindowCount("conv3d", kAxes[i], input[1 + i], filter[1 + i], a.stride[i],
                         a.dilation[i], SumOfPadding("conv3d", a.pad_before[i], a.pad_behind[i]));
  }
  return {input[0], out[0], out[1], out[2], filter[0]};
}

NDArray Conv3d(const NDArray& input, const NDArray& filter, const NDArray* bias,
               const Conv3dAttributes& attributes) {
  constexpr OpCode kOp = OpCode::kConv3d;
  CheckOperands(kOp, {&input, &filter, bias});
  CheckFloating("conv3d", "input", input);
  CheckDType("conv3d", "filter", filter, input.dtype());
  const Shape shape = Conv3dOutputShape(input.shape(), filter.shape(), attributes);
  CheckBias("conv3d", bias, input, filter.dim(0));
  NDArray output(shape, input.dtype(), ResultPlace(kOp, {&input, &filter, bias}));
  Dispatch(kOp, {&input, &filter, bias}, {&output}, &attributes);
  return output;
}

NDArray Conv3dGradInput(const NDArray& output_gradient, const NDArray& filter,
                        const Shape& input_shape, const Conv3dAttributes& attributes) {
  constexpr OpCode kOp = OpCode::kConv3dGradInput;
  CheckOperands(kOp, {&output_gradient, &filter});
  CheckFloating("conv3d_grad_input", "output_gradient", output_gradient);
  CheckDType("conv3d_grad_input", "filter", filter, output_gradient.dtype());
  CheckShape("conv3d_grad_input", "output_gradient", output_gradient,
             Conv3dOutputShape(input_shape, filter.shape(), attributes));
  NDArray gradient(input_shape, output_gradient.dtype(),
                   ResultPlace(kOp, {&output_gradient, &filter}));
  Dispatch(kOp, {&output_gradient, &filter}, {&gradient}, &attributes);
  return gradient;
}

void Conv3dGradFilterInto(const NDArray& input, const NDArray& output_gradient,
                          NDArray& filter_gradient, const Conv3dAttributes& attributes) {
  constexpr OpCode kOp = OpCode::kConv3dGradFilter;
  CheckOperands(kOp, {&input, &output_gradient});
  filter_gradient.CheckAlive("conv3d_grad_filter", "filter_gradient");
  CheckFloating("conv3d_grad_filter", "input", input);
  CheckDType("conv3d_grad_filter", "output_gradient", output_gradient, input.dtype());
  CheckDType("conv3d_grad_filter", "filter_gradient", filter_gradient, input.dtype());
  CheckShape("conv3d_grad_filter", "output_gradient", output_gradient,
             Conv3dOutputShape(input.shape(), filter_gradient.shape(), attributes));
  Dispatch(kOp, {&input, &output_gradient}, {&filter_gradient}, &attributes);
}

NDArray Conv3dTranspose(const NDArray& input, const NDArray& filter, const NDArray* bias,
                        const Conv3dAttributes& attributes, const OutputPadding3d& padding) {
  constexpr const char* kOp = "conv3d_transpose";
  input.CheckAlive(kOp, "input");
  filter.CheckAlive(kOp, "filter");
  if (bias != nullptr) bias->CheckAlive(kOp, "bias");
  CheckRank5(kOp, "input", input.shape());
  CheckRank5(kOp, "filter", filter.shape());
  if (attributes.groups < 1 || input.dim(4) != filter.dim(0)) {
    ThrowInvalidArgument(
        absl::StrCat("Op [", kOp, "]: input ", input.shape().ToString(), ", filter ",
                     filter.shape().ToString(), ", ", attributes.groups,
                     " groups; expected as many channels as filters and at least one group"));
  }
  int64_t sizes[3];
  for (int i = 0; i < 3; ++i) {
    const int64_t stride = attributes.stride[i];
    if (padding[i] < 0 || padding[i] >= stride) {
      ThrowInvalidArgument(absl::StrCat("Op [", kOp, "]: output padding of the ", kAxes[i], " is ",
                                        padding[i], ", expected from 0 to less than the stride, ",
                                        stride));
    }
    const int64_t pads = SumOfPadding(kOp, attributes.pad_before[i], attributes.pad_behind[i]);
    const int64_t covered = CoveredByWindow(kOp, kAxes[i], input.dim(1 + i), filter.dim(1 + i),
                                            stride, attributes.dilation[i], pads);
    sizes[i] = (input.dim(1 + i) - 1) * stride - pads + covered + padding[i];
    if (input.dim(1 + i) < 1 || sizes[i] < 1) {
      ThrowInvalidArgument(absl::StrCat("Op [", kOp, "]: input ", input.shape().ToString(),
                                        ", filter ", filter.shape().ToString(), " give a ",
                                        kAxes[i], " of ", sizes[i], ", expected at least 1"));
    }
  }
  const int64_t channels = filter.dim(4) * attributes.groups;
  CheckBias(kOp, bias, input, channels);
  NDArray output = Conv3dGradInput(
      input, filter, {input.dim(0), sizes[0], sizes[1], sizes[2], channels}, Linear(attributes));
  if (bias != nullptr) output += *bias;
  if (attributes.relu) ReluInto(output, output);
  return output;
}

NDArray Conv3dTransposeGradInput(const NDArray& output_gradient, const NDArray& filter,
                                 const Conv3dAttributes& attributes) {
  return Conv3d(output_gradient, filter, nullptr, Linear(attributes));
}

void Conv3dTransposeGradFilterInto(const NDArray& input, const NDArray& output_gradient,
                                   NDArray& filter_gradient, const Conv3dAttributes& attributes) {
  Conv3dGradFilterInto(output_gradient, input, filter_gradient, Linear(attributes));
}

}  // namespace tidepool
