// Making arrays. Without a place they live in the calling thread's current workspace, or on the
// heap. Values are written by the kernels of the place's device; fill needs no backend.
#ifndef TIDEPOOL_NDARRAY_CREATION_H_
#define TIDEPOOL_NDARRAY_CREATION_H_

#include <cstdint>

#include "absl/types/span.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

NDArray Empty(const Shape& shape, DType dtype = DType::kFloat32, Place place = Place::Current());
NDArray Zeros(const Shape& shape, DType dtype = DType::kFloat32, Place place = Place::Current());
NDArray Ones(const Shape& shape, DType dtype = DType::kFloat32, Place place = Place::Current());
NDArray Full(const Shape& shape, double value, DType dtype = DType::kFloat32,
             Place place = Place::Current());
// begin, begin + step, ... below end (above, for a negative step).
NDArray Arange(double begin, double end, double step = 1, DType dtype = DType::kFloat32,
               Place place = Place::Current());
// A copy of `values`, row-major. Throws kInvalidArgument when their number does not fit the shape.
#define TIDEPOOL_FROM_VALUES(T)                                    \
  NDArray FromValues(absl::Span<const T> values, const Shape& shape, \
                     Place place = Place::Current());
TIDEPOOL_FROM_VALUES(float)
TIDEPOOL_FROM_VALUES(int64_t)
TIDEPOOL_FROM_VALUES(double)
TIDEPOOL_FROM_VALUES(Float16)
TIDEPOOL_FROM_VALUES(BFloat16)
TIDEPOOL_FROM_VALUES(int8_t)
TIDEPOOL_FROM_VALUES(uint8_t)
TIDEPOOL_FROM_VALUES(int32_t)
TIDEPOOL_FROM_VALUES(bool)
#undef TIDEPOOL_FROM_VALUES

// Element i is a pure function of (seed, stream, i): Philox4x32-10 (Salmon et al. 2011), the same
// on every device and for every thread count; the formulas stand in kernel/philox.h. f32. Needs a
// linked backend. Throws kInvalidArgument for an empty or infinite range, a negative deviation.
NDArray RandomUniform(const Shape& shape, double low, double high, uint64_t seed,
                      uint64_t stream = 0, Place place = Place::Current());
NDArray RandomNormal(const Shape& shape, double mean, double deviation, uint64_t seed,
                     uint64_t stream = 0, Place place = Place::Current());

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_CREATION_H_
