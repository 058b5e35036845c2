// What reductions take besides arrays.
#ifndef TIDEPOOL_NDARRAY_KERNEL_ATTRIBUTES_REDUCTION_H_
#define TIDEPOOL_NDARRAY_KERNEL_ATTRIBUTES_REDUCTION_H_

#include <cstdint>

namespace tidepool {

// Of every reduction. The others of X's axes are the output's, in order; argmax and argmin reduce
// exactly one.
struct ReduceAttributes {
  uint32_t axes = 0;  // bit i: axis i of X is reduced
  int64_t ddof = 0;   // variance: the divisor is max(0, count - ddof)
};

constexpr bool IsReduced(const ReduceAttributes& attributes, int axis) {
  return (attributes.axes >> axis & 1) != 0;
}

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_KERNEL_ATTRIBUTES_REDUCTION_H_
