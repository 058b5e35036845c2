// Radix sort by CUB, of devices only. Stable, and the same bits in every run.
#ifndef TIDEPOOL_BACKENDS_CUDA_SORTING_RADIX_SORT_H_
#define TIDEPOOL_BACKENDS_CUDA_SORTING_RADIX_SORT_H_

#include <cstddef>
#include <cstdint>

#include "cuda_runtime_api.h"

namespace tidepool::cuda {

// Keys by their lowest `bits`, with a place each or, where places_in is null, without. Inputs stay.
template <typename Key>  // uint32_t or uint64_t
struct RadixSort {
  int64_t count;
  int bits;
  const Key* keys_in = nullptr;
  Key* keys_out = nullptr;
  const int64_t* places_in = nullptr;
  int64_t* places_out = nullptr;
};

template <typename Key>
size_t RadixSortBytes(int64_t count, bool placed);
// Queues it, with that many bytes of scratch, aligned for any type.
template <typename Key>
void QueueRadixSort(const RadixSort<Key>& sort, void* scratch, cudaStream_t stream);

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_SORTING_RADIX_SORT_H_
