#ifndef SQUARE_H_
#define SQUARE_H_

#include <cstdint>

#include "cuda_runtime_api.h"

// values[i] *= values[i] for i in [0, count), in device memory, queued on `stream`.
cudaError_t Square(float* values, std::int64_t count, cudaStream_t stream);

#endif  // SQUARE_H_
