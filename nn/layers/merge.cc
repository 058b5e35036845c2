#include "tidepool/nn/layers/merge.h"

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/frozen/frozen_graph.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/joining.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/unary.h"
#include "tidepool/nn/layers/sequence_mask.h"

namespace tidepool::nn {
namespace {

constexpr const char* kMerges[] = {"add", "subtract", "multiply", "average", "max", "concat"};

NDArray MergedTwo(MergeKind merge, const NDArray& x, const NDArray& y) {
  switch (merge) {
    case MergeKind::kSubtract:
      return x - y;
    case MergeKind::kMultiply:
      return x * y;
    case MergeKind::kMax:
      return Maximum(x, y);
    default:
      return x + y;
  }
}

ParameterSpec OfLastAxis(const char* name, const Shape& input, double value) {
  return {.name = name,
          .shape = {input[input.rank() - 1]},
          .initializer = Initializer::Constant(value),
          .decays = false};
}

}  // namespace

void Merge::VisitFields(FieldVisitor& visitor) {
  visitor.Choice("merge", merge_, kMerges);
  visitor.Field("axis", axis_);
}
std::string Merge::Describe() const {
  return absl::StrCat("merge ", kMerges[static_cast<int>(merge_)],
                      merge_ == MergeKind::kConcat ? absl::StrCat(" axis ", axis_) : "");
}

Shape Merge::OutputShapeOf(absl::Span<const Shape> inputs) const {
  if (inputs.empty() || (merge_ == MergeKind::kSubtract && inputs.size() < 2)) {
    ThrowInvalidArgument(absl::StrCat("layer [", Describe(), "]: ", inputs.size(),
                                      " inputs, expected at least ",
                                      merge_ == MergeKind::kSubtract ? 2 : 1));
  }
  const Shape& first = inputs[0];
  if (merge_ != MergeKind::kConcat) {
    for (const Shape& shape : inputs) {
      if (!(shape == first))
        RefuseInput(shape, absl::StrCat("that of the first input, ", first.ToString()));
    }
    return first;
  }
  const int64_t axis = AxisOf(first.rank());
  if (axis < 0 || axis >= first.rank()) RefuseInput(first, absl::StrCat("an axis ", axis_));
  std::vector<int64_t> dims(first.span().begin(), first.span().end());
  for (size_t i = 1; i < inputs.size(); ++i) {
    bool fits = inputs[i].rank() == first.rank();
    for (int d = 0; fits && d < first.rank(); ++d) fits = d == axis || inputs[i][d] == first[d];
    if (!fits)
      RefuseInput(inputs[i],
                  absl::StrCat("the axes of the first input, ", first.ToString(), ", but ", axis));
    dims[static_cast<size_t>(axis)] += inputs[i][static_cast<int>(axis)];
  }
  return Shape(absl::MakeConstSpan(dims));
}

NDArray Merge::ForwardOf(LayerContext& context, absl::Span<const NDArray> inputs) const {
  const int64_t axis = merge_ == MergeKind::kConcat ? AxisOf(inputs[0].rank() - 1) : -1;
  const bool in_line = axis == 0;
  // Behind the end anything may stand, and a gradient of zero there times NaN would be NaN.
  const auto input = [&](size_t i) {
    const NDArray own = MaskOfInput(context, i);
    return WithoutMasked(own.is_defined() || in_line ? own : context.mask, inputs[i]);
  };
  if (merge_ == MergeKind::kConcat) {
    Arrays parts;
    if (context.mask.is_defined()) {
      for (size_t i = 0; i < inputs.size(); ++i) parts.push_back(input(i));
      inputs = parts;
    }
    if (in_line) context.mask = NDArray();
    return inputs.size() == 1 ? inputs[0] : Concat(inputs, static_cast<int>(axis) + 1);
  }
  NDArray all = input(0);
  for (size_t i = 1; i < inputs.size(); ++i) all = MergedTwo(merge_, all, input(i));
  return merge_ == MergeKind::kAverage && inputs.size() > 1
             ? all * (1.0 / static_cast<double>(inputs.size()))
             : all;
}

void Scaling::VisitFields(FieldVisitor& visitor) { visitor.Field("shift", shift_); }
Shape Scaling::OutputShape(const Shape& input) const {
  if (input.rank() < 1 || input[input.rank() - 1] < 1)
    RefuseInput(input, "a last axis of at least one element");
  return input;
}
std::vector<ParameterSpec> Scaling::Parameters(const Shape& input) const {
  std::vector<ParameterSpec> specs = {OfLastAxis("scale", input, 1)};
  if (shift_) specs.push_back(OfLastAxis("shift", input, 0));
  return specs;
}
NDArray Scaling::Forward(LayerContext& context, const NDArray& input) const {
  const NDArray scaled = WithoutMasked(context.mask, input) * context.parameters[0];
  return shift_ ? scaled + context.parameters[1] : scaled;
}

void L2Normalization::VisitFields(FieldVisitor& visitor) { visitor.Field("epsilon", epsilon_); }
Shape L2Normalization::OutputShape(const Shape& input) const {
  if (input.rank() < 1 || !(epsilon_ > 0))
    RefuseInput(input, "a last axis, and an epsilon of more than 0");
  return input;
}
NDArray L2Normalization::Forward(LayerContext& context, const NDArray& input) const {
  const NDArray x = WithoutMasked(context.mask, input);
  // Squares of f16 have no range: the epsilon would be 0, and what is longer than 256 infinite.
  const NDArray wide = DTypeBytes(x.dtype()) == 2 ? Cast(x, DType::kFloat32) : x;
  return Cast(wide * Rsqrt(Sum(Square(wide), -1, /*keep_dims=*/true) + epsilon_), x.dtype());
}

void PRelu::VisitFields(FieldVisitor& visitor) {
  visitor.Field("initial", initial_);
  visitor.Field("shared", shared_);
}
Shape PRelu::OutputShape(const Shape& input) const {
  if (input.rank() < 1 || input[input.rank() - 1] < 1)
    RefuseInput(input, "a last axis of at least one element");
  return input;
}
std::vector<ParameterSpec> PRelu::Parameters(const Shape& input) const {
  ParameterSpec spec = OfLastAxis("alpha", input, initial_);
  if (shared_) spec.shape = {1};
  return {spec};
}
NDArray PRelu::Forward(LayerContext& context, const NDArray& input) const {
  const NDArray x = WithoutMasked(context.mask, input);
  return ParametricRelu(x, context.parameters[0]);
}

bool Merge::ToFrozen(FrozenOp& op) const {
  if (merge_ != MergeKind::kAdd && merge_ != MergeKind::kMultiply) {
    op.why_not = "inputs that are merged by other means than adding and multiplying";
    return false;
  }
  op.kind = merge_ == MergeKind::kAdd ? FrozenOp::Kind::kAdd : FrozenOp::Kind::kMultiply;
  return true;
}

bool PRelu::ToFrozen(FrozenOp& op) const {
  op.kind = FrozenOp::Kind::kPRelu;
  return true;
}

}  // namespace tidepool::nn
