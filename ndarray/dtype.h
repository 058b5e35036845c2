// Element types.
#ifndef TIDEPOOL_NDARRAY_DTYPE_H_
#define TIDEPOOL_NDARRAY_DTYPE_H_

#include <cstddef>
#include <cstdint>

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

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_DTYPE_H_
