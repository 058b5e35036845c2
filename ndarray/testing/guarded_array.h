// An operand as a view of a larger array: behind another offset, between other rows and columns,
// transposed. What is not the view holds a NaN pattern and must still hold it after a call.
#ifndef TIDEPOOL_NDARRAY_TESTING_GUARDED_ARRAY_H_
#define TIDEPOOL_NDARRAY_TESTING_GUARDED_ARRAY_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/testing/op_case.h"

namespace tidepool {

// Dense, in a place that the host can write to.
NDArray ArrayOf(const OperandValues& values, const Place& place);

enum class ViewLayout : uint8_t {
  kDense,       // an array of its own
  kOffset,      // dense, some elements into a longer array
  kSliced,      // a block of a larger array
  kTransposed,  // a block of a larger array with its axes reversed
  kIndexed,     // one plane of an array with one more axis: gaps between all elements
};
ViewLayout RandomLayout(std::mt19937_64& random);
const char* ViewLayoutName(ViewLayout layout);

class GuardedArray {
 public:
  // On the heap of `device`. The same generator state gives the same layout.
  GuardedArray(const OperandValues& values, ViewLayout layout, std::mt19937_64& random,
               Device device = Host());

  NDArray& view() { return view_; }
  // Row-major.
  OperandValues Read() const;
  bool guards_are_whole() const;  // nothing outside the view has changed
  bool is_unchanged() const;      // nothing has changed

 private:
  const NDArray& OnHost() const;

  mutable NDArray base_;  // on the host
  NDArray device_base_;   // of a device; then base_ is a copy of it
  NDArray view_;
  std::vector<int64_t> offsets_;  // of the view's elements from base_'s first, row-major
  std::vector<std::byte> before_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_TESTING_GUARDED_ARRAY_H_
