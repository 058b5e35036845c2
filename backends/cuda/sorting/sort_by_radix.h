// Sorted lines, for .cu files: up to 128 elements by the networks of sort_kernel.h, up to 4096 by a block's radix sort
// (block_sort.h), longer ones by the device's (radix_sort.h). Of several lines the number of the line stands in front of the
// key; for those of 64-bit numbers there is no room, and longer ones are merged.
#ifndef TIDEPOOL_BACKENDS_CUDA_SORTING_SORT_BY_RADIX_H_
#define TIDEPOOL_BACKENDS_CUDA_SORTING_SORT_BY_RADIX_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "tidepool/backends/cuda/sorting/block_sort.h"
#include "tidepool/backends/cuda/sorting/radix_sort.h"
#include "tidepool/backends/cuda/sorting/sort_kernel.h"
#include "tidepool/backends/cuda/sorting/sort_key.h"

namespace tidepool::cuda {

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
  return size > kBlockEntries && (lines == 1 || SortKey<T>::kBits < 64);
}
inline bool IsSortedByBlock(int64_t size) {
  return size > kNetworkEntries && size <= kBlockEntries;
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
  if (IsSortedByBlock(size)) return 0;
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
  if (IsSortedByBlock(lines.size)) return QueueBlockSort<T, kPlaced>(lines, stream);
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
