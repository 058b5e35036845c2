// Sorting of lines, for .cu files: tiles by bitonic networks in shared memory (Batcher 1968), then
// passes that merge pairs of sorted runs, where each element finds its place by binary search in the
// other run. Elements that compare equal are told apart by their places, so the result is that of a
// stable sort. No step depends on timing.
#ifndef TIDEPOOL_BACKENDS_CUDA_SORTING_SORT_KERNEL_H_
#define TIDEPOOL_BACKENDS_CUDA_SORTING_SORT_KERNEL_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "tidepool/backends/cuda/common/block_tree.h"
#include "tidepool/backends/cuda/common/cuda_kernel.h"
#include "tidepool/backends/cuda/common/element.h"
#include "tidepool/backends/cuda/runtime/launch.h"
#include "tidepool/ndarray/kernel/axis_split.h"

namespace tidepool::cuda {

inline constexpr int kTileEntries = 1024;

// An element, with its place on the line where that is wanted.
template <typename T, bool kPlaced>
struct SortEntry {
  T value;
};
template <typename T>
struct SortEntry<T, true> {
  T value;
  int64_t place;
};

// NaN is larger than everything else.
template <typename T>
__device__ __forceinline__ bool IsLess(T a, T b) {
  const auto x = Wide(a);
  const auto y = Wide(b);
  return x < y || (!IsNaN(x) && IsNaN(y));
}

// Whether a comes before b; places decide between equals.
template <typename T, bool kPlaced>
__device__ __forceinline__ bool IsBefore(const SortEntry<T, kPlaced>& a,
                                         const SortEntry<T, kPlaced>& b, bool descending) {
  const T& low = descending ? b.value : a.value;
  const T& high = descending ? a.value : b.value;
  if constexpr (kPlaced) {
    if (IsLess(low, high)) return true;
    return !IsLess(high, low) && a.place < b.place;
  } else {
    return IsLess(low, high);
  }
}

// What no element comes after: fills tiles up.
template <typename T, bool kPlaced>
__device__ __forceinline__ SortEntry<T, kPlaced> LastEntry(bool descending) {
  using W = Compute<T>;
  W value;
  if constexpr (std::is_floating_point_v<W>) {
    value = descending ? -Infinity<W>() : NaN<W>();
  } else {
    value = descending ? std::numeric_limits<W>::min() : std::numeric_limits<W>::max();
  }
  if constexpr (kPlaced) {
    return {FromCompute<T>(value), INT64_MAX};
  } else {
    return {FromCompute<T>(value)};
  }
}

// Lines, and where what is at each position of a sorted line goes: only the first `kept` of a line.
template <typename T>
struct SortLines {
  int64_t count, size, inner, kept;
  bool descending;
  const T* x;
  T* values;        // or null
  int64_t* places;  // or null

  __device__ __forceinline__ int64_t Offset(int64_t line, int64_t i, int64_t line_size) const {
    if (inner == 1) return line * line_size + i;
    const int64_t outer = Quotient(line, inner);
    return (outer * line_size + i) * inner + (line - outer * inner);
  }
  template <bool kPlaced>
  __device__ __forceinline__ void Emit(int64_t line, int64_t i,
                                       const SortEntry<T, kPlaced>& entry) const {
    if (i >= kept) return;
    const int64_t at = Offset(line, i, kept);
    if (values != nullptr) values[at] = entry.value;
    if constexpr (kPlaced) {
      if (places != nullptr) places[at] = entry.place;
    }
  }
};

// Sorts tiles of `width` entries (a power of two; a line has `tiles` of them). Several narrow tiles
// share a block's memory. `runs` is null where the tile is all of the line.
template <typename T, bool kPlaced>
__global__ void __launch_bounds__(kBlockThreads)
    SortTiles(SortLines<T> lines, int width, int64_t tiles, SortEntry<T, kPlaced>* runs) {
  using Entry = SortEntry<T, kPlaced>;
  // Bytes, because 16-bit floats have constructors.
  struct alignas(16) Memory {
    unsigned char bytes[kTileEntries * sizeof(Entry)];
  };
  __shared__ Memory memory;
  Entry* const shared = reinterpret_cast<Entry*>(memory.bytes);
  const int together = kTileEntries / width;
  const int64_t total = lines.count * tiles;
  const int t = static_cast<int>(threadIdx.x);
  for (int64_t base = static_cast<int64_t>(blockIdx.x) * together; base < total;
       base += static_cast<int64_t>(gridDim.x) * together) {
    auto find = [&](int e, int64_t* line, int64_t* i) {
      const int64_t tile = base + e / width;
      *line = tile / tiles;
      *i = (tile - *line * tiles) * width + e % width;
      return tile < total && *i < lines.size;
    };
    int64_t line, i;
    for (int e = t; e < kTileEntries; e += kBlockThreads) {
      Entry entry = LastEntry<T, kPlaced>(lines.descending);
      if (find(e, &line, &i)) {
        entry.value = lines.x[lines.Offset(line, i, lines.size)];
        if constexpr (kPlaced) entry.place = i;
      }
      shared[e] = entry;
    }
    __syncthreads();
    for (int length = 2; length <= width; length *= 2) {
      for (int step = length / 2; step > 0; step /= 2) {
        for (int pair = t; pair < kTileEntries / 2; pair += kBlockThreads) {
          const int low = pair / step * (2 * step) + pair % step, high = low + step;
          const bool upwards = (low & (width - 1) & length) == 0;
          const Entry a = shared[low], b = shared[high];
          if (upwards ? IsBefore(b, a, lines.descending) : IsBefore(a, b, lines.descending)) {
            shared[low] = b;
            shared[high] = a;
          }
        }
        __syncthreads();
      }
    }
    for (int e = t; e < kTileEntries; e += kBlockThreads) {
      if (!find(e, &line, &i)) continue;
      if (runs != nullptr) {
        runs[line * lines.size + i] = shared[e];
      } else {
        lines.Emit(line, i, shared[e]);
      }
    }
    __syncthreads();  // before the memory is filled again
  }
}

// Merges pairs of runs of `length` entries. `merged` is null in the last pass.
template <typename T, bool kPlaced>
__global__ void __launch_bounds__(kBlockThreads)
    MergeRuns(SortLines<T> lines, int64_t length, const SortEntry<T, kPlaced>* runs,
              SortEntry<T, kPlaced>* merged) {
  const int64_t total = lines.count * lines.size;
  for (int64_t e = GlobalThread(); e < total; e += GlobalThreads()) {
    const int64_t line = Quotient(e, lines.size), i = e - line * lines.size;
    const SortEntry<T, kPlaced>* const entries = runs + line * lines.size;
    const int64_t first = i / (2 * length) * (2 * length), middle = first + length;
    const bool is_left = i < middle;
    int64_t low = is_left ? min(middle, lines.size) : first;
    int64_t high = is_left ? min(middle + length, lines.size) : middle;
    const int64_t begin = low;
    const SortEntry<T, kPlaced> entry = entries[i];
    // Of equals, those of the left run come first.
    while (low < high) {
      const int64_t at = low + (high - low) / 2;
      const bool other_first = is_left ? IsBefore(entries[at], entry, lines.descending)
                                       : !IsBefore(entry, entries[at], lines.descending);
      if (other_first) {
        low = at + 1;
      } else {
        high = at;
      }
    }
    const int64_t place = (is_left ? i : first + (i - middle)) + (low - begin);
    if (merged != nullptr) {
      merged[line * lines.size + place] = entry;
    } else {
      lines.Emit(line, place, entry);
    }
  }
}

// Two buffers of runs where a line is more than a tile.
template <typename T, bool kPlaced>
size_t SortScratchBytes(int64_t lines, int64_t size) {
  if (size <= kTileEntries) return 0;
  return 2 * static_cast<size_t>(
                 Aligned(lines * size * static_cast<int64_t>(sizeof(SortEntry<T, kPlaced>))));
}

template <typename T, bool kPlaced>
void SortAll(const SortLines<T>& lines, void* scratch, cudaStream_t stream) {
  using Entry = SortEntry<T, kPlaced>;
  if (lines.count == 0 || lines.size == 0 || lines.kept == 0) return;
  int width = 1;
  while (width < kTileEntries && width < lines.size) width *= 2;
  const int64_t tiles = (lines.size + width - 1) / width;
  const bool merges = tiles > 1;
  auto* runs = merges ? static_cast<Entry*>(scratch) : nullptr;
  Launch(SortTiles<T, kPlaced>, BlocksFor(lines.count * tiles, kTileEntries / width), kBlockThreads,
         0, stream, lines, width, tiles, runs);
  if (!merges) return;
  const int64_t bytes = Aligned(lines.count * lines.size * static_cast<int64_t>(sizeof(Entry)));
  auto* other = reinterpret_cast<Entry*>(static_cast<std::byte*>(scratch) + bytes);
  for (int64_t length = width; length < lines.size; length *= 2) {
    Entry* const merged = 2 * length >= lines.size ? nullptr : other;
    Launch(MergeRuns<T, kPlaced>, BlocksFor(lines.count * lines.size, kBlockThreads), kBlockThreads,
           0, stream, lines, length, runs, merged);
    std::swap(runs, other);
  }
}

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_SORTING_SORT_KERNEL_H_
