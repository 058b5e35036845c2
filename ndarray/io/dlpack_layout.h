// Where the elements of a DLPack tensor lie, checked. Of dlpack.cc.
#ifndef TIDEPOOL_NDARRAY_IO_DLPACK_LAYOUT_H_
#define TIDEPOOL_NDARRAY_IO_DLPACK_LAYOUT_H_

#include <dlpack/dlpack.h>

#include <cstddef>
#include <cstdint>

#include "tidepool/ndarray/dtype.h"
#include "tidepool/ndarray/shape.h"

namespace tidepool::internal {

DLDataType DLPackTypeOf(DType dtype);

// The elements of a tensor and the bytes from the lowest to the highest of them.
struct DLPackLayout {
  DType dtype;
  Shape shape;
  int64_t strides[kMaxRank];
  std::byte* lowest;
  size_t bytes;
  int64_t first;  // element, from the lowest
};

// Throws kUnimplemented for elements that are none of ours, kInvalidArgument for sizes, strides and addresses that there
// cannot be.
DLPackLayout LayoutOf(const DLTensor& tensor);

// Kernels take bools for 0 or 1: kInvalidArgument for others. Each byte of the host's memory is looked at once, however
// often the strides come by.
void CheckBools(const DLPackLayout& layout);

}  // namespace tidepool::internal

#endif  // TIDEPOOL_NDARRAY_IO_DLPACK_LAYOUT_H_
