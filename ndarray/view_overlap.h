// Do two views have an element in common, or two indices of one?
#ifndef TIDEPOOL_NDARRAY_VIEW_OVERLAP_H_
#define TIDEPOOL_NDARRAY_VIEW_OVERLAP_H_

#include <cstddef>
#include <utility>

#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// Two buffers have bytes in common only where one was imported, from the other or from where both are
// from; then addresses tell. Arrays without memory have none in common.
inline bool MayShareMemory(const Buffer* a, const Buffer* b) {
  if (a == b) return a != nullptr;
  return a != nullptr && b != nullptr && (a->imported || b->imported) && a->device == b->device;
}

// Exact, for views of any strides and types, but for those whose strides hardly differ over thousands of
// elements, which count as overlapping where that is not decided quickly. Views of different buffers
// overlap where one buffer is imported and shares the other's memory. Cost: rank squared, at most some
// thousand steps; views of two buffers neither of which is imported: a few loads.
bool ViewsOverlap(const NDArray& a, const NDArray& b);

// Whether two indices may name one element. Never of a dense array, nor of a view of one but
// BroadcastTo's; strides from elsewhere count as repeating unless each is larger than what the smaller
// ones reach together. Cost: rank squared.
bool MayRepeat(const NDArray& array);

// The bytes from the lowest to the highest element; one element's of an empty array.
std::pair<const std::byte*, const std::byte*> ExtentOf(const NDArray& array);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_VIEW_OVERLAP_H_
