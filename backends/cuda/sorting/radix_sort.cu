#include "tidepool/backends/cuda/sorting/radix_sort.h"

#if defined(__CUDACC__)
#include <cub/device/device_radix_sort.cuh>

#include "tidepool/backends/cuda/runtime/error.h"

namespace tidepool::cuda {
namespace {

template <typename Key>
cudaError_t Sort(void* scratch, size_t& bytes, const RadixSort<Key>& s, bool placed,
                 cudaStream_t stream) {
  if (placed) {
    return cub::DeviceRadixSort::SortPairs(scratch, bytes, s.keys_in, s.keys_out, s.places_in,
                                           s.places_out, s.count, 0, s.bits, stream);
  }
  return cub::DeviceRadixSort::SortKeys(scratch, bytes, s.keys_in, s.keys_out, s.count, 0, s.bits,
                                        stream);
}

}  // namespace

template <typename Key>
size_t RadixSortBytes(int64_t count, bool placed) {
  size_t bytes = 0;
  RadixSort<Key> sort{count, 8 * static_cast<int>(sizeof(Key))};
  Check(Sort(nullptr, bytes, sort, placed, nullptr), "cub::DeviceRadixSort");
  return bytes;
}

template <typename Key>
void QueueRadixSort(const RadixSort<Key>& sort, void* scratch, cudaStream_t stream) {
  const bool placed = sort.places_in != nullptr;
  size_t bytes = RadixSortBytes<Key>(sort.count, placed);
  Check(Sort(scratch, bytes, sort, placed, stream), "cub::DeviceRadixSort");
}

template size_t RadixSortBytes<uint32_t>(int64_t, bool);
template size_t RadixSortBytes<uint64_t>(int64_t, bool);
template void QueueRadixSort(const RadixSort<uint32_t>&, void*, cudaStream_t);
template void QueueRadixSort(const RadixSort<uint64_t>&, void*, cudaStream_t);

}  // namespace tidepool::cuda
#endif
