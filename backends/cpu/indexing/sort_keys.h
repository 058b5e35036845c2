// Elements as unsigned integers in the order of sorting.
#ifndef TIDEPOOL_BACKENDS_CPU_INDEXING_SORT_KEYS_H_
#define TIDEPOOL_BACKENDS_CPU_INDEXING_SORT_KEYS_H_

#include <bit>
#include <cstdint>
#include <type_traits>

#include "tidepool/ndarray/dtype.h"

namespace tidepool::cpu {

template <size_t kBytes>
using UnsignedOf = std::conditional_t<
    kBytes == 1, uint8_t,
    std::conditional_t<kBytes == 2, uint16_t, std::conditional_t<kBytes == 4, uint32_t, uint64_t>>>;

template <typename T>
using SortKey = UnsignedOf<sizeof(T)>;

// Keys of floats: sign and size, negative ones turned round. NaN is the largest key.
template <typename Bits>
constexpr Bits OrderedBits(Bits bits) {
  constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  return static_cast<Bits>((bits & kSign) != 0 ? ~bits : bits | kSign);
}
template <typename Bits>
constexpr Bits BitsOfOrdered(Bits key) {
  constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  return static_cast<Bits>((key & kSign) != 0 ? key & ~kSign : ~key);
}

// With `kZeros` -0 and 0 have keys of their own, from which they can be had back.
template <typename T, bool kZeros>
SortKey<T> KeyOf(T value) {
  using Key = SortKey<T>;
  constexpr Key kSign = static_cast<Key>(Key{1} << (8 * sizeof(Key) - 1));
  if constexpr (kIsFloat<T>) {
    if (value != value) return static_cast<Key>(~Key{0});
    const Key bits = std::bit_cast<Key>(value);
    if (!kZeros && static_cast<Key>(bits << 1) == 0) return kSign;
    return OrderedBits(bits);
  } else if constexpr (std::is_signed_v<T>) {
    return static_cast<Key>(static_cast<Key>(value) ^ kSign);
  } else {
    return static_cast<Key>(value);
  }
}

// The value with this key; of NaN a quiet one.
template <typename T>
T ValueOf(SortKey<T> key) {
  using Key = SortKey<T>;
  constexpr Key kSign = static_cast<Key>(Key{1} << (8 * sizeof(Key) - 1));
  if constexpr (kIsFloat<T>) {
    return std::bit_cast<T>(BitsOfOrdered(key));
  } else if constexpr (std::is_signed_v<T>) {
    return static_cast<T>(key ^ kSign);
  } else {
    return static_cast<T>(key);
  }
}

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_INDEXING_SORT_KEYS_H_
