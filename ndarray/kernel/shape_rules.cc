#include "tidepool/ndarray/kernel/shape_rules.h"

#include "tidepool/ndarray/kernel/attributes_reduction.h"

namespace tidepool {
namespace {

Shape Reduced(const Shape& x, const ReduceAttributes& attributes) {
  int64_t dims[kMaxRank];
  int rank = 0;
  for (int i = 0; i < x.rank(); ++i) {
    if (!IsReduced(attributes, i)) dims[rank++] = x[i];
  }
  return Shape(absl::Span<const int64_t>(dims, rank));
}

}  // namespace

std::optional<Shape> ShapeByRule(OpCode op, absl::Span<const Shape* const> inputs,
                                 AttributesRef attributes) {
  const OperatorInfo& info = Info(op);
  switch (info.shape) {
    case ShapeRule::kLikeFirst:
      return *inputs[0];
    case ShapeRule::kReduced:
      return Reduced(*inputs[0], *static_cast<const ReduceAttributes*>(attributes.data()));
    case ShapeRule::kBroadcast: {
      Shape shape;
      for (const Shape* const input : inputs) {
        if (input != nullptr) shape = BroadcastShapes(info.name, shape, *input);
      }
      return shape;
    }
    case ShapeRule::kOwnShape:
      break;
  }
  return std::nullopt;
}

}  // namespace tidepool
