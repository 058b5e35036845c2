// Checks the operators share. Each throws kInvalidArgument with operator, operand, found, expected.
#ifndef TIDEPOOL_NDARRAY_OPS_CHECKS_H_
#define TIDEPOOL_NDARRAY_OPS_CHECKS_H_

#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

void CheckDType(const char* op, const char* operand, const NDArray& array, DType expected);
void CheckShape(const char* op, const char* operand, const NDArray& array, const Shape& expected);
void CheckRank(const char* op, const char* operand, const NDArray& array, int expected);
// Every element of `labels` (rank 1, i64) is in [0, classes). Those of a device are copied to
// the host for it.
void CheckLabels(const char* op, const NDArray& labels, int64_t classes);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_CHECKS_H_
