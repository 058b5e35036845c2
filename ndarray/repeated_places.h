// Whether indices of a view name one element more than once, of sizes and strides alone.
#ifndef TIDEPOOL_NDARRAY_REPEATED_PLACES_H_
#define TIDEPOOL_NDARRAY_REPEATED_PLACES_H_

#include <cstdint>

namespace tidepool {

// MayRepeat() (view_overlap.h) of a view that is no array: `rank` sizes and strides, these in elements. At most kMaxRank.
bool MayRepeat(int rank, const int64_t* dims, const int64_t* strides);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_REPEATED_PLACES_H_
