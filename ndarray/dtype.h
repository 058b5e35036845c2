// Element types.
#ifndef TIDEPOOL_NDARRAY_DTYPE_H_
#define TIDEPOOL_NDARRAY_DTYPE_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace tidepool {

enum class DType : uint8_t { kFloat32 = 0, kInt64 = 1 };
inline constexpr int kDTypes = 2;

constexpr size_t DTypeBytes(DType dtype) { return dtype == DType::kFloat32 ? 4 : 8; }
constexpr const char* DTypeName(DType dtype) {
  return dtype == DType::kFloat32 ? "f32" : "i64";
}

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kFloat32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::kInt64;
};

// Element conversion, defined for every value: to i64 it truncates, and NaN and what i64 cannot
// hold become its smallest value, as x86 does.
template <typename To, typename From>
constexpr To ConvertElement(From value) {
  if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    return value >= From(-0x1p63) && value < From(0x1p63) ? static_cast<To>(value)
                                                          : std::numeric_limits<To>::min();
  } else {
    return static_cast<To>(value);
  }
}

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_DTYPE_H_
