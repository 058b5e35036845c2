// Dropout (Srivastava et al. 2014), inverted: what is kept is scaled while training, so that nothing
// is to be done afterwards.
//
//   z = Dropout(x, rate, seed, stream);                // forward
//   dx = DropoutGrad(dz, rate, seed, stream);          // the same elements dropped and scaled
//
// Element i (row-major) is dropped with probability `rate`, which is a function of (seed, stream, i)
// alone (kernel/random_numbers.h): no mask is stored. Use another stream for each layer and step.
// Dropped elements are 0, whatever they were; rate 0 keeps all.
//
// Floats. Errors: kInvalidArgument for a rate outside of [0, 1), naming operand, found and expected;
// kFailedPrecondition for stale operands. Allocates the result alone.
#ifndef TIDEPOOL_NDARRAY_OPS_DROPOUT_H_
#define TIDEPOOL_NDARRAY_OPS_DROPOUT_H_

#include <cstdint>

#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

NDArray Dropout(const NDArray& x, double rate, uint64_t seed, uint64_t stream);
// z may be the very same view as x.
void DropoutInto(const NDArray& x, double rate, uint64_t seed, uint64_t stream, NDArray& z);

inline NDArray DropoutGrad(const NDArray& dz, double rate, uint64_t seed, uint64_t stream) {
  return Dropout(dz, rate, seed, stream);
}
inline void DropoutGradInto(const NDArray& dz, double rate, uint64_t seed, uint64_t stream,
                            NDArray& dx) {
  DropoutInto(dz, rate, seed, stream, dx);
}

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_DROPOUT_H_
