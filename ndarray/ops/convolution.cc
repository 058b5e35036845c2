#include "tidepool/ndarray/ops/convolution.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/checks.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/nn_checks.h"

namespace tidepool {

Shape Conv2dOutputShape(const Shape& input, const Shape& filter, const Conv2dAttributes& a) {
  CheckRank4("conv2d", "input", input);
  CheckRank4("conv2d", "filter", filter);
  if (a.groups < 1 || input[3] != filter[3] * a.groups || filter[0] % a.groups != 0) {
    ThrowInvalidArgument(
        absl::StrCat("Op [conv2d]: input ", input.ToString(), " has ", input[3],
                     " channels, filter ", filter.ToString(), " has ", filter[3],
                     a.groups == 1 ? ""
                                   : absl::StrCat(" of each of ", a.groups, " groups, and ",
                                                  filter[0], " filters to divide among them")));
  }
  return {input[0],
          WindowCount("conv2d", "height", input[1], filter[1], a.stride_height, a.dilation_height,
                      SumOfPadding("conv2d", a.pad_top, a.pad_bottom)),
          WindowCount("conv2d", "width", input[2], filter[2], a.stride_width, a.dilation_width,
                      SumOfPadding("conv2d", a.pad_left, a.pad_right)),
          filter[0]};
}

NDArray Conv2d(const NDArray& input, const NDArray& filter, const NDArray* bias,
               const Conv2dAttributes& attributes) {
  CheckOperands(OpCode::kConv2d, {&input, &filter, bias});
  CheckFloating("conv2d", "input", input);
  CheckDType("conv2d", "filter", filter, input.dtype());
  const Shape output_shape = Conv2dOutputShape(input.shape(), filter.shape(), attributes);
  if (bias != nullptr) {
    CheckDType("conv2d", "bias", *bias, input.dtype());
    CheckShape("conv2d", "bias", *bias, {filter.dim(0)});
  }
  NDArray output(output_shape, input.dtype(),
                 ResultPlace(OpCode::kConv2d, {&input, &filter, bias}));
  if (input.NumElements() == 0 && output.NumElements() > 0) {  // images of no channels
    FillInto(0, output);
    if (bias != nullptr) AddInto(output, *bias, output);
    if (attributes.relu) ReluInto(output, output);
    return output;
  }
  Dispatch(OpCode::kConv2d, {&input, &filter, bias}, {&output}, &attributes);
  return output;
}

NDArray Conv2dGradInput(const NDArray& output_gradient, const NDArray& filter,
                        const Shape& input_shape, const Conv2dAttributes& attributes) {
  CheckOperands(OpCode::kConv2dGradInput, {&output_gradient, &filter});
  CheckFloating("conv2d_grad_input", "output_gradient", output_gradient);
  CheckDType("conv2d_grad_input", "filter", filter, output_gradient.dtype());
  CheckShape("conv2d_grad_input", "output_gradient", output_gradient,
             Conv2dOutputShape(input_shape, filter.shape(), attributes));
  NDArray input_gradient(input_shape, output_gradient.dtype(),
                         ResultPlace(OpCode::kConv2dGradInput, {&output_gradient, &filter}));
  if (output_gradient.NumElements() == 0) {  // of no filters
    FillInto(0, input_gradient);
    return input_gradient;
  }
  Dispatch(OpCode::kConv2dGradInput, {&output_gradient, &filter}, {&input_gradient}, &attributes);
  return input_gradient;
}

void Conv2dGradFilterInto(const NDArray& input, const NDArray& output_gradient,
                          NDArray& filter_gradient, const Conv2dAttributes& attributes) {
  CheckOperands(OpCode::kConv2dGradFilter, {&input, &output_gradient});
  filter_gradient.CheckAlive("conv2d_grad_filter", "filter_gradient");
  CheckFloating("conv2d_grad_filter", "input", input);
  CheckDType("conv2d_grad_filter", "output_gradient", output_gradient, input.dtype());
  CheckDType("conv2d_grad_filter", "filter_gradient", filter_gradient, input.dtype());
  CheckShape("conv2d_grad_filter", "output_gradient", output_gradient,
             Conv2dOutputShape(input.shape(), filter_gradient.shape(), attributes));
  Dispatch(OpCode::kConv2dGradFilter, {&input, &output_gradient}, {&filter_gradient}, &attributes);
}

}  // namespace tidepool
