// Comparison of an operator's result with what is expected, by tolerances.inc or by what
// own_operator.h was told.
#ifndef TIDEPOOL_NDARRAY_TESTING_COMPARISON_H_
#define TIDEPOOL_NDARRAY_TESTING_COMPARISON_H_

#include <string>

#include "tidepool/ndarray/testing/op_case.h"

namespace tidepool {

// A tolerance of f32 in the precision of `dtype`.
Tolerance InPrecisionOf(DType dtype, Tolerance of_f32);

// Of results of type `dtype`.
Tolerance ToleranceOf(OpCode op, DType dtype = DType::kFloat32);

// Empty when equal within `tolerance`; else the first element that is not, both values, and how
// many there are.
std::string Difference(const OperandValues& actual, const OperandValues& expected,
                       Tolerance tolerance, double inner);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_TESTING_COMPARISON_H_
