#include "tidepool/nn/layers/max_pool2d.h"

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/ops/convolution.h"

namespace tidepool::nn {

std::string MaxPool2D::Describe() const {
  const Pool2dAttributes& a = attributes_;
  std::string text = absl::StrCat("max_pool2d ", a.kernel_height, "x", a.kernel_width, " stride ",
                                  a.stride_height, "x", a.stride_width);
  if (a.pad_top + a.pad_bottom + a.pad_left + a.pad_right > 0) {
    absl::StrAppend(&text, " pad ", a.pad_top, ",", a.pad_bottom, ",", a.pad_left, ",",
                    a.pad_right);
  }
  return text;
}

Shape MaxPool2D::OutputShape(const Shape& input) const {
  if (input.rank() != 3) {
    ThrowInvalidArgument(absl::StrCat("layer [", Describe(), "]: input shape ", input.ToString(),
                                      ", expected [height, width, channels]"));
  }
  const Shape output = MaxPool2dOutputShape({1, input[0], input[1], input[2]}, attributes_);
  return {output[1], output[2], output[3]};
}

NDArray MaxPool2D::Forward(const LayerContext& context, const NDArray& input,
                           LayerCache& cache) const {
  NDArray output = MaxPool2d(input, attributes_);
  if (context.training) {
    cache.input = input;
    cache.output = output;
  }
  return output;
}

NDArray MaxPool2D::Backward(const LayerContext&, NDArray output_gradient, LayerCache& cache,
                            bool needs_input_gradient) const {
  NDArray gradient;
  if (needs_input_gradient) {
    gradient = MaxPool2dGrad(cache.input, cache.output, output_gradient, attributes_);
  }
  cache.Clear();
  return gradient;
}

bool MaxPool2D::ToFrozen(FrozenOp& op) const {
  op.kind = FrozenOp::Kind::kMaxPool2d;
  op.pooling = attributes_;
  return true;
}

}  // namespace tidepool::nn
