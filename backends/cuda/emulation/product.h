// Products of column-major matrices as cuBLAS and cuBLASLt define them, in plain loops. Internal to the
// emulation.
#ifndef TIDEPOOL_BACKENDS_CUDA_EMULATION_PRODUCT_H_
#define TIDEPOOL_BACKENDS_CUDA_EMULATION_PRODUCT_H_

#include <cstddef>
#include <cstdint>

#include "cuda_runtime_api.h"

namespace tidepool::cuda_emulation {

struct Product {
  bool transpose_a = false, transpose_b = false;
  int64_t m = 0, n = 0, k = 0;
  double alpha = 1, beta = 0;
  const void* a = nullptr;
  int64_t lda = 0, a_stride = 0;
  const void* b = nullptr;
  int64_t ldb = 0, b_stride = 0;
  void* c = nullptr;
  int64_t ldc = 0, c_stride = 0;
  int64_t batch = 1;
  const void* bias = nullptr;  // of m elements, added to every column
  bool relu = false;
  bool adds_parts_in_output =
      false;  // of long sums: two halves, each rounded to the output's type first

  int64_t a_rows() const { return transpose_a ? k : m; }
  int64_t b_rows() const { return transpose_b ? n : k; }
};

// Sums in double; all is added and clamped before the one rounding. Runs with the memory open.
void RunProduct(const Product& product, cudaDataType type);
// Ends the program unless the matrices and the bias are memory of a device.
void CheckOperands(const Product& product, cudaDataType type);
void CheckOperand(const char* name, const void* at, size_t bytes);
size_t ElementBytes(cudaDataType type);

}  // namespace tidepool::cuda_emulation

#endif  // TIDEPOOL_BACKENDS_CUDA_EMULATION_PRODUCT_H_
