// Single-precision matrix product, C[m, n] (+)= A[m, k] * B[k, n] + bias[n], then max(0, .).
//
// For weights that change at every step: nothing is packed ahead of the call, no state is kept,
// and scratch memory comes from the caller or is on the stack, so a call never allocates. A and B
// have any strides: the four transposes are GemmProblems with the strides exchanged.
//
//   // y[batch, out] = relu(x[batch, in] * w[out, in]^T + b)
//   Gemm({.m = batch, .n = out, .k = in, .a = x, .a_row_stride = in, .a_col_stride = 1,
//         .b = w, .b_row_stride = 1, .b_col_stride = in, .c = y, .ldc = out, .bias = b,
//         .relu = true}, scratch, pool);
//
// Reads and writes nothing outside the matrices. NaN and infinity propagate as in the naive sum.
// Results are the same bits for any pool, because the inner dimension is never divided between
// threads; they may differ between processors (fused multiply-add or not).
// Method: register tiles and cache blocks after Goto and van de Geijn, "Anatomy of High-Performance
// Matrix Multiplication" (2008), A read in place when its rows are contiguous.
#ifndef TIDEPOOL_BACKENDS_CPU_GEMM_GEMM_H_
#define TIDEPOOL_BACKENDS_CPU_GEMM_GEMM_H_

#include <stddef.h>
#include <stdint.h>

namespace tidepool {
class ThreadPool;  // ndarray/kernel/threads.h
}

namespace tidepool::cpu {

// Strides in floats. m, n and k may be 0; k = 0 gives the bias (or 0), or leaves C when
// accumulating. C must not overlap A, B or bias.
struct GemmProblem {
  int64_t m, n, k;
  const float* a;
  int64_t a_row_stride, a_col_stride;
  const float* b;
  int64_t b_row_stride, b_col_stride;
  float* c;
  int64_t ldc;                  // between rows of C; >= n
  const float* bias = nullptr;  // [n]
  bool relu = false;
  bool accumulate = false;  // adds to C; C is not read otherwise
};

// Bytes of scratch, aligned to 64, that Gemm needs with a pool of up to `threads` threads, whatever
// the strides. At most about 0.6 MiB per thread; 0 for small products (those of 36 by 36 matrices,
// say), which have up to 17 KiB on the stack and take a null scratch.
size_t GemmScratchBytes(int64_t m, int64_t n, int64_t k, int threads);
// The same for a product's strides, which is never more and often much less; pointers are not read.
size_t GemmScratchBytes(const GemmProblem& problem, int threads);

// Throws tidepool::Error (invalid argument) before writing anything when a size is negative, ldc <
// n, or a needed pointer is null. `pool` null, or a problem under about 64^3, uses this thread
// only. Concurrent calls need separate scratch and separate pools.
void Gemm(const GemmProblem& problem, void* scratch, ThreadPool* pool);

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_GEMM_GEMM_H_
