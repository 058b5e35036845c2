#include "tidepool/backends/cuda/sorting/ordered_places.h"

#include <bit>

#include "tidepool/backends/cuda/sorting/block_sort.h"
#include "tidepool/backends/cuda/sorting/radix_sort.h"
#include "tidepool/backends/cuda/sorting/sort_kernel.h"

namespace tidepool::cuda {
namespace {

__global__ void __launch_bounds__(kBlockThreads) Count(int64_t* numbers, int64_t count) {
  for (int64_t i = GlobalThread(); i < count; i += GlobalThreads()) numbers[i] = i;
}

}  // namespace

size_t OrderPlacesBytes(int64_t count) {
  if (count <= kBlockEntries) return 0;
  return static_cast<size_t>(Aligned(count * 8)) + RadixSortBytes<uint32_t>(count, /*placed=*/true);
}

void OrderPlaces(const int32_t* keys, int64_t count, int32_t most, int32_t* sorted, int64_t* places,
                 void* scratch, cudaStream_t stream) {
  const int bits = static_cast<int>(std::bit_width(static_cast<uint32_t>(most) | 1));
  // One kernel.
  const SortLines<int32_t> line{1, count, 1, count, false, keys, sorted, places};
  if (count <= kNetworkEntries) return SortAll<int32_t, true>(line, scratch, stream);
  if (count <= kBlockEntries) return QueueBlockSort<int32_t, true>(line, stream, bits);
  auto* const numbers = static_cast<int64_t*>(scratch);
  Launch(Count, BlocksFor(count, kBlockThreads), kBlockThreads, 0, stream, numbers, count);
  const RadixSort<uint32_t> sort{
      count,   bits,  reinterpret_cast<const uint32_t*>(keys), reinterpret_cast<uint32_t*>(sorted),
      numbers, places};
  QueueRadixSort(sort, static_cast<std::byte*>(scratch) + Aligned(count * 8), stream);
}

}  // namespace tidepool::cuda
