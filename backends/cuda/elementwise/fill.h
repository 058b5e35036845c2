// Fills and affine maps of float arrays in device memory.
//
// Pointers are device (or managed) addresses on the device of `stream`; the caller owns them and
// keeps them alive until the stream has passed the launch. Work is only queued: nothing
// synchronises. Counts and strides are in elements.
//
// Errors: cudaErrorInvalidValue for a negative count, a null pointer with a count above zero, or a
// stride of zero; else what the launch returned. Nothing is queued on failure. An earlier error
// that another call left behind is neither reported nor cleared.
//
// Threads: any; calls on one stream run in the order they were made.
// Cost: one launch, none for a count of 0. Both are bound by memory bandwidth and move 16 bytes per
// thread and access where the addresses allow it.
#ifndef TIDEPOOL_BACKENDS_CUDA_ELEMENTWISE_FILL_H_
#define TIDEPOOL_BACKENDS_CUDA_ELEMENTWISE_FILL_H_

#include <cstdint>

#include "cuda_runtime_api.h"

namespace tidepool {

// y[i * stride] = value for i in [0, count). A negative stride walks down from `y`. Elements
// between the strides keep their values.
cudaError_t CudaFill(float* y, std::int64_t count, std::int64_t stride, float value,
                     cudaStream_t stream);

// y[i] = a * x[i] + b for i in [0, count), one rounding (fused). `x` and `y` are the same array or
// do not overlap.
cudaError_t CudaScaleAdd(const float* x, float* y, std::int64_t count, float a, float b,
                         cudaStream_t stream);

}  // namespace tidepool

#endif  // TIDEPOOL_BACKENDS_CUDA_ELEMENTWISE_FILL_H_
