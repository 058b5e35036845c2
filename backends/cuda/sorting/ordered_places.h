// Places of numbers in ascending order, equal ones in the order of their places: what brings together that
// belongs together, without atomics.
#ifndef TIDEPOOL_BACKENDS_CUDA_SORTING_ORDERED_PLACES_H_
#define TIDEPOOL_BACKENDS_CUDA_SORTING_ORDERED_PLACES_H_

#include <cstddef>
#include <cstdint>

#include "cuda_runtime_api.h"

namespace tidepool::cuda {

// Scratch of OrderPlaces, aligned for any type.
size_t OrderPlacesBytes(int64_t count);
// Queues it: of `count` keys from 0 to `most`.
void OrderPlaces(const int32_t* keys, int64_t count, int32_t most, int32_t* sorted, int64_t* places,
                 void* scratch, cudaStream_t stream);

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_SORTING_ORDERED_PLACES_H_
