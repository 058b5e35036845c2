#include "tidepool/ndarray/ops/convolution_transpose.h"

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/checks.h"
#include "tidepool/ndarray/ops/convolution.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/nn_checks.h"

namespace tidepool {
namespace {

constexpr char kName[] = "conv2d_transpose";

int64_t OutputSize(const char* axis, int64_t in, int64_t kernel, int64_t stride, int64_t dilation,
                   int64_t pads, int64_t output_padding) {
  if (in < 1 || kernel < 1 || stride < 1 || dilation < 1) {
    ThrowInvalidArgument(absl::StrCat("Op [", kName, "]: ", axis, ": input ", in, ", kernel ",
                                      kernel, ", stride ", stride, ", dilation ", dilation,
                                      "; expected at least 1 each"));
  }
  if (output_padding < 0 || output_padding >= stride) {
    ThrowInvalidArgument(absl::StrCat("Op [", kName, "]: ", axis, ": output padding ",
                                      output_padding, ", expected 0 to ", stride - 1));
  }
  const int64_t covered = CoveredByWindow(kName, axis, in, kernel, stride, dilation, pads);
  const int64_t size = (in - 1) * stride - pads + covered + output_padding;
  if (size < 1) {
    ThrowInvalidArgument(absl::StrCat("Op [", kName, "]: ", axis, ": padding ", pads,
                                      " leaves nothing of the output"));
  }
  return size;
}

// A convolution whose attributes are those of a gradient.
Conv2dAttributes WithoutRelu(Conv2dAttributes attributes) {
  attributes.relu = false;
  return attributes;
}

}  // namespace

Shape Conv2dTransposeOutputShape(const Shape& input, const Shape& filter, const Conv2dAttributes& a,
                                 OutputPadding padding) {
  CheckRank4(kName, "input", input);
  CheckRank4(kName, "filter", filter);
  if (input[3] != filter[0]) {
    ThrowInvalidArgument(absl::StrCat("Op [", kName, "]: input ", input.ToString(), " has ",
                                      input[3], " channels, filter ", filter.ToString(), " has ",
                                      filter[0], " filters"));
  }
  return {input[0],
          OutputSize("height", input[1], filter[1], a.stride_height, a.dilation_height,
                     SumOfPadding(kName, a.pad_top, a.pad_bottom), padding.height),
          OutputSize("width", input[2], filter[2], a.stride_width, a.dilation_width,
                     SumOfPadding(kName, a.pad_left, a.pad_right), padding.width),
          filter[3] * a.groups};
}

NDArray Conv2dTranspose(const NDArray& input, const NDArray& filter, const NDArray* bias,
                        const Conv2dAttributes& attributes, OutputPadding padding) {
  input.CheckAlive(kName, "input");
  filter.CheckAlive(kName, "filter");
  if (bias != nullptr) bias->CheckAlive(kName, "bias");
  CheckFloating(kName, "input", input);
  CheckDType(kName, "filter", filter, input.dtype());
  const Shape shape =
      Conv2dTransposeOutputShape(input.shape(), filter.shape(), attributes, padding);
  if (bias != nullptr) {
    CheckShape(kName, "bias", *bias, {shape[3]});
    CheckDType(kName, "bias", *bias, input.dtype());
  }
  NDArray output = Conv2dGradInput(input, filter, shape, WithoutRelu(attributes));
  // Which has not looked at the bias, the only one with elements.
  if (bias != nullptr && input.NumElements() == 0 && filter.NumElements() == 0)
    output = output.To(bias->device());
  if (bias != nullptr) AddInto(output, *bias, output);
  if (attributes.relu) ReluInto(output, output);
  return output;
}

NDArray Conv2dTransposeGradInput(const NDArray& output_gradient, const NDArray& filter,
                                 const Conv2dAttributes& attributes) {
  return Conv2d(output_gradient, filter, nullptr, WithoutRelu(attributes));
}

void Conv2dTransposeGradFilterInto(const NDArray& input, const NDArray& output_gradient,
                                   NDArray& filter_gradient, const Conv2dAttributes& attributes) {
  Conv2dGradFilterInto(output_gradient, input, filter_gradient, WithoutRelu(attributes));
}

}  // namespace tidepool
