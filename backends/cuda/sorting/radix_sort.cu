#include "tidepool/backends/cuda/sorting/radix_sort.h"

#include "tidepool/backends/cuda/runtime/error.h"
#if defined(TIDEPOOL_CUDA_EMULATED)
#include "tidepool/backends/cuda/sorting/sort_kernel.h"
#else
#include <cub/device/device_radix_sort.cuh>
#endif

namespace tidepool::cuda {

#if defined(TIDEPOOL_CUDA_EMULATED)

// CUB is not emulated: by merges, whose places are those in keys_in.
__global__ void PlacesAt(const int64_t* places_in, int64_t* places, int64_t count) {
  for (int64_t i = GlobalThread(); i < count; i += GlobalThreads())
    places[i] = places_in[places[i]];
}

template <typename Key>
size_t RadixSortBytes(int64_t count, bool) {
  return SortScratchBytes<Key, true>(1, count);
}

template <typename Key>
void QueueRadixSort(const RadixSort<Key>& sort, void* scratch, cudaStream_t stream) {
  const SortLines<Key> lines{
      1, sort.count, 1, sort.count, false, sort.keys_in, sort.keys_out, sort.places_out};
  SortAll<Key, true>(lines, scratch, stream);
  if (sort.places_in == nullptr) return;
  Launch(PlacesAt, BlocksFor(sort.count, kBlockThreads), kBlockThreads, 0, stream, sort.places_in,
         sort.places_out, sort.count);
}

#else
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
  const RadixSort<Key> sort{count, 8 * static_cast<int>(sizeof(Key))};
  Check(Sort(nullptr, bytes, sort, placed, nullptr), "cub::DeviceRadixSort");
  return bytes;
}

template <typename Key>
void QueueRadixSort(const RadixSort<Key>& sort, void* scratch, cudaStream_t stream) {
  const bool placed = sort.places_in != nullptr;
  size_t bytes = RadixSortBytes<Key>(sort.count, placed);
  cudaGetLastError();  // CUB asks for the last error behind its launches: another call's would be told as its own
  Check(Sort(scratch, bytes, sort, placed, stream), "cub::DeviceRadixSort");
}

#endif

template size_t RadixSortBytes<uint32_t>(int64_t, bool);
template size_t RadixSortBytes<uint64_t>(int64_t, bool);
template void QueueRadixSort(const RadixSort<uint32_t>&, void*, cudaStream_t);
template void QueueRadixSort(const RadixSort<uint64_t>&, void*, cudaStream_t);

}  // namespace tidepool::cuda
