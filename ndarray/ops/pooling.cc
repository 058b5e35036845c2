#include "tidepool/ndarray/ops/pooling.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/ops/checks.h"
#include "tidepool/ndarray/ops/nn_checks.h"

namespace tidepool {
namespace {

int64_t OutputSize(const char* op, const char* axis, int64_t in, int64_t kernel, int64_t stride,
                   int64_t before, int64_t after) {
  if (std::min(before, after) < 0 || (std::max(before, after) >= kernel && kernel >= 1)) {
    ThrowInvalidArgument(absl::StrCat("Op [", op, "]: ", axis, ": padding ", before, " and ", after,
                                      " of a kernel of ", kernel, ", expected 0 to ", kernel - 1));
  }
  const int64_t count =
      WindowCount(op, axis, in, kernel, stride, 1, SumOfPadding(op, before, after));
  if (in < 1) {
    ThrowInvalidArgument(
        absl::StrCat("Op [", op, "]: ", axis, ": an input of ", in, ", expected at least 1"));
  }
  return count;
}

Shape OutputShape(const char* op, const Shape& input, const Pool2dAttributes& a) {
  CheckRank4(op, "input", input);
  return {
      input[0],
      OutputSize(op, "height", input[1], a.kernel_height, a.stride_height, a.pad_top, a.pad_bottom),
      OutputSize(op, "width", input[2], a.kernel_width, a.stride_width, a.pad_left, a.pad_right),
      input[3]};
}

Pool2dAttributes WholeImage(const char* op, const Shape& input) {
  CheckRank4(op, "input", input);
  Pool2dAttributes a;
  a.kernel_height = a.stride_height = input[1];
  a.kernel_width = a.stride_width = input[2];
  return a;
}

// [batch, channels] as [batch, 1, 1, channels].
NDArray WithPixels(const char* op, const char* operand, const NDArray& x, const Shape& input) {
  CheckShape(op, operand, x, {input[0], input[3]});
  const NDArray dense = x.is_dense() ? x : x.CopyTo(Place::Scratch(x.device()));
  return dense.Reshape({input[0], 1, 1, input[3]});
}

NDArray WithoutPixels(const NDArray& x) { return x.Reshape({x.dim(0), x.dim(3)}); }

}  // namespace

Shape MaxPool2dOutputShape(const Shape& input, const Pool2dAttributes& attributes) {
  return OutputShape("max_pool2d", input, attributes);
}

Shape AveragePool2dOutputShape(const Shape& input, const Pool2dAttributes& attributes) {
  return OutputShape("average_pool2d", input, attributes);
}

NDArray MaxPool2d(const NDArray& input, const Pool2dAttributes& attributes) {
  CheckOperands(OpCode::kMaxPool2d, {&input});
  CheckFloating("max_pool2d", "input", input);
  NDArray output(MaxPool2dOutputShape(input.shape(), attributes), input.dtype(),
                 ResultPlace(OpCode::kMaxPool2d, {&input}));
  Dispatch(OpCode::kMaxPool2d, {&input}, {&output}, &attributes);
  return output;
}

NDArray MaxPool2dGrad(const NDArray& input, const NDArray& output, const NDArray& output_gradient,
                      const Pool2dAttributes& attributes) {
  CheckOperands(OpCode::kMaxPool2dGrad, {&input, &output, &output_gradient});
  CheckFloating("max_pool2d_grad", "input", input);
  const Shape expected = MaxPool2dOutputShape(input.shape(), attributes);
  CheckShape("max_pool2d_grad", "output", output, expected);
  CheckShape("max_pool2d_grad", "output_gradient", output_gradient, expected);
  CheckDType("max_pool2d_grad", "output", output, input.dtype());
  CheckDType("max_pool2d_grad", "output_gradient", output_gradient, input.dtype());
  NDArray input_gradient(input.shape(), input.dtype(),
                         ResultPlace(OpCode::kMaxPool2dGrad, {&input, &output, &output_gradient}));
  Dispatch(OpCode::kMaxPool2dGrad, {&input, &output, &output_gradient}, {&input_gradient},
           &attributes);
  return input_gradient;
}

NDArray AveragePool2d(const NDArray& input, const Pool2dAttributes& attributes) {
  CheckOperands(OpCode::kAveragePool2d, {&input});
  CheckFloating("average_pool2d", "input", input);
  NDArray output(AveragePool2dOutputShape(input.shape(), attributes), input.dtype(),
                 ResultPlace(OpCode::kAveragePool2d, {&input}));
  Dispatch(OpCode::kAveragePool2d, {&input}, {&output}, &attributes);
  return output;
}

NDArray AveragePool2dGrad(const NDArray& output_gradient, const Shape& input_shape,
                          const Pool2dAttributes& attributes) {
  CheckOperands(OpCode::kAveragePool2dGrad, {&output_gradient});
  CheckFloating("average_pool2d_grad", "output_gradient", output_gradient);
  CheckShape("average_pool2d_grad", "output_gradient", output_gradient,
             OutputShape("average_pool2d_grad", input_shape, attributes));
  NDArray input_gradient(input_shape, output_gradient.dtype(),
                         ResultPlace(OpCode::kAveragePool2dGrad, {&output_gradient}));
  Dispatch(OpCode::kAveragePool2dGrad, {&output_gradient}, {&input_gradient}, &attributes);
  return input_gradient;
}

NDArray GlobalMaxPool2d(const NDArray& input) {
  CheckOperands(OpCode::kMaxPool2d, {&input});
  return WithoutPixels(MaxPool2d(input, WholeImage("max_pool2d", input.shape())));
}

NDArray GlobalMaxPool2dGrad(const NDArray& input, const NDArray& output,
                            const NDArray& output_gradient) {
  CheckOperands(OpCode::kMaxPool2dGrad, {&input, &output, &output_gradient});
  const Pool2dAttributes attributes = WholeImage("max_pool2d_grad", input.shape());
  return MaxPool2dGrad(
      input, WithPixels("max_pool2d_grad", "output", output, input.shape()),
      WithPixels("max_pool2d_grad", "output_gradient", output_gradient, input.shape()), attributes);
}

NDArray GlobalAveragePool2d(const NDArray& input) {
  CheckOperands(OpCode::kAveragePool2d, {&input});
  return WithoutPixels(AveragePool2d(input, WholeImage("average_pool2d", input.shape())));
}

NDArray GlobalAveragePool2dGrad(const NDArray& output_gradient, const Shape& input_shape) {
  CheckOperands(OpCode::kAveragePool2dGrad, {&output_gradient});
  const Pool2dAttributes attributes = WholeImage("average_pool2d_grad", input_shape);
  return AveragePool2dGrad(
      WithPixels("average_pool2d_grad", "output_gradient", output_gradient, input_shape),
      input_shape, attributes);
}

}  // namespace tidepool
