// A dense array seen as [outer, size, inner], where `size` is that of one axis.
#ifndef TIDEPOOL_NDARRAY_KERNEL_AXIS_SPLIT_H_
#define TIDEPOOL_NDARRAY_KERNEL_AXIS_SPLIT_H_

#include <cstdint>

#include "tidepool/ndarray/kernel/kernel.h"

namespace tidepool {

struct AxisSplit {
  int64_t outer = 1, size = 1, inner = 1;

  AxisSplit(const TensorRef& ref, int axis) : size(ref.dims[axis]) {
    for (int i = 0; i < axis; ++i) outer *= ref.dims[i];
    for (int i = axis + 1; i < ref.rank; ++i) inner *= ref.dims[i];
  }
};

// Calls visit(IndexType()) with the C++ type of an array of indices, i32 or i64.
template <typename Visit>
void VisitIndexType(DType dtype, Visit&& visit) {
  if (dtype == DType::kInt32) {
    visit(int32_t());
  } else {
    visit(int64_t());
  }
}

// Calls visit(BitsType()) with the unsigned type as wide as an element, for moves of any type.
template <typename Visit>
void VisitBits(DType dtype, Visit&& visit) {
  switch (DTypeBytes(dtype)) {
    case 1:
      return visit(uint8_t());
    case 2:
      return visit(uint16_t());
    case 4:
      return visit(uint32_t());
    default:
      return visit(uint64_t());
  }
}

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_KERNEL_AXIS_SPLIT_H_
