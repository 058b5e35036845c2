// A number as an operand of rank 0.
#ifndef TIDEPOOL_NDARRAY_OPS_SCALAR_OPERAND_H_
#define TIDEPOOL_NDARRAY_OPS_SCALAR_OPERAND_H_

#include "tidepool/ndarray/dtype.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/scalar.h"

namespace tidepool {

// FromScalar in scratch memory of `like`'s device; on a device a kernel writes it, so that nothing is copied there or waited for
// and captured steps may have it.
NDArray ScalarOperand(const Scalar& value, DType dtype, const NDArray& like);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_SCALAR_OPERAND_H_
