// Double-precision matrix product, C[m, n] (+)= A[m, k] * B[k, n] + bias[n], then max(0, .).
//
// As gemm.h in all but the type: any strides, no state, scratch from the caller, nothing outside the
// matrices is read or written, NaN and infinity propagate, the same bits for any pool. Method: both
// operands packed into panels for a register tile (Goto and van de Geijn 2008) that the compiler
// vectorises.
#ifndef TIDEPOOL_BACKENDS_CPU_GEMM_GEMM_F64_H_
#define TIDEPOOL_BACKENDS_CPU_GEMM_GEMM_F64_H_

#include <stddef.h>
#include <stdint.h>

namespace tidepool {
class ThreadPool;  // ndarray/kernel/threads.h
}

namespace tidepool::cpu {

// Strides in doubles. m, n and k may be 0. C must not overlap A, B or bias.
struct GemmF64Problem {
  int64_t m, n, k;
  const double* a;
  int64_t a_row_stride, a_col_stride;
  const double* b;
  int64_t b_row_stride, b_col_stride;
  double* c;
  int64_t ldc;
  const double* bias = nullptr;  // [n]
  bool relu = false;
  bool accumulate = false;
};

// Bytes of scratch, aligned to 64; at most about 1.25 MiB a thread.
size_t GemmF64ScratchBytes(int64_t m, int64_t n, int64_t k, int threads);
void GemmF64(const GemmF64Problem& problem, void* scratch, ThreadPool* pool);

// The register tile: C's block of rows x columns from packed panels, added up over `depth` inner
// positions. a: [depth][rows], b: [depth][columns], tile: [rows][columns].
struct TileF64 {
  int rows, columns;
  void (*multiply)(const double* a, const double* b, int64_t depth, double* tile);
};
extern const TileF64 kPortableTileF64;
extern const TileF64 kAvx2TileF64, kAvx512TileF64;  // x86-64 only

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_GEMM_GEMM_F64_H_
