#include "tidepool/ndarray/creation.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/convert_elements.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/dispatch.h"

namespace tidepool {
namespace {

template <typename T>
NDArray CopyOf(absl::Span<const T> values, const Shape& shape, Place place) {
  if (static_cast<int64_t>(values.size()) != shape.NumElements()) {
    ThrowInvalidArgument(absl::StrCat("from_values: ", values.size(), " values for shape ",
                                      shape.ToString(), ", expected ", shape.NumElements()));
  }
  NDArray z(shape, DTypeOf<T>::value, place);
  if (!values.empty()) std::copy(values.begin(), values.end(), z.mutable_data<T>());
  return z;
}

NDArray Random(OpCode op, const Shape& shape, const RandomAttributes& attributes, Place place) {
  NDArray z(shape, DType::kFloat32, place);
  Dispatch(op, {}, {&z}, &attributes);
  return z;
}

}  // namespace

NDArray Empty(const Shape& shape, DType dtype, Place place) { return NDArray(shape, dtype, place); }

NDArray Zeros(const Shape& shape, DType dtype, Place place) { return Full(shape, 0, dtype, place); }

NDArray Ones(const Shape& shape, DType dtype, Place place) { return Full(shape, 1, dtype, place); }

NDArray Full(const Shape& shape, double value, DType dtype, Place place) {
  NDArray z(shape, dtype, place);
  const FillAttributes attributes{value};
  Dispatch(OpCode::kFill, {}, {&z}, &attributes);
  return z;
}

NDArray Arange(double begin, double end, double step, DType dtype, Place place) {
  const double count = std::ceil((end - begin) / step);
  if (step == 0 || !std::isfinite(count) || count > 1e15) {
    ThrowInvalidArgument(
        absl::StrCat("arange: from ", begin, " to ", end, " by ", step, " has no end"));
  }
  NDArray z({std::max<int64_t>(0, static_cast<int64_t>(count))}, dtype, place);
  const auto width = static_cast<int64_t>(DTypeBytes(dtype));
  for (int64_t i = 0; i < z.NumElements(); ++i) {
    StoreNumber(begin + static_cast<double>(i) * step, dtype, z.raw_data() + i * width);
  }
  return z;
}

#define TIDEPOOL_FROM_VALUES(T)                                                           \
  NDArray FromValues(absl::Span<const T> values, const Shape& shape, Place place) {       \
    return CopyOf(values, shape, place);                                                  \
  }
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

NDArray RandomUniform(const Shape& shape, double low, double high, uint64_t seed, uint64_t stream,
                      Place place) {
  if (!(low <= high) || !std::isfinite(static_cast<float>(high) - static_cast<float>(low))) {
    ThrowInvalidArgument(absl::StrCat("Op [random_uniform]: range [", low, ", ", high,
                                      "), expected ends in order and a width that f32 holds"));
  }
  return Random(OpCode::kRandomUniform, shape, {seed, stream, low, high}, place);
}

NDArray RandomNormal(const Shape& shape, double mean, double deviation, uint64_t seed,
                     uint64_t stream, Place place) {
  if (!std::isfinite(mean) || !std::isfinite(deviation) || deviation < 0) {
    ThrowInvalidArgument(absl::StrCat("Op [random_normal]: mean ", mean, ", deviation ", deviation,
                                      ", expected finite values and a deviation of at least 0"));
  }
  return Random(OpCode::kRandomNormal, shape, {seed, stream, mean, deviation}, place);
}

}  // namespace tidepool
