// Counts of operands from their names: of the list while it is compiled, of operators that programs add when they come.
#ifndef TIDEPOOL_NDARRAY_KERNEL_COUNT_OPERANDS_H_
#define TIDEPOOL_NDARRAY_KERNEL_COUNT_OPERANDS_H_

#include <cstdint>

namespace tidepool {

// How many names a comma-separated list has; more than 127 count as 127.
constexpr int8_t CountOperands(const char* names) {
  if (*names == 0) return 0;
  int8_t count = 1;
  for (; *names != 0; ++names) count += *names == ',' && count < INT8_MAX;
  return count;
}

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_KERNEL_COUNT_OPERANDS_H_
