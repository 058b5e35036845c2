#include "tidepool/nn/layers/sequence.h"

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/indexing.h"
#include "tidepool/ndarray/ops/joining.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/nn/layers/sequence_mask.h"

namespace tidepool::nn {
namespace {

constexpr const char* kMerges[] = {"concat", "add", "average"};

Shape StepOf(const Shape& input) { return Shape(input.span().subspan(1)); }

const RecurrentLayer& RecurrentIn(const Layer& outer, const AnyLayer& layer) {
  const auto* recurrent = layer ? dynamic_cast<const RecurrentLayer*>(&*layer) : nullptr;
  if (recurrent != nullptr) return *recurrent;
  ThrowInvalidArgument(absl::StrCat(
      "layer [", outer.Kind(), "]: found ", layer ? layer->Describe() : "no layer",
      ", expected a recurrent layer (lstm, gru, simple_rnn); others by layers of kind reverse"));
}

}  // namespace

// ---- Bidirectional ----

void Bidirectional::VisitFields(FieldVisitor& visitor) {
  visitor.Field("layer", layer_, Presence::kRequired);
  visitor.Choice("merge", merge_, kMerges);
}

std::string Bidirectional::Describe() const {
  return absl::StrCat("bidirectional ", kMerges[static_cast<int>(merge_)], " [",
                      layer_ ? layer_->Describe() : "none", "]");
}

Shape Bidirectional::OutputShape(const Shape& input) const {
  const Shape one = RecurrentIn(*this, layer_).OutputShape(input);
  std::vector<int64_t> dims(one.span().begin(), one.span().end());
  if (merge_ == BidirectionalMerge::kConcat) dims.back() *= 2;
  return Shape(absl::MakeConstSpan(dims));
}

std::vector<ParameterSpec> Bidirectional::Parameters(const Shape& input) const {
  std::vector<ParameterSpec> all;
  for (const char* direction : {"forward.", "backward."}) {
    for (ParameterSpec& spec : layer_->Parameters(input)) {
      spec.name = direction + spec.name;
      all.push_back(std::move(spec));
    }
  }
  return all;
}

LayerCost Bidirectional::CostOf(absl::Span<const Shape> inputs) const {
  LayerCost cost = CostWith(inputs, 0);
  cost += 2 * RecurrentIn(*this, layer_).CostOf(inputs);
  return cost;
}

NDArray Bidirectional::Forward(LayerContext& context, const NDArray& input) const {
  const RecurrentLayer& layer = RecurrentIn(*this, layer_);
  const size_t count = context.parameters.size() / 2;
  LayerContext other = context;
  other.parameters = context.parameters.subspan(count);
  other.carried = {};
  context.parameters = context.parameters.first(count);
  context.carried = {};
  const NDArray there = layer.Forward(context, input), back = layer.ForwardTurned(other, input);
  if (merge_ == BidirectionalMerge::kConcat) return Concat({{there, back}}, there.rank() - 1);
  const NDArray sum = there + back;
  return merge_ == BidirectionalMerge::kAdd ? sum : sum * 0.5;
}

// ---- Steps ----

Shape LastTimeStep::OutputShape(const Shape& input) const {
  if (input.rank() < 1 || input[0] < 1) RefuseInput(input, "[length, ...] of at least one step");
  return StepOf(input);
}

NDArray LastTimeStep::Forward(LayerContext& context, const NDArray& input) const {
  const NDArray mask = IsMaskOf(context.mask, input) ? context.mask : NDArray();
  context.mask = NDArray();
  const int64_t batch = input.dim(0), length = input.dim(1);
  const Shape step(input.shape().span().subspan(2));
  absl::InlinedVector<int64_t, kMaxRank> dims = {batch};
  dims.insert(dims.end(), step.span().begin(), step.span().end());
  const Shape shape(absl::MakeConstSpan(dims));
  if (!mask.is_defined()) return input.Index(1, length - 1).Dup();
  NDArray rows, has_any;
  {
    const NoGradientScope constants;
    const NDArray steps = Cast(Cast(mask, DType::kBool), DType::kInt64);
    const Place place = Place::CurrentOn(input.device());
    // The place of the last 1, which is the largest number of a step that is one.
    const NDArray places = Arange(1, static_cast<double>(length) + 1, 1, DType::kInt64, place);
    const NDArray last = Max(steps * places, 1);  // from 1; 0: none
    has_any = Greater(last, Scalar(int64_t{0}));
    rows = Arange(0, static_cast<double>(batch), 1, DType::kInt64, place) * Scalar(length) +
           Maximum(last - Scalar(int64_t{1}), Scalar(int64_t{0}));
  }
  const int64_t width = step.NumElements();
  const NDArray taken = Gather(input.ReshapeOrCopy({batch * length, width}), rows, 0);
  return Where(has_any.ExpandDims(-1), taken, 0).Reshape(shape);
}

void TimeDistributed::VisitFields(FieldVisitor& visitor) {
  visitor.Field("layer", layer_, Presence::kRequired);
}
std::string TimeDistributed::Describe() const {
  return absl::StrCat("time_distributed [", layer_ ? layer_->Describe() : "none", "]");
}

Shape TimeDistributed::OutputShape(const Shape& input) const {
  if (!layer_) ThrowInvalidArgument("layer [time_distributed]: the layer is null, expected one");
  if (input.rank() < 1 || input[0] < 1) RefuseInput(input, "[length, ...] of at least one step");
  const Shape of_step = StepOf(input), step = layer_->OutputShapeOf({&of_step, 1});
  std::vector<int64_t> dims = {input[0]};
  dims.insert(dims.end(), step.span().begin(), step.span().end());
  return Shape(absl::MakeConstSpan(dims));
}

std::vector<ParameterSpec> TimeDistributed::Parameters(const Shape& input) const {
  const Shape step = StepOf(input);
  return layer_->ParametersOf({&step, 1});
}

LayerCost TimeDistributed::CostOf(absl::Span<const Shape> inputs) const {
  const Shape step = StepOf(inputs[0]);
  return static_cast<double>(inputs[0][0]) * layer_->CostOf({&step, 1});
}

NDArray TimeDistributed::Forward(LayerContext& context, const NDArray& input) const {
  const NDArray x = WithoutMasked(context.mask, input);
  const int64_t batch = x.dim(0), length = x.dim(1);
  absl::InlinedVector<int64_t, kMaxRank> dims = {batch * length};
  dims.insert(dims.end(), x.shape().span().begin() + 2, x.shape().span().end());
  LayerContext inner = context;
  inner.mask = NDArray();
  inner.carried = {};
  const NDArray apart = x.ReshapeOrCopy(Shape(absl::MakeConstSpan(dims)));
  const NDArray steps = layer_->ForwardOf(inner, {&apart, 1});
  dims = {batch, length};
  dims.insert(dims.end(), steps.shape().span().begin() + 1, steps.shape().span().end());
  return steps.ReshapeOrCopy(Shape(absl::MakeConstSpan(dims)));
}

Shape Reverse::OutputShape(const Shape& input) const {
  if (input.rank() < 1) RefuseInput(input, "[length, ...]");
  return input;
}
NDArray Reverse::Forward(LayerContext& context, const NDArray& input) const {
  if (IsMaskOf(context.mask, input)) context.mask = Flip(context.mask, 1);
  return Flip(input, 1);
}

}  // namespace tidepool::nn
