// Products with a bias and a ReLU in the same kernel, by cuBLASLt's epilogues.
#ifndef TIDEPOOL_BACKENDS_CUDA_MATMUL_FUSED_PRODUCT_H_
#define TIDEPOOL_BACKENDS_CUDA_MATMUL_FUSED_PRODUCT_H_

#include <cstdint>

#include "tidepool/backends/cuda/matmul/cublas.h"

namespace tidepool::cuda {

// `batch` products of matrices stored by columns, as cuBLAS has it; strides in elements:
//   D[m, n] = act(op(A)[m, k] op(B)[k, n] + bias[m] (+ D)), one rounding.
struct MatrixProduct {
  bool transpose_a = false, transpose_b = false;
  int64_t m = 0, n = 0, k = 0;  // at least 1
  const void* a = nullptr;
  int64_t lda = 0, a_stride = 0;
  const void* b = nullptr;
  int64_t ldb = 0, b_stride = 0;
  void* d = nullptr;
  int64_t ldd = 0, d_stride = 0;
  int64_t batch = 1;
  const void* bias = nullptr;  // or null
  bool relu = false;           // NaN may become 0
  bool accumulate = false;
  cudaDataType type = CUDA_R_32F;  // f32, f16, bf16: of all of them; sums in f32
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
};

// Queues it in that compute queue and returns true; or queues nothing and returns false,
// where cuBLASLt has no algorithm for it or the bias does not begin at a multiple of 16 bytes.
//
// cuBLASLt is asked for an algorithm once per shape, layout, type and epilogue; the answers are kept, so
// the same call takes the same algorithm. Those that add up parts of a sum in the output are not let
// in: results are the same bits in every run. Scratch is the workspace of cuBLAS. Throws as
// CheckCublas. Threads: any.
bool QueueFusedProduct(CudaDevice& device, int queue, const MatrixProduct& product);

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_MATMUL_FUSED_PRODUCT_H_
