// Keys that radix sorts take, for .cu files.
#ifndef TIDEPOOL_BACKENDS_CUDA_SORTING_SORT_KEY_H_
#define TIDEPOOL_BACKENDS_CUDA_SORTING_SORT_KEY_H_

#include <cstdint>
#include <type_traits>

#include "tidepool/backends/cuda/common/element.h"

namespace tidepool::cuda {

// Unsigned numbers in the order of elements: NaN above all others.
template <typename T>
struct SortKey {
  static constexpr int kBits = 8 * static_cast<int>(sizeof(T));
  static constexpr bool kReal = kIsFloat<T>;
  using Key = std::conditional_t<kBits == 64, uint64_t, uint32_t>;
  static constexpr Key kMask = static_cast<Key>(~uint64_t{0} >> (64 - kBits));
  static constexpr Key kSign = Key{1} << (kBits - 1);
  // How many NaN there are with a sign, which would be below minus infinity.
  static constexpr int kFraction = kBits == 64                  ? 52
                                   : kBits == 32                ? 23
                                   : std::is_same_v<T, Float16> ? 10
                                                                : 7;
  static constexpr Key kSignedNaNs = (Key{1} << kFraction) - 1;

  __device__ __forceinline__ static Key BitsOf(T value) {
    if constexpr (std::is_same_v<T, float>) {
      return __float_as_uint(value);
    } else if constexpr (std::is_same_v<T, double>) {
      return static_cast<Key>(__double_as_longlong(value));
    } else if constexpr (kReal) {
      return value.bits;
    } else {
      return static_cast<Key>(value) & kMask;
    }
  }
  __device__ __forceinline__ static T FromBits(Key bits) {
    if constexpr (std::is_same_v<T, float>) {
      return __uint_as_float(bits);
    } else if constexpr (std::is_same_v<T, double>) {
      return __longlong_as_double(static_cast<long long>(bits));
    } else if constexpr (kReal) {
      T value;
      value.bits = static_cast<uint16_t>(bits);
      return value;
    } else {
      return static_cast<T>(bits);
    }
  }
  __device__ __forceinline__ static Key Of(T value, bool descending) {
    Key key = BitsOf(value);
    if constexpr (kReal) {
      key = ((key & kSign) != 0 ? ~key : key | kSign) - kSignedNaNs;
    } else if constexpr (std::is_signed_v<T>) {
      key ^= kSign;
    }
    return (descending ? ~key : key) & kMask;
  }
  // Elements that compare equal have one key; there is no way back.
  __device__ __forceinline__ static Key OfEquals(T value, bool descending) {
    if constexpr (kReal) {
      if (IsNaN(Wide(value))) return descending ? Key{0} : kMask;
      if (Wide(value) == 0) value = FromBits(0);
    }
    return Of(value, descending);
  }
  __device__ __forceinline__ static T Value(Key key, bool descending) {
    if (descending) key = ~key;
    if constexpr (kReal) {
      key += kSignedNaNs;
      key = (key & kSign) != 0 ? key & ~kSign : ~key;
    } else if constexpr (std::is_signed_v<T>) {
      key ^= kSign;
    }
    return FromBits(key & kMask);
  }
};

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_SORTING_SORT_KEY_H_
