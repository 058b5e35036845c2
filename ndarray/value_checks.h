// The values that operators refuse: indices that are outside, zeros and negative powers that integers have no result for.
//
// Operators on the host look before they begin. Those of devices whose kernels look themselves
// (memory/provider/value_faults.h) do not; where such a call is done on the host after all, the values are looked at there.
#ifndef TIDEPOOL_NDARRAY_VALUE_CHECKS_H_
#define TIDEPOOL_NDARRAY_VALUE_CHECKS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "tidepool/ndarray/kernel/op_code.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// Whether the kernels of the array's device look at its values.
bool IsCheckedByKernels(const NDArray& array);

// Throw kInvalidArgument. Arrays of a device are copied to the host, which waits for them.
// Indices, i32 or i64, must be from 0 to size - 1.
void CheckIndexValues(OpCode op, const NDArray& indices, int64_t size);
// The second operand of an operator of integers: not zero, for power not negative. Floats may be anything.
void CheckIntegerOperand(OpCode op, const NDArray& y);
bool ChecksIntegerOperand(OpCode op);

// Of a call whose operands are on the host: what the functions above refuse.
void CheckValuesOf(OpCode op, absl::Span<const NDArray* const> inputs,
                   absl::Span<NDArray* const> outputs, AttributesRef attributes);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_VALUE_CHECKS_H_
