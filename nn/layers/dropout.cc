#include "tidepool/nn/layers/dropout.h"

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/frozen/frozen_graph.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ops/dropout.h"
#include "tidepool/ndarray/ops/elementwise.h"

namespace tidepool::nn {

void DropoutLayer::VisitFields(FieldVisitor& visitor) {
  visitor.Field("rate", rate_);
  visitor.Field("spatial", spatial_);
}

std::string DropoutLayer::Describe() const {
  return absl::StrCat("dropout ", rate_, spatial_ ? " spatial" : "");
}

Shape DropoutLayer::OutputShape(const Shape& input) const {
  if (!(rate_ >= 0 && rate_ < 1)) {
    ThrowInvalidArgument(absl::StrCat("layer [", Describe(), "]: rate ", rate_,
                                      ", expected at least 0 and less than 1"));
  }
  if (spatial_ && input.rank() < 2) RefuseInput(input, "at least one axis before the channels");
  return input;
}

NDArray DropoutLayer::Forward(LayerContext& context, const NDArray& input) const {
  if (!context.training || rate_ == 0) return input;
  if (!spatial_) return Dropout(input, rate_, context.seed, context.stream);
  absl::InlinedVector<int64_t, kMaxRank> dims(static_cast<size_t>(input.rank()), 1);
  dims.front() = input.dim(0);
  dims.back() = input.dim(input.rank() - 1);
  const NDArray kept = Dropout(
      Ones(Shape(absl::MakeConstSpan(dims)), input.dtype(), Place::CurrentOn(input.device())),
      rate_, context.seed, context.stream);
  return input * kept;
}

bool DropoutLayer::ToFrozen(FrozenOp& op) const {
  op.kind = FrozenOp::Kind::kReshape;  // to the same shape: nothing
  return true;
}

}  // namespace tidepool::nn
