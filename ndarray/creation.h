// Making arrays. Without a place they live in the calling thread's current workspace, or on the
// heap. On any device: random numbers by its kernels; a fill by its kernel or the provider's; all other
// values are made on the host and copied there.
#ifndef TIDEPOOL_NDARRAY_CREATION_H_
#define TIDEPOOL_NDARRAY_CREATION_H_

#include <cstdint>
#include <initializer_list>

#include "absl/types/span.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/scalar.h"

namespace tidepool {

// Of that shape and type: contents are whatever the memory held (Empty), all 0, all 1. What makes
// an array throws as Place::Allocate.
NDArray Empty(const Shape& shape, DType dtype = DType::kFloat32, Place place = Place::Current());
NDArray Zeros(const Shape& shape, DType dtype = DType::kFloat32, Place place = Place::Current());
NDArray Ones(const Shape& shape, DType dtype = DType::kFloat32, Place place = Place::Current());

// `value` as an element of that type, exactly where it is an integer (scalar.h).
NDArray Full(const Shape& shape, const Scalar& value, DType dtype = DType::kFloat32,
             Place place = Place::Current());

// Each element of `z`, which may be a view with gaps, becomes `value`, converted as Full does.
void FillInto(const Scalar& value, NDArray& z);
// An array of rank 0 with that element, made on the host and copied to the place's device.
NDArray FromScalar(const Scalar& value, DType dtype, Place place = Place::Current());
// begin, begin + step, ... below end (above, for a negative step). Element i is begin + i * step in
// double, converted once; of i64 and u64, with whole begin and step, in these. Throws kInvalidArgument for a
// step of 0 and ends that are not finite.
NDArray Arange(double begin, double end, double step = 1, DType dtype = DType::kFloat32,
               Place place = Place::Current());
// `count` numbers from begin to end, both among them: begin + i * ((end - begin) / (count - 1)) in
// double, the last one `end` itself; one number is `begin`. Integers are rounded down. Throws
// kInvalidArgument for a negative count and a width that is not finite.
NDArray Linspace(double begin, double end, int64_t count, DType dtype = DType::kFloat32,
                 Place place = Place::Current());
// [rows, columns] of zeros with ones where column - row is `diagonal`.
NDArray Eye(int64_t rows, int64_t columns, int64_t diagonal = 0, DType dtype = DType::kFloat32,
            Place place = Place::Current());
// A copy of `values`, row-major. Throws kInvalidArgument when their number does not fit the shape.
#define TIDEPOOL_FROM_VALUES(T)                                      \
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
TIDEPOOL_FROM_VALUES(int16_t)
TIDEPOOL_FROM_VALUES(uint16_t)
TIDEPOOL_FROM_VALUES(uint32_t)
TIDEPOOL_FROM_VALUES(uint64_t)
#undef TIDEPOOL_FROM_VALUES
// FromValues({1.5f, 2.5f}, {2}): of the type that is written, or named (FromValues<float>({1, 2}, {2})).
template <typename T>
NDArray FromValues(std::initializer_list<T> values, const Shape& shape,
                   Place place = Place::Current()) {
  return FromValues(absl::Span<const T>(values.begin(), values.size()), shape, place);
}

// Element i is a pure function of (seed, stream, i): Philox4x32-10 (Salmon et al. 2011), the same
// on every device and for every thread count; the formulas stand in kernel/random_numbers.h. f32, or
// the float type given. Needs a linked backend. Throws kInvalidArgument for a range that is empty or
// that the type does not hold, for a negative deviation, for types that are not floats. More kinds:
// ops/random.h.
NDArray RandomUniform(const Shape& shape, double low, double high, uint64_t seed,
                      uint64_t stream = 0, Place place = Place::Current());
NDArray RandomUniform(const Shape& shape, double low, double high, DType dtype, uint64_t seed,
                      uint64_t stream = 0, Place place = Place::Current());
NDArray RandomNormal(const Shape& shape, double mean, double deviation, uint64_t seed,
                     uint64_t stream = 0, Place place = Place::Current());
NDArray RandomNormal(const Shape& shape, double mean, double deviation, DType dtype, uint64_t seed,
                     uint64_t stream = 0, Place place = Place::Current());

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_CREATION_H_
