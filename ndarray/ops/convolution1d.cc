#include "tidepool/ndarray/ops/convolution1d.h"

#include "tidepool/ndarray/ops/checks.h"
#include "tidepool/ndarray/ops/convolution.h"
#include "tidepool/ndarray/ops/convolution_transpose.h"

namespace tidepool {
namespace {

Conv2dAttributes Of2d(const Conv1dAttributes& a) {
  Conv2dAttributes of;
  of.stride_width = a.stride;
  of.pad_left = a.pad_before, of.pad_right = a.pad_behind;
  of.dilation_width = a.dilation;
  of.relu = a.relu, of.accumulate = a.accumulate, of.filter_is_constant = a.filter_is_constant;
  of.groups = a.groups;
  return of;
}

// A view with a height of 1.
NDArray High(const char* op, const char* operand, const NDArray& x) {
  x.CheckAlive(op, operand);
  CheckRank(op, operand, x, 3);
  return x.ExpandDims(1);
}

}  // namespace

NDArray Conv1d(const NDArray& input, const NDArray& filter, const NDArray* bias,
               const Conv1dAttributes& attributes) {
  return Conv2d(High("conv1d", "input", input), High("conv1d", "filter", filter), bias,
                Of2d(attributes))
      .Squeeze(1);
}

NDArray Conv1dGradInput(const NDArray& output_gradient, const NDArray& filter,
                        const Shape& input_shape, const Conv1dAttributes& attributes) {
  constexpr const char* kOp = "conv1d_grad_input";
  const NDArray gradient = High(kOp, "output_gradient", output_gradient),
                high = High(kOp, "filter", filter);
  const Shape shape = input_shape.rank() == 3
                          ? Shape{input_shape[0], 1, input_shape[1], input_shape[2]}
                          : input_shape;
  return Conv2dGradInput(gradient, high, shape, Of2d(attributes)).Squeeze(1);
}

void Conv1dGradFilterInto(const NDArray& input, const NDArray& output_gradient,
                          NDArray& filter_gradient, const Conv1dAttributes& attributes) {
  constexpr const char* kOp = "conv1d_grad_filter";
  NDArray into = High(kOp, "filter_gradient", filter_gradient);
  Conv2dGradFilterInto(High(kOp, "input", input), High(kOp, "output_gradient", output_gradient),
                       into, Of2d(attributes));
}

NDArray Conv1dTranspose(const NDArray& input, const NDArray& filter, const NDArray* bias,
                        const Conv1dAttributes& attributes, int64_t output_padding) {
  constexpr const char* kOp = "conv1d_transpose";
  return Conv2dTranspose(High(kOp, "input", input), High(kOp, "filter", filter), bias,
                         Of2d(attributes), {0, output_padding})
      .Squeeze(1);
}

NDArray Conv1dTransposeGradInput(const NDArray& output_gradient, const NDArray& filter,
                                 const Conv1dAttributes& attributes) {
  constexpr const char* kOp = "conv1d_transpose_grad_input";
  return Conv2dTransposeGradInput(High(kOp, "output_gradient", output_gradient),
                                  High(kOp, "filter", filter), Of2d(attributes))
      .Squeeze(1);
}

void Conv1dTransposeGradFilterInto(const NDArray& input, const NDArray& output_gradient,
                                   NDArray& filter_gradient, const Conv1dAttributes& attributes) {
  constexpr const char* kOp = "conv1d_transpose_grad_filter";
  NDArray into = High(kOp, "filter_gradient", filter_gradient);
  Conv2dTransposeGradFilterInto(High(kOp, "input", input),
                                High(kOp, "output_gradient", output_gradient), into,
                                Of2d(attributes));
}

}  // namespace tidepool
