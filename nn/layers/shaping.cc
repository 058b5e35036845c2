#include "tidepool/nn/layers/shaping.h"

#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/frozen/frozen_graph.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/joining.h"
#include "tidepool/ndarray/ops/resize.h"
#include "tidepool/nn/layers/sequence_mask.h"

namespace tidepool::nn {
namespace {

Shape ExampleOf(const NDArray& input) { return Shape(input.shape().span().subspan(1)); }

// A number for each axis but the last, or so many for each; one stands for all.
using Numbers = absl::InlinedVector<int64_t, 2 * kMaxRank>;  // a steady step calls no malloc
Numbers ByAxis(const std::vector<int64_t>& numbers, int axes, int each) {
  if (numbers.size() == 1)
    return Numbers(static_cast<size_t>(std::max(0, axes * each)), numbers[0]);
  return Numbers(numbers.begin(), numbers.end());
}

Shape WithBatch(const NDArray& input, const Shape& example) {
  Numbers dims = {input.dim(0)};
  for (const int64_t dim : example.span()) dims.push_back(dim);
  return Shape(absl::MakeConstSpan(dims));
}

bool FitsAxes(const Shape& input, const Numbers& numbers, int each, int64_t least) {
  return input.rank() >= 2 &&
         static_cast<size_t>(input.rank() - 1) * static_cast<size_t>(each) == numbers.size() &&
         std::all_of(numbers.begin(), numbers.end(),
                     [least](int64_t number) { return number >= least; });
}

// One to three axes between batch and channels. Of volumes height and width first, then the depth:
// a plane is resized by itself, and then each column of places along the depth.
NDArray ResizeAxes(const NDArray& input, absl::Span<const int64_t> sizes,
                   const ResizeAttributes& attributes) {
  const NDArray x = input.is_dense() ? input : input.Dup();
  if (sizes.size() == 1) return Resize2d(x.ExpandDims(2), sizes[0], 1, attributes).Squeeze(2);
  if (sizes.size() == 2) return Resize2d(x, sizes[0], sizes[1], attributes);
  const int64_t batch = x.dim(0), depth = x.dim(1), channels = x.dim(4);
  const int64_t places = sizes[1] * sizes[2];
  const NDArray planes = Resize2d(x.Reshape({batch * depth, x.dim(2), x.dim(3), channels}),
                                  sizes[1], sizes[2], attributes);
  return Resize2d(planes.Reshape({batch, depth, places, channels}), sizes[0], places, attributes)
      .Reshape({batch, sizes[0], sizes[1], sizes[2], channels});
}

// For layers behind which no mask tells any more what stands behind the end of sequences: zeros, from here on.
NDArray TakeMask(LayerContext& context, const NDArray& input) {
  const NDArray mask = std::move(context.mask);
  context.mask = NDArray();
  return WithoutMasked(mask, input);
}

}  // namespace

void ReshapeLayer::VisitFields(FieldVisitor& visitor) {
  visitor.Field("shape", shape_, Presence::kRequired);
}
Shape ReshapeLayer::OutputShape(const Shape& input) const {
  Numbers dims(shape_.begin(), shape_.end());
  int64_t known = 1;
  bool fits = true;
  int64_t* left = nullptr;
  for (int64_t& dim : dims) {
    if (dim == -1 && left == nullptr) {
      left = &dim;
    } else {
      fits = fits && dim >= 1 && dim <= input.NumElements();
      known *= fits ? dim : 1;
      fits = fits && known <= input.NumElements();
    }
  }
  if (fits && left != nullptr && input.NumElements() % known == 0)
    *left = input.NumElements() / known;
  if (!fits || dims.size() >= kMaxRank ||
      (left != nullptr ? *left < 1 : known != input.NumElements())) {
    RefuseInput(input, "as many elements as the shape has, of which one size may be -1");
  }
  return Shape(absl::MakeConstSpan(dims));
}
NDArray ReshapeLayer::Forward(LayerContext& context, const NDArray& input) const {
  const Shape shape = WithBatch(input, OutputShape(ExampleOf(input)));
  // Steps stay steps where the first axis does.
  const bool keeps_steps = shape.rank() >= 2 && input.rank() >= 2 && shape[1] == input.dim(1);
  return (keeps_steps ? input : TakeMask(context, input)).ReshapeOrCopy(shape);
}

NDArray Flatten::Forward(LayerContext& context, const NDArray& input) const {
  return TakeMask(context, input).ReshapeOrCopy({input.dim(0), ExampleOf(input).NumElements()});
}

void Permute::VisitFields(FieldVisitor& visitor) {
  visitor.Field("axes", axes_, Presence::kRequired);
}
Shape Permute::OutputShape(const Shape& input) const {
  std::vector<int64_t> sorted = axes_, dims;
  std::sort(sorted.begin(), sorted.end());
  bool fits = axes_.size() == static_cast<size_t>(input.rank());
  for (size_t i = 0; i < sorted.size(); ++i) fits = fits && sorted[i] == static_cast<int64_t>(i);
  if (!fits)
    RefuseInput(input, "an axis for each of the field \"axes\", which names each once, from 0");
  for (int64_t axis : axes_) dims.push_back(input[static_cast<int>(axis)]);
  return Shape(absl::MakeConstSpan(dims));
}
NDArray Permute::Forward(LayerContext& context, const NDArray& input) const {
  absl::InlinedVector<int, kMaxRank> axes = {0};
  for (int64_t axis : axes_) axes.push_back(static_cast<int>(axis) + 1);
  const NDArray view = (axes[1] != 1 ? TakeMask(context, input) : input).Transpose(axes);
  return view.is_dense() ? view : view.Dup();
}

void RepeatVector::VisitFields(FieldVisitor& visitor) {
  visitor.Field("count", count_, Presence::kRequired);
}
Shape RepeatVector::OutputShape(const Shape& input) const {
  if (input.rank() != 1 || count_ < 1) RefuseInput(input, "[width], and a count of at least 1");
  return {count_, input[0]};
}
NDArray RepeatVector::Forward(LayerContext& context, const NDArray& input) const {
  context.mask = NDArray();
  return input.ExpandDims(1).BroadcastTo({input.dim(0), count_, input.dim(1)}).Dup();
}

void ZeroPadding::VisitFields(FieldVisitor& visitor) {
  visitor.Field("padding", padding_, Presence::kRequired);
}
Shape ZeroPadding::OutputShape(const Shape& input) const {
  const Numbers padding = ByAxis(padding_, input.rank() - 1, 2);
  if (!FitsAxes(input, padding, 2, 0))
    RefuseInput(input, "two paddings of at least 0 for each axis but the last, or one for all");
  std::vector<int64_t> dims(input.span().begin(), input.span().end());
  for (size_t i = 0; i + 1 < dims.size(); ++i) dims[i] += padding[2 * i] + padding[2 * i + 1];
  return Shape(absl::MakeConstSpan(dims));
}
NDArray ZeroPadding::Forward(LayerContext& context, const NDArray& input) const {
  const Numbers padding = ByAxis(padding_, input.rank() - 2, 2);
  Numbers before = {0}, behind = {0};
  for (size_t i = 0; i < padding.size(); i += 2) {
    before.push_back(padding[i]);
    behind.push_back(padding[i + 1]);
  }
  if (IsMaskOf(context.mask, input)) {
    context.mask = Pad(context.mask, absl::MakeConstSpan(before).first(2),
                       absl::MakeConstSpan(behind).first(2));
  }
  before.push_back(0);
  behind.push_back(0);
  return Pad(input, before, behind);
}

void Cropping::VisitFields(FieldVisitor& visitor) {
  visitor.Field("cropping", cropping_, Presence::kRequired);
}
Shape Cropping::OutputShape(const Shape& input) const {
  const Numbers cropping = ByAxis(cropping_, input.rank() - 1, 2);
  if (!FitsAxes(input, cropping, 2, 0))
    RefuseInput(input, "two numbers of at least 0 for each axis but the last, or one for all");
  std::vector<int64_t> dims(input.span().begin(), input.span().end());
  for (size_t i = 0; i + 1 < dims.size(); ++i) {
    dims[i] -= cropping[2 * i] + cropping[2 * i + 1];
    if (dims[i] < 1) RefuseInput(input, "axes of more elements than are taken away");
  }
  return Shape(absl::MakeConstSpan(dims));
}
NDArray Cropping::Forward(LayerContext& context, const NDArray& input) const {
  const Numbers cropping = ByAxis(cropping_, input.rank() - 2, 2);
  NDArray view = input;
  for (size_t i = 0; i < cropping.size(); i += 2) {
    const int axis = static_cast<int>(i / 2) + 1;
    view = view.Slice(axis, cropping[i], input.dim(axis) - cropping[i + 1]);
  }
  if (IsMaskOf(context.mask, input)) {
    context.mask = context.mask.Slice(1, cropping[0], input.dim(1) - cropping[1]).Dup();
  }
  return view.is_dense() ? view : view.Dup();
}

void Upsampling::VisitFields(FieldVisitor& visitor) {
  visitor.Field("factors", factors_, Presence::kRequired);
}
Shape Upsampling::OutputShape(const Shape& input) const {
  const Numbers factors = ByAxis(factors_, input.rank() - 1, 1);
  if (!FitsAxes(input, factors, 1, 1) || input.rank() > 4)
    RefuseInput(input,
                "a factor of at least 1 for each axis but the last, at most three, or one for all");
  std::vector<int64_t> dims(input.span().begin(), input.span().end());
  for (size_t i = 0; i + 1 < dims.size(); ++i) dims[i] *= factors[i];
  return Shape(absl::MakeConstSpan(dims));
}
LayerCost Upsampling::CostOf(absl::Span<const Shape> inputs) const {
  constexpr double kOperationsOfPlace = 4;
  LayerCost cost = CostWith(inputs, 0);
  cost.operations += kOperationsOfPlace * cost.elements;
  return (inputs[0].rank() == 4 ? 2 : 1) * cost;  // ResizeAxes
}
NDArray Upsampling::Forward(LayerContext& context, const NDArray& input) const {
  const Numbers factors = ByAxis(factors_, input.rank() - 2, 1);
  Numbers sizes = factors;
  for (size_t i = 0; i < sizes.size(); ++i) sizes[i] *= input.dim(static_cast<int>(i) + 1);
  return ResizeAxes(factors[0] != 1 ? TakeMask(context, input) : input, sizes,
                    {.mode = ResizeMode::kNearest});
}

void Resize::VisitFields(FieldVisitor& visitor) {
  static constexpr const char* kModes[] = {"nearest", "linear", "cubic"};
  visitor.Field("sizes", sizes_, Presence::kRequired);
  visitor.Choice("mode", mode_, kModes);
  visitor.Field("align_corners", align_corners_);
}
Shape Resize::OutputShape(const Shape& input) const {
  const Numbers sizes = ByAxis(sizes_, input.rank() - 1, 1);
  if (!FitsAxes(input, sizes, 1, 1) || input.rank() > 4 || input.NumElements() < 1 ||
      (align_corners_ && mode_ == ResizeMode::kNearest)) {
    RefuseInput(
        input,
        "[length, channels], [height, width, channels] or [depth, height, width, channels], "
        "a size for each axis but the last or one for all, and corners aligned of linear and cubic "
        "only");
  }
  std::vector<int64_t> dims(sizes.begin(), sizes.end());
  dims.push_back(input[input.rank() - 1]);
  return Shape(absl::MakeConstSpan(dims));
}
LayerCost Resize::CostOf(absl::Span<const Shape> inputs) const {
  LayerCost cost = CostWith(inputs, 0);
  const int taps = mode_ == ResizeMode::kCubic ? 4 : mode_ == ResizeMode::kLinear ? 2 : 1;
  double made = cost.elements;
  // ResizeAxes
  if (inputs[0].rank() == 4) {
    made += cost.elements / static_cast<double>(sizes_[0]) * static_cast<double>(inputs[0][0]);
  }
  cost.operations += made * taps * taps;
  cost.elements = made;
  return cost;
}
NDArray Resize::Forward(LayerContext& context, const NDArray& input) const {
  const ResizeAttributes attributes{.mode = mode_, .align_corners = align_corners_};
  return ResizeAxes(TakeMask(context, input), ByAxis(sizes_, input.rank() - 2, 1), attributes);
}

bool Upsampling::ToFrozen(FrozenOp& op) const {
  op.why_not = "resizing to the nearest element";
  return false;
}

bool Resize::ToFrozen(FrozenOp& op) const {
  if (op.input_shape.rank() != 3) {
    op.why_not = "resizing of other axes than two";
    return false;
  }
  op.kind = FrozenOp::Kind::kResize2d;
  op.resize = {.mode = mode_, .align_corners = align_corners_};
  return true;
}

bool ReshapeLayer::ToFrozen(FrozenOp& op) const {
  op.kind = FrozenOp::Kind::kReshape;
  return true;
}

bool Flatten::ToFrozen(FrozenOp& op) const {
  op.kind = FrozenOp::Kind::kReshape;
  return true;
}

}  // namespace tidepool::nn
