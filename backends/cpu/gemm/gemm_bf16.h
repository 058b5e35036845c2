// Matrix product of bf16, C[m, n] (+)= A[m, k] * B[k, n] + bias[n], then max(0, .), by the instructions that multiply pairs
// of bf16 (AVX512_BF16) and tiles of them (AMX).
//
// Products are exact and summed in f32, C is rounded once. The instructions take denormal operands for zeros, and products and sums that are denormal in f32 too: numbers below 1.2e-38 add nothing. Elements
// that come out as NaN are computed again without them, one at a time, because infinity times a denormal number is infinity. As
// gemm.h in what is read and written and in the same bits for any pool: no inner dimension is divided between threads.
#ifndef TIDEPOOL_BACKENDS_CPU_GEMM_GEMM_BF16_H_
#define TIDEPOOL_BACKENDS_CPU_GEMM_GEMM_BF16_H_

#include <stddef.h>
#include <stdint.h>

namespace tidepool {
class ThreadPool;  // ndarray/kernel/threads.h
}

namespace tidepool::cpu {

// Strides in elements; of A and of B one is 1. m, n and k may be 0. C must not overlap A, B or bias.
struct GemmBf16Problem {
  int64_t m, n, k;
  const uint16_t* a;
  int64_t a_row_stride, a_col_stride;
  const uint16_t* b;
  int64_t b_row_stride, b_col_stride;
  uint16_t* c;
  int64_t ldc;
  const uint16_t* bias = nullptr;  // [n]
  bool relu = false;
  bool accumulate = false;
};

// Whether this processor has AVX512_BF16. Without it the others must not be called.
bool HasGemmBf16();
// Whether GemmBf16 is quicker than a product of f32 whose operands are converted a block at a time. By shapes and the processor
// alone. Where pairs are slow (instruction_set.h) it is up to 31 rows, as each converted element is used in every row; and by
// AMX.
bool IsGemmBf16Ahead(int64_t m, int64_t n, int64_t k);
bool IsGemmBf16Ahead(int64_t m, int64_t n, int64_t k, bool pairs_are_fast, bool has_amx);
// Bytes of scratch, aligned to 64; at most about 1.3 MiB a thread by AMX, else 0.75.
size_t GemmBf16ScratchBytes(int64_t m, int64_t n, int64_t k, int threads);
void GemmBf16(const GemmBf16Problem& problem, void* scratch, ThreadPool* pool);

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_GEMM_GEMM_BF16_H_
