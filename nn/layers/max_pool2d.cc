#include "tidepool/nn/layers/max_pool2d.h"

#include "absl/strings/str_cat.h"
#include "tidepool/ndarray/frozen/frozen_graph.h"
#include "tidepool/ndarray/ops/pooling.h"
#include "tidepool/nn/layers/sequence_mask.h"
#include "tidepool/nn/layers/window_fields.h"

namespace tidepool::nn {

void MaxPool2D::VisitFields(FieldVisitor& visitor) {
  VisitWindow(visitor, "kernel", {&attributes_.kernel_height, &attributes_.kernel_width});
  VisitWindow(visitor, "stride", {&attributes_.stride_height, &attributes_.stride_width});
  VisitWindow(visitor, "padding",
              {&attributes_.pad_top, &attributes_.pad_bottom, &attributes_.pad_left,
               &attributes_.pad_right});
}

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
  if (input.rank() != 3) RefuseInput(input, "[height, width, channels]");
  const Shape output = MaxPool2dOutputShape({1, input[0], input[1], input[2]}, attributes_);
  return {output[1], output[2], output[3]};
}

LayerCost MaxPool2D::CostOf(absl::Span<const Shape> inputs) const {
  LayerCost cost = CostWith(inputs, 0);
  cost.operations += cost.elements * static_cast<double>(attributes_.kernel_height) *
                     static_cast<double>(attributes_.kernel_width);
  return cost;
}

NDArray MaxPool2D::Forward(LayerContext& context, const NDArray& input) const {
  return MaxPool2d(WithoutMasked(context.mask, input), attributes_);
}

bool MaxPool2D::ToFrozen(FrozenOp& op) const {
  op.kind = FrozenOp::Kind::kMaxPool2d;
  op.pooling = attributes_;
  return true;
}

}  // namespace tidepool::nn
