// Do two views of one buffer have an element in common?
#ifndef TIDEPOOL_NDARRAY_VIEW_OVERLAP_H_
#define TIDEPOOL_NDARRAY_VIEW_OVERLAP_H_

#include <cstddef>
#include <utility>

#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// Exact for views with the same strides (two columns, two blocks of one matrix); others count as
// overlapping when the bytes from their first to their last element do. Cost: rank squared.
bool ViewsOverlap(const NDArray& a, const NDArray& b);

// The bytes from the lowest to the highest element; one element's of an empty array.
std::pair<const std::byte*, const std::byte*> ExtentOf(const NDArray& array);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_VIEW_OVERLAP_H_
