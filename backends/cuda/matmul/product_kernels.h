// What products need beside cuBLAS: biases, ReLU, integers.
#ifndef TIDEPOOL_BACKENDS_CUDA_MATMUL_PRODUCT_KERNELS_H_
#define TIDEPOOL_BACKENDS_CUDA_MATMUL_PRODUCT_KERNELS_H_

#include <cstdint>

#include "tidepool/backends/cuda/framework/queue.h"
#include "tidepool/ndarray/dtype.h"

namespace tidepool::cuda {

// z [rows, columns] = bias [columns], or z += bias. Float types.
void QueueBias(const Queue& queue, DType dtype, const void* bias, void* z, int64_t rows,
               int64_t columns, bool accumulate);
// z = max(0, z) of `count` elements. Float types.
void QueueRelu(const Queue& queue, DType dtype, void* z, int64_t count);

// A batch of dense products of integers, modulo 2^bits; strides in elements.
struct IntegerProduct {
  const void* x;
  const void* y;
  const void* bias;  // or null
  void* z;
  int64_t m, n, k, x_stride, y_stride, z_stride, batch;
  bool transpose_x, transpose_y, accumulate, relu;
};
// i32 and i64.
void QueueIntegerProduct(const Queue& queue, DType dtype, const IntegerProduct& product);

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_MATMUL_PRODUCT_KERNELS_H_
