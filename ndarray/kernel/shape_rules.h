// Shapes of an operator's outputs by its row.
#ifndef TIDEPOOL_NDARRAY_KERNEL_SHAPE_RULES_H_
#define TIDEPOOL_NDARRAY_KERNEL_SHAPE_RULES_H_

#include <optional>

#include "absl/types/span.h"
#include "tidepool/ndarray/kernel/attributes_type.h"
#include "tidepool/ndarray/kernel/op_code.h"
#include "tidepool/ndarray/shape.h"

namespace tidepool {

// Of every output, which are all alike; null inputs are absent. Nothing where the row says kOwnShape. Throws
// kInvalidArgument for shapes that do not broadcast.
std::optional<Shape> ShapeByRule(OpCode op, absl::Span<const Shape* const> inputs,
                                 AttributesRef attributes = {});

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_KERNEL_SHAPE_RULES_H_
