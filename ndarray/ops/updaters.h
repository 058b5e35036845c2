// Updates of parameters from their gradient, in place, one pass over flat arrays of f32 or f64. The
// formulas stand with the attributes in ndarray/kernel/attributes.h.
#ifndef TIDEPOOL_NDARRAY_OPS_UPDATERS_H_
#define TIDEPOOL_NDARRAY_OPS_UPDATERS_H_

#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// All arrays have the parameters' shape; state arrays start as zeros.
//
// `numbers`, if given, is an array of the parameters' type and kUpdateNumbers elements
// (ndarray/kernel/update_numbers.h) on the parameters' device with what NumbersOf(attributes) says:
// kernels read it there and not in the attributes, so that a captured step may be replayed with
// other numbers, and leave everything as it is where the array says so. Without it AdamUpdate, whose step number is different in each step, is refused
// while a step is captured.
void SgdUpdate(const NDArray& gradient, NDArray& parameters, const SgdAttributes& attributes,
               const NDArray* numbers = nullptr);
void NesterovsUpdate(const NDArray& gradient, NDArray& parameters, NDArray& velocity,
                     const NesterovsAttributes& attributes, const NDArray* numbers = nullptr);
void AdaGradUpdate(const NDArray& gradient, NDArray& parameters, NDArray& sum,
                   const AdaGradAttributes& attributes, const NDArray* numbers = nullptr);
void RmsPropUpdate(const NDArray& gradient, NDArray& parameters, NDArray& mean_square,
                   const RmsPropAttributes& attributes, const NDArray* numbers = nullptr);
void AdamUpdate(const NDArray& gradient, NDArray& parameters, NDArray& first_moment,
                NDArray& second_moment, const AdamAttributes& attributes,
                const NDArray* numbers = nullptr);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_UPDATERS_H_
