// What one core can do at most: f32 multiply-adds a second, for benchmarks.
#ifndef TIDEPOOL_BACKENDS_CPU_GEMM_MULTIPLY_ADD_PEAK_H_
#define TIDEPOOL_BACKENDS_CPU_GEMM_MULTIPLY_ADD_PEAK_H_

namespace tidepool::cpu {

// The fastest of some short runs of independent 8-wide fused multiply-adds in registers, on the calling
// thread, in floating-point operations a second (two each). 0 where the processor has no AVX2 and FMA.
// About 50 ms.
double MultiplyAddPeak();

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_GEMM_MULTIPLY_ADD_PEAK_H_
