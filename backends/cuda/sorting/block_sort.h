// Lines that fit a block, for .cu files: by CUB's radix sort of a block (digits of four bits, ranks by prefix sums in
// shared memory), keys and places in registers. The network of sort_kernel.h compares each of 1024 elements 55 times behind
// as many barriers; a key of 32 bits takes 8 passes.
#ifndef TIDEPOOL_BACKENDS_CUDA_SORTING_BLOCK_SORT_H_
#define TIDEPOOL_BACKENDS_CUDA_SORTING_BLOCK_SORT_H_

#include <cstdint>

#include "tidepool/backends/cuda/common/access.h"
#include "tidepool/backends/cuda/sorting/sort_kernel.h"
#include "tidepool/backends/cuda/sorting/sort_key.h"
#if defined(TIDEPOOL_CUDA_EMULATED)
#include <algorithm>
#else
#include <cub/block/block_radix_sort.cuh>
#endif

namespace tidepool::cuda {

// Lines up to this long, a power of two, are sorted by networks, several in a block.
inline constexpr int kNetworkEntries = 128;
// And lines up to this long by a block.
inline constexpr int kBlockEntries = 4096;

// Sorts what the threads of a block have by the keys' lowest `bits`. Thread t brings elements kItems t ..., in whose order
// equals stay, and gets those at t, t + kThreads, ... Memory can be used again behind a barrier.
template <typename Key, int kThreads, int kItems, bool kPlaced>
struct BlockSort {
#if defined(TIDEPOOL_CUDA_EMULATED)
  // CUB is not emulated: a thread sorts.
  struct Entry {
    Key key;
    int place, index;
  };
  struct Memory {
    Entry entries[kThreads * kItems];
  };
  static void Sort(Memory& memory, Key (&keys)[kItems], int (&places)[kItems], int bits) {
    const int t = static_cast<int>(threadIdx.x);
    for (int u = 0; u < kItems; ++u)
      memory.entries[kItems * t + u] = {keys[u], places[u], kItems * t + u};
    __syncthreads();
    const Key mask = static_cast<Key>(~uint64_t{0} >> (64 - bits));
    if (t == 0) {
      std::sort(memory.entries, memory.entries + kThreads * kItems,
                [mask](const Entry& a, const Entry& b) {
                  const Key x = a.key & mask, y = b.key & mask;
                  return x != y ? x < y : a.index < b.index;
                });
    }
    __syncthreads();
    for (int u = 0; u < kItems; ++u) {
      keys[u] = memory.entries[t + kThreads * u].key;
      places[u] = memory.entries[t + kThreads * u].place;
    }
  }
#else
  using Radix = std::conditional_t<kPlaced, cub::BlockRadixSort<Key, kThreads, kItems, int>,
                                   cub::BlockRadixSort<Key, kThreads, kItems> >;
  using Memory = typename Radix::TempStorage;
  __device__ __forceinline__ static void Sort(Memory& memory, Key (&keys)[kItems],
                                              int (&places)[kItems], int bits) {
    if constexpr (kPlaced) {
      Radix(memory).SortBlockedToStriped(keys, places, 0, bits);
    } else {
      Radix(memory).SortBlockedToStriped(keys, 0, bits);
    }
  }
#endif
};

template <typename T, bool kPlaced, int kThreads, int kItems>
__global__ void __launch_bounds__(kThreads) SortBlocks(SortLines<T> lines, int bits) {
  using Key = typename SortKey<T>::Key;
  using Sorter = BlockSort<Key, kThreads, kItems, kPlaced>;
  constexpr int kWidth = kItems < kAccessWidth<T> ? kItems : kAccessWidth<T>;
  __shared__ typename Sorter::Memory memory;
  const int t = static_cast<int>(threadIdx.x);
  const int size = static_cast<int>(lines.size);
  for (int64_t line = blockIdx.x; line < lines.count; line += gridDim.x) {
    Key keys[kItems];
    int places[kItems];
#pragma unroll
    for (int first = 0; first < kItems; first += kWidth) {
      const int i = kItems * t + first;
      Vector<T, kWidth> access;
      if (lines.inner == 1 && i + kWidth <= size) {
        const T* const from = lines.x + line * lines.size + i;
        access = LoadAccess<kWidth>(from, IsAligned(from));
      } else {
#pragma unroll
        for (int l = 0; l < kWidth; ++l)
          access.lane[l] = i + l < size ? lines.x[lines.Offset(line, i + l, lines.size)]
                                        : SortKey<T>::FromBits(0);
      }
#pragma unroll
      for (int l = 0; l < kWidth; ++l) {
        Key key = SortKey<T>::kMask;  // behind the line's own, if need be by its place
        if (i + l < size) {
          key = kPlaced ? SortKey<T>::OfEquals(access.lane[l], lines.descending)
                        : SortKey<T>::Of(access.lane[l], lines.descending);
        }
        keys[first + l] = key;
        places[first + l] = i + l;
      }
    }
    Sorter::Sort(memory, keys, places, bits);
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
      const int i = t + kThreads * u;
      if (i >= size || i >= lines.kept) continue;
      SortEntry<T, kPlaced> entry;
      if constexpr (kPlaced) {
        entry.place = places[u];
        if (lines.values != nullptr)
          entry.value = lines.x[lines.Offset(line, places[u], lines.size)];
      } else {
        entry.value = SortKey<T>::Value(keys[u], lines.descending);
      }
      lines.Emit(line, i, entry);
    }
    __syncthreads();  // before the memory is used again
  }
}

// Lines longer than kNetworkEntries, and no longer than kBlockEntries, by their keys' lowest `bits`: in which keys must differ.
template <typename T, bool kPlaced>
void QueueBlockSort(const SortLines<T>& lines, cudaStream_t stream, int bits = SortKey<T>::kBits) {
  const dim3 blocks = BlocksFor(lines.count, 1, 1 << 20);
  if (lines.size <= 512) {
    Launch(SortBlocks<T, kPlaced, 128, 4>, blocks, 128, 0, stream, lines, bits);
  } else if (lines.size <= 1024) {
    Launch(SortBlocks<T, kPlaced, 256, 4>, blocks, 256, 0, stream, lines, bits);
  } else {
    Launch(SortBlocks<T, kPlaced, 256, 16>, blocks, 256, 0, stream, lines, bits);
  }
}

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_SORTING_BLOCK_SORT_H_
