// Element types: their names and sizes, what they convert to, what two of them promote to.
#ifndef TIDEPOOL_NDARRAY_DTYPE_H_
#define TIDEPOOL_NDARRAY_DTYPE_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "absl/types/span.h"
#include "tidepool/ndarray/float16.h"

namespace tidepool {

// The type of an array's elements.
enum class DType : uint8_t {
  kFloat32,
  kInt64,
  kFloat64,
  kFloat16,
  kBFloat16,
  kInt8,
  kUInt8,
  kInt32,
  kBool,  // a byte that is 0 or 1
  kInt16,
  kUInt16,
  kUInt32,
  kUInt64,
};
inline constexpr int kDTypes = 13;  // how many there are

// Bytes of an element.
constexpr size_t DTypeBytes(DType dtype) {
  constexpr uint8_t kBytes[kDTypes] = {4, 8, 8, 2, 2, 1, 1, 4, 1, 2, 2, 4, 8};
  return kBytes[static_cast<int>(dtype)];
}
// "f32", "i64", "bool", ...: as in messages.
constexpr const char* DTypeName(DType dtype) {
  constexpr const char* kNames[kDTypes] = {"f32", "i64",  "f64", "f16", "bf16", "i8", "u8",
                                           "i32", "bool", "i16", "u16", "u32",  "u64"};
  return kNames[static_cast<int>(dtype)];
}
// f32, f64, f16 and bf16.
constexpr bool IsFloating(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16 ||
         dtype == DType::kBFloat16;
}
// Whole numbers, with a sign or without; bool is none.
constexpr bool IsInteger(DType dtype) { return !IsFloating(dtype) && dtype != DType::kBool; }
// Those without a sign.
constexpr bool IsUnsigned(DType dtype) {
  return dtype == DType::kUInt8 || dtype == DType::kUInt16 || dtype == DType::kUInt32 ||
         dtype == DType::kUInt64;
}

// The type of a result of operands of both types: the smallest that holds every value of each, as
// NumPy's. Where there is none: i64 and u64 with a float give f64 (i32 and u32 too, but with f64's 53
// bits exactly), and so do u64 and a signed integer; f16 with bf16 gives f32.
DType PromoteTypes(DType a, DType b);
// Of any number of them, at least one: floats first, so that i8 and u8 beside f16 are f16.
DType PromoteTypes(absl::Span<const DType> types);

// The type of sums and products of elements: a float's own, u64 for u64, i64 for other integers and bool.
constexpr DType TotalType(DType dtype) {
  return IsFloating(dtype) || dtype == DType::kUInt64 ? dtype : DType::kInt64;
}

// Sets of types.
using DTypeSet = uint16_t;
constexpr DTypeSet SetOf(DType dtype) {
  return static_cast<DTypeSet>(1 << static_cast<int>(dtype));
}
// Whether it is one of them.
constexpr bool Contains(DTypeSet set, DType dtype) { return (set & SetOf(dtype)) != 0; }

// The DType of the C++ type T, as its `value`; for no other types.
template <typename T>
struct DTypeOf;
// Of each of them.
#define TIDEPOOL_DTYPE_OF(Type, dtype)           \
  template <>                                    \
  struct DTypeOf<Type> {                         \
    static constexpr DType value = DType::dtype; \
  };
TIDEPOOL_DTYPE_OF(float, kFloat32)
TIDEPOOL_DTYPE_OF(int64_t, kInt64)
TIDEPOOL_DTYPE_OF(double, kFloat64)
TIDEPOOL_DTYPE_OF(Float16, kFloat16)
TIDEPOOL_DTYPE_OF(BFloat16, kBFloat16)
TIDEPOOL_DTYPE_OF(int8_t, kInt8)
TIDEPOOL_DTYPE_OF(uint8_t, kUInt8)
TIDEPOOL_DTYPE_OF(int32_t, kInt32)
TIDEPOOL_DTYPE_OF(bool, kBool)
TIDEPOOL_DTYPE_OF(int16_t, kInt16)
TIDEPOOL_DTYPE_OF(uint16_t, kUInt16)
TIDEPOOL_DTYPE_OF(uint32_t, kUInt32)
TIDEPOOL_DTYPE_OF(uint64_t, kUInt64)
#undef TIDEPOOL_DTYPE_OF

// Calls visit(T()) with the C++ type of `dtype`.
template <typename Visit>
constexpr decltype(auto) VisitDType(DType dtype, Visit&& visit) {
  switch (dtype) {
    case DType::kFloat32:
      return visit(float());
    case DType::kInt64:
      return visit(int64_t());
    case DType::kFloat64:
      return visit(double());
    case DType::kFloat16:
      return visit(Float16());
    case DType::kBFloat16:
      return visit(BFloat16());
    case DType::kInt8:
      return visit(int8_t());
    case DType::kUInt8:
      return visit(uint8_t());
    case DType::kInt32:
      return visit(int32_t());
    case DType::kInt16:
      return visit(int16_t());
    case DType::kUInt16:
      return visit(uint16_t());
    case DType::kUInt32:
      return visit(uint32_t());
    case DType::kUInt64:
      return visit(uint64_t());
    case DType::kBool:
      break;
  }
  return visit(bool());
}

// Of C++ types: Float16 and BFloat16; these, float and double.
template <typename T>
inline constexpr bool kIs16BitFloat = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;
template <typename T>
inline constexpr bool kIsFloat = std::is_floating_point_v<T> || kIs16BitFloat<T>;

// An integer as a double that rounds on to 16 bits as the integer itself would: one of 64 bits that a double does not hold has
// the double's last bit set.
template <typename From>
constexpr double ToOddDouble(From value) {
  if constexpr (sizeof(From) == 8) {
    constexpr From kExact = From{1} << 53, kLow = 0xfff;
    bool large = value > kExact;
    if constexpr (std::is_signed_v<From>) large = large || value < -kExact;
    if (large) value = static_cast<From>((value & ~kLow) | ((value & kLow) != 0 ? 0x800 : 0));
  }
  return static_cast<double>(value);
}

// Element conversion, defined for every value. To floats: rounded to nearest even, once. Between
// integers: modulo 2^bits. From floats to integers: truncated to i64 (to u64, where it is one and holds
// what i64 cannot), where NaN and what does not fit become the smallest i64, as x86 does; then modulo.
// To bool: whether it is not zero, which NaN is not.
template <typename To, typename From>
constexpr To ConvertElement(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (kIs16BitFloat<From>) {
    return ConvertElement<To>(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, bool>) {
    return value != From(0);
  } else if constexpr (kIs16BitFloat<To>) {
    if constexpr (std::is_floating_point_v<From>) {
      return To(value);
    } else {
      return To(ToOddDouble(value));
    }
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    if constexpr (std::is_same_v<To, uint64_t>) {
      if (value >= From(0x1p63) && value < From(0x1p64)) return static_cast<uint64_t>(value);
    }
    return static_cast<To>(value >= From(-0x1p63) && value < From(0x1p63)
                               ? static_cast<int64_t>(value)
                               : std::numeric_limits<int64_t>::min());
  } else {
    return static_cast<To>(value);
  }
}

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_DTYPE_H_
