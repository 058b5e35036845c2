// Double-precision matrix product, C[m, n] (+)= A[m, k] * B[k, n] + bias[n], then max(0, .).
//
// As gemm.h in all but the type: any strides, no state, scratch from the caller, nothing outside the
// matrices is read or written, NaN and infinity propagate, the same bits for any pool. Method: both
// operands packed into panels for a register tile (Goto and van de Geijn 2008).
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

// Bytes of scratch, aligned to 64; at most about 1.35 MiB a thread.
size_t GemmF64ScratchBytes(int64_t m, int64_t n, int64_t k, int threads);
void GemmF64(const GemmF64Problem& problem, void* scratch, ThreadPool* pool);

// The register tile: c's block of rows x width (+)= what packed panels add up over `depth` inner positions. a: [depth][rows],
// b: [depth][width], where width is `columns`, or for the last panel a smaller multiple of `narrowest`.
struct TileF64 {
  int rows, columns, narrowest;
  int64_t depth;  // inner positions of a block, at most
  void (*multiply)(const double* a, const double* b, int64_t depth, int64_t width, double* c,
                   int64_t ldc, bool add);
  // Packs `count` vectors into panels [depth][width], zeros behind the last, where their places or their inner positions are
  // neighbours (one of the strides is 1). Null: nothing faster than loops.
  void (*pack)(const double* from, int64_t vector_stride, int64_t depth_stride, int64_t count,
               int64_t depth, int64_t width, double* to);
};
extern const TileF64 kPortableTileF64;
extern const TileF64 kAvx2TileF64, kAvx512TileF64;  // x86-64 only

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_GEMM_GEMM_F64_H_
