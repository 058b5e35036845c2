#include "tidepool/ndarray/creation.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/capture/step_capture.h"
#include "tidepool/ndarray/convert_elements.h"
#include "tidepool/ndarray/device_transfer.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/kernel/attributes.h"

namespace tidepool {
namespace {

template <typename T>
NDArray CopyOf(absl::Span<const T> values, const Shape& shape, Place place) {
  if (static_cast<int64_t>(values.size()) != shape.NumElements()) {
    ThrowInvalidArgument(absl::StrCat("from_values: ", values.size(), " values for shape ",
                                      shape.ToString(), ", expected ", shape.NumElements()));
  }
  NDArray z(shape, DTypeOf<T>::value, place);
  WriteElements(z, [&](std::byte* first) {
    std::copy(values.begin(), values.end(), reinterpret_cast<T*>(first));
  });
  return z;
}

// `number` as the type holds it.
double Rounded(double number, DType dtype) {
  uint64_t element;
  StoreNumber(number, dtype, &element);
  return LoadNumber(dtype, &element);
}

NDArray Random(OpCode op, const Shape& shape, DType dtype, const RandomAttributes& attributes,
               Place place) {
  RefuseWhileCapturing(Info(op).name, "its random numbers would be the same in each replay");
  if (!IsFloating(dtype)) {
    ThrowInvalidArgument(absl::StrCat("Op [", Info(op).name, "]: type ", DTypeName(dtype),
                                      ", expected a float type"));
  }
  NDArray z(shape, dtype, place);
  Dispatch(op, {}, {&z}, &attributes);
  return z;
}

bool IsWhole(double value) { return value == std::trunc(value) && std::abs(value) < 0x1p63; }

}  // namespace

NDArray Empty(const Shape& shape, DType dtype, Place place) { return NDArray(shape, dtype, place); }

NDArray Zeros(const Shape& shape, DType dtype, Place place) { return Full(shape, 0, dtype, place); }

NDArray Ones(const Shape& shape, DType dtype, Place place) { return Full(shape, 1, dtype, place); }

NDArray Full(const Shape& shape, const Scalar& value, DType dtype, Place place) {
  NDArray z(shape, dtype, place);
  FillInto(value, z);
  return z;
}

void FillInto(const Scalar& value, NDArray& z) {
  z.CheckAlive("fill", "Z");
  if ((z.dtype() == DType::kInt64 || z.dtype() == DType::kUInt64) && !value.FitsDouble()) {
    // Kernels are told a double.
    const NDArray one =
        FromScalar(value, z.dtype(), Place::Scratch(z.device())).BroadcastTo(z.shape());
    return Dispatch(OpCode::kCopy, {&one}, {&z});
  }
  const FillAttributes attributes{value.To<double>()};
  Dispatch(OpCode::kFill, {}, {&z}, &attributes);
}

NDArray FromScalar(const Scalar& value, DType dtype, Place place) {
  NDArray z({}, dtype, place);
  WriteElements(z, [&](std::byte* element) {
    VisitDType(dtype,
               [&](auto t) { *reinterpret_cast<decltype(t)*>(element) = value.To<decltype(t)>(); });
  });
  return z;
}

NDArray Arange(double begin, double end, double step, DType dtype, Place place) {
  const double count = std::ceil((end - begin) / step);
  if (step == 0 || !std::isfinite(count) || count > 1e15) {
    ThrowInvalidArgument(
        absl::StrCat("arange: from ", begin, " to ", end, " by ", step, " has no end"));
  }
  NDArray z({std::max<int64_t>(0, static_cast<int64_t>(count))}, dtype, place);
  if ((dtype == DType::kInt64 || dtype == DType::kUInt64) && IsWhole(begin) && IsWhole(step)) {
    // Exact where double is not. All lie between begin and end: i * step does not overflow but for
    // wide ranges, and then it comes out right modulo 2^64.
    const auto first = static_cast<uint64_t>(static_cast<int64_t>(begin));
    const auto distance = static_cast<uint64_t>(static_cast<int64_t>(step));
    WriteElements(z, [&](std::byte* elements) {
      auto* values = reinterpret_cast<uint64_t*>(elements);
      for (int64_t i = 0; i < z.NumElements(); ++i) {
        values[i] = first + static_cast<uint64_t>(i) * distance;
      }
    });
    return z;
  }
  const auto width = static_cast<int64_t>(DTypeBytes(dtype));
  WriteElements(z, [&](std::byte* first) {
    for (int64_t i = 0; i < z.NumElements(); ++i) {
      StoreNumber(begin + static_cast<double>(i) * step, dtype, first + i * width);
    }
  });
  return z;
}

NDArray Linspace(double begin, double end, int64_t count, DType dtype, Place place) {
  if (count < 0 || !std::isfinite(end - begin)) {
    ThrowInvalidArgument(absl::StrCat("linspace: ", count, " numbers from ", begin, " to ", end,
                                      ", expected 0 or more and a finite width"));
  }
  NDArray z({count}, dtype, place);
  const auto width = static_cast<int64_t>(DTypeBytes(dtype));
  const double step = count > 1 ? (end - begin) / static_cast<double>(count - 1) : 0;
  WriteElements(z, [&](std::byte* first) {
    for (int64_t i = 0; i < count; ++i) {
      const bool last = i > 0 && i == count - 1;
      const double value = last ? end : begin + static_cast<double>(i) * step;
      StoreNumber(IsInteger(dtype) ? std::floor(value) : value, dtype, first + i * width);
    }
  });
  return z;
}

NDArray Eye(int64_t rows, int64_t columns, int64_t diagonal, DType dtype, Place place) {
  NDArray z({rows, columns}, dtype, place);
  const auto width = static_cast<int64_t>(DTypeBytes(dtype));
  WriteElements(z, [&](std::byte* elements) {
    std::memset(elements, 0, static_cast<size_t>(z.NumElements() * width));
    const int64_t first = diagonal < 0 ? (diagonal <= -rows ? rows : -diagonal) : 0;
    for (int64_t row = first; row < rows && diagonal < columns - row; ++row) {
      StoreNumber(1, dtype, elements + (row * columns + row + diagonal) * width);
    }
  });
  return z;
}

#define TIDEPOOL_FROM_VALUES(T)                                                     \
  NDArray FromValues(absl::Span<const T> values, const Shape& shape, Place place) { \
    return CopyOf(values, shape, place);                                            \
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
TIDEPOOL_FROM_VALUES(int16_t)
TIDEPOOL_FROM_VALUES(uint16_t)
TIDEPOOL_FROM_VALUES(uint32_t)
TIDEPOOL_FROM_VALUES(uint64_t)
#undef TIDEPOOL_FROM_VALUES

NDArray RandomUniform(const Shape& shape, double low, double high, DType dtype, uint64_t seed,
                      uint64_t stream, Place place) {
  const double width = Rounded(Rounded(high, dtype) - Rounded(low, dtype), dtype);
  if (!(low <= high) || !std::isfinite(width)) {
    ThrowInvalidArgument(absl::StrCat("Op [random_uniform]: range [", low, ", ", high,
                                      "), expected ends in order and a width that ",
                                      DTypeName(dtype), " holds"));
  }
  return Random(OpCode::kRandomUniform, shape, dtype, {seed, stream, low, high}, place);
}

NDArray RandomUniform(const Shape& shape, double low, double high, uint64_t seed, uint64_t stream,
                      Place place) {
  return RandomUniform(shape, low, high, DType::kFloat32, seed, stream, place);
}

NDArray RandomNormal(const Shape& shape, double mean, double deviation, DType dtype, uint64_t seed,
                     uint64_t stream, Place place) {
  if (!std::isfinite(mean) || !std::isfinite(deviation) || deviation < 0) {
    ThrowInvalidArgument(absl::StrCat("Op [random_normal]: mean ", mean, ", deviation ", deviation,
                                      ", expected finite values and a deviation of at least 0"));
  }
  return Random(OpCode::kRandomNormal, shape, dtype, {seed, stream, mean, deviation}, place);
}

NDArray RandomNormal(const Shape& shape, double mean, double deviation, uint64_t seed,
                     uint64_t stream, Place place) {
  return RandomNormal(shape, mean, deviation, DType::kFloat32, seed, stream, place);
}

}  // namespace tidepool
