// Copies runs of elements, converting their type as ConvertElement of dtype.h does.
#ifndef TIDEPOOL_NDARRAY_CONVERT_ELEMENTS_H_
#define TIDEPOOL_NDARRAY_CONVERT_ELEMENTS_H_

#include <cstdint>

#include "tidepool/ndarray/dtype.h"

namespace tidepool {

// `count` elements from `in` to `out`, strides in elements.
using ConvertRun = void (*)(const void* in, int64_t in_stride, void* out, int64_t out_stride,
                            int64_t count);
ConvertRun ConverterOf(DType from, DType to);

// One element from a number; the element as a number, which i64 beyond 2^53 is not exactly.
void StoreNumber(double value, DType dtype, void* out);
double LoadNumber(DType dtype, const void* in);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_CONVERT_ELEMENTS_H_
