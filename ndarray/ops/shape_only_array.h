// Arrays that have shape, type and device and no elements to read: what is left of operands that were not kept.
#ifndef TIDEPOOL_NDARRAY_OPS_SHAPE_ONLY_ARRAY_H_
#define TIDEPOOL_NDARRAY_OPS_SHAPE_ONLY_ARRAY_H_

#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// Reading it is kFailedPrecondition: "... its elements were not kept". Any thread.
NDArray ShapeOnlyArray(const Shape& shape, DType dtype, Device device);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_SHAPE_ONLY_ARRAY_H_
