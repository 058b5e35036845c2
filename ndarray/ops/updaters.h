// Updates of parameters from their gradient, in place, one pass over flat f32 arrays. The formulas
// stand with the attributes in ndarray/kernel/attributes.h.
#ifndef TIDEPOOL_NDARRAY_OPS_UPDATERS_H_
#define TIDEPOOL_NDARRAY_OPS_UPDATERS_H_

#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// All arrays have the parameters' shape; state arrays start as zeros.
void SgdUpdate(const NDArray& gradient, NDArray& parameters, const SgdAttributes& attributes);
void NesterovsUpdate(const NDArray& gradient, NDArray& parameters, NDArray& velocity,
                     const NesterovsAttributes& attributes);
void AdamUpdate(const NDArray& gradient, NDArray& parameters, NDArray& first_moment,
                NDArray& second_moment, const AdamAttributes& attributes);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_UPDATERS_H_
