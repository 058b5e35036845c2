// Sorted lines, for .cu files: those that fit a tile and those of several lines of 64-bit numbers by sort_kernel.h,
// others by radix_sort.h. Of several lines the number of the line stands in front of the key.
#ifndef TIDEPOOL_BACKENDS_CUDA_SORTING_SORT_BY_RADIX_H_
#define TIDEPOOL_BACKENDS_CUDA_SORTING_SORT_BY_RADIX_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "tidepool/backends/cuda/sorting/radix_sort.h"
#include "tidepool/backends/cuda/sorting/sort_kernel.h"

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

template <typename T, bool kPlaced, typename Key>
__global__ void __launch_bounds__(kBlockThreads)
    MakeSortKeys(SortLines<T> lines, Key* keys, int64_t* places) {
  for (int64_t e = GlobalThread(); e < lines.count * lines.size; e += GlobalThreads()) {
    const int64_t line = Quotient(e, lines.size), i = e - line * lines.size;
    const T value = lines.x[lines.Offset(line, i, lines.size)];
    Key key;
    if constexpr (kPlaced) {
      key = SortKey<T>::OfEquals(value, lines.descending);
      places[e] = i;
    } else {
      key = SortKey<T>::Of(value, lines.descending);
    }
    if constexpr (sizeof(Key) > sizeof(T)) {
      if (lines.count > 1) key |= static_cast<Key>(line) << SortKey<T>::kBits;
    }
    keys[e] = key;
  }
}

template <typename T, bool kPlaced, typename Key>
__global__ void __launch_bounds__(kBlockThreads)
    EmitSorted(SortLines<T> lines, const Key* keys, const int64_t* places) {
  for (int64_t e = GlobalThread(); e < lines.count * lines.size; e += GlobalThreads()) {
    const int64_t line = Quotient(e, lines.size), i = e - line * lines.size;
    if (i >= lines.kept) continue;
    if constexpr (kPlaced) {
      const T value = lines.x[lines.Offset(line, places[e], lines.size)];
      lines.Emit(line, i, SortEntry<T, true>{value, places[e]});
    } else {
      const auto key = static_cast<typename SortKey<T>::Key>(keys[e]);
      lines.Emit(line, i, SortEntry<T, false>{SortKey<T>::Value(key, lines.descending)});
    }
  }
}

template <typename T>
bool IsSortedByRadix(int64_t lines, int64_t size) {
  return size > kTileEntries && (lines == 1 || SortKey<T>::kBits < 64);
}
// Calls use(Key()) with the type of the keys.
template <typename T, typename Use>
auto WithSortKey(int64_t lines, Use use) {
  if constexpr (SortKey<T>::kBits < 64) {
    if (lines == 1) return use(uint32_t());
  }
  return use(uint64_t());
}

template <typename T, bool kPlaced>
size_t SortLinesBytes(int64_t lines, int64_t size) {
  if (!IsSortedByRadix<T>(lines, size)) return SortScratchBytes<T, kPlaced>(lines, size);
  return WithSortKey<T>(lines, [&](auto key) {
    using Key = decltype(key);
    const int64_t count = lines * size;
    return static_cast<size_t>(2 * Aligned(count * static_cast<int64_t>(sizeof(Key))) +
                               (kPlaced ? 2 * Aligned(count * 8) : 0)) +
           RadixSortBytes<Key>(count, kPlaced);
  });
}

template <typename T, bool kPlaced>
void QueueSortLines(const SortLines<T>& lines, void* scratch, cudaStream_t stream) {
  if (lines.count == 0 || lines.size == 0 || lines.kept == 0) return;
  if (!IsSortedByRadix<T>(lines.count, lines.size))
    return SortAll<T, kPlaced>(lines, scratch, stream);
  WithSortKey<T>(lines.count, [&](auto type) {
    using Key = decltype(type);
    const int64_t count = lines.count * lines.size;
    auto* memory = static_cast<std::byte*>(scratch);
    auto take = [&memory](int64_t bytes) {
      std::byte* const part = memory;
      memory += Aligned(bytes);
      return part;
    };
    auto* const keys = reinterpret_cast<Key*>(take(count * static_cast<int64_t>(sizeof(Key))));
    auto* const sorted = reinterpret_cast<Key*>(take(count * static_cast<int64_t>(sizeof(Key))));
    auto* const places = kPlaced ? reinterpret_cast<int64_t*>(take(count * 8)) : nullptr;
    auto* const placed = kPlaced ? reinterpret_cast<int64_t*>(take(count * 8)) : nullptr;
    const int bits = SortKey<T>::kBits +
                     (lines.count > 1 ? std::bit_width(static_cast<uint64_t>(lines.count - 1)) : 0);
    const dim3 blocks = BlocksFor(count, kBlockThreads);
    Launch(MakeSortKeys<T, kPlaced, Key>, blocks, kBlockThreads, 0, stream, lines, keys, places);
    QueueRadixSort<Key>({count, bits, keys, sorted, places, placed}, memory, stream);
    Launch(EmitSorted<T, kPlaced, Key>, blocks, kBlockThreads, 0, stream, lines, sorted, placed);
  });
}

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_SORTING_SORT_BY_RADIX_H_
