#include "tidepool/nn/layers/embedding.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/indexing.h"
#include "tidepool/ndarray/ops/unary.h"
#include "tidepool/nn/layers/sequence_mask.h"

namespace tidepool::nn {

void Embedding::VisitFields(FieldVisitor& visitor) {
  visitor.Field("entries", entries_, Presence::kRequired);
  visitor.Field("width", width_, Presence::kRequired);
  visitor.Field("mask_index", options_.mask_index);
  VisitInitializer(visitor, "initializer", options_.initializer);
}

std::string Embedding::Describe() const {
  return absl::StrCat("embedding ", entries_, " of ", width_,
                      options_.mask_index >= 0 ? absl::StrCat(" masks ", options_.mask_index) : "");
}

Shape Embedding::OutputShape(const Shape& input) const {
  if (entries_ < 1 || width_ < 1 || options_.mask_index < -1 || options_.mask_index >= entries_) {
    ThrowInvalidArgument(absl::StrCat(
        "layer [", Describe(), "]: expected at least one entry, a width of at least 1, and a mask ",
        "index of -1 or less than the entries"));
  }
  if (options_.mask_index >= 0 && input.rank() < 1)
    RefuseInput(input, "sequences [length, ...], as it masks an index");
  std::vector<int64_t> dims(input.span().begin(), input.span().end());
  dims.push_back(width_);
  return Shape(absl::MakeConstSpan(dims));
}

std::vector<ParameterSpec> Embedding::Parameters(const Shape&) const {
  return {{"table",
           {entries_, width_},
           options_.initializer.Or(Initializer::Normal(1)),
           entries_,
           width_}};
}

LayerCost Embedding::CostOf(absl::Span<const Shape> inputs) const {
  return CostWith(inputs, 0);  // rows are looked up
}

NDArray Embedding::Forward(LayerContext& context, const NDArray& input) const {
  if (IsFloating(input.dtype())) {
    ThrowInvalidArgument(absl::StrCat("layer [", Describe(), "]: input ", DTypeName(input.dtype()),
                                      ", expected i64 or i32"));
  }
  NDArray mask;  // of the input's shape, or broadcasts to it
  if (IsMaskOf(context.mask, input)) mask = MaskOfRank(context.mask, input.rank());
  if (options_.mask_index >= 0) {
    const NDArray here = NotEqual(input, Scalar(options_.mask_index));
    mask = mask.is_defined() ? LogicalAnd(mask, here) : here;
    if (input.rank() == 2) context.mask = mask;
  }
  if (!mask.is_defined()) return EmbeddingLookup(context.parameters[0], input);
  const NDArray rows =
      EmbeddingLookup(context.parameters[0], Where(mask, input, Scalar(int64_t{0})));
  return Where(mask.ExpandDims(-1), rows, 0);
}

void PositionEmbedding::VisitFields(FieldVisitor& visitor) {
  VisitInitializer(visitor, "initializer", initializer_);
}

Shape PositionEmbedding::OutputShape(const Shape& input) const {
  if (input.rank() != 2 || input.NumElements() < 1) RefuseInput(input, "[length, width]");
  return input;
}
std::vector<ParameterSpec> PositionEmbedding::Parameters(const Shape& input) const {
  return {{"table", input, initializer_.Or(Initializer::Normal(0.02)), input[0], input[1]}};
}
LayerCost PositionEmbedding::CostOf(absl::Span<const Shape> inputs) const {
  return CostWith(inputs, 1);
}
NDArray PositionEmbedding::Forward(LayerContext& context, const NDArray& input) const {
  return WithoutMasked(context.mask, input + context.parameters[0]);
}

void SinusoidalPositions::VisitFields(FieldVisitor& visitor) { visitor.Field("period", period_); }

Shape SinusoidalPositions::OutputShape(const Shape& input) const {
  if (input.rank() != 2 || input.NumElements() < 1 || !(period_ > 0)) {
    RefuseInput(input, "[length, width], and a period of more than 0");
  }
  return input;
}

// Angles, sines and cosines are of f64.
LayerCost SinusoidalPositions::CostOf(absl::Span<const Shape> inputs) const {
  return 4 * CostWith(inputs, 0);
}

NDArray SinusoidalPositions::Forward(LayerContext&, const NDArray& input) const {
  NDArray positions;
  {
    const NoGradientScope constants;
    const int64_t length = input.dim(1), width = input.dim(2), half = (width + 1) / 2;
    const Place place = Place::CurrentOn(input.device());
    // In f64, as angles of late places have few digits behind the point.
    const NDArray places =
        Arange(0, static_cast<double>(length), 1, DType::kFloat64, place).Reshape({length, 1});
    const NDArray rates =
        Power(Scalar(period_), Arange(0, static_cast<double>(half), 1, DType::kFloat64, place) *
                                   (-2.0 / static_cast<double>(width)));
    const NDArray angles = places * rates;
    NDArray both = Empty({length, half, 2}, DType::kFloat64, place);
    NDArray sines = both.Index(2, 0), cosines = both.Index(2, 1);
    SinInto(angles, sines);
    CosInto(angles, cosines);
    positions = Cast(both.Reshape({length, 2 * half}).Slice(1, 0, width), input.dtype());
  }
  return input + positions;
}

}  // namespace tidepool::nn
