// Sums of lines by weights, compiled once for each instruction set.
#ifndef TIDEPOOL_BACKENDS_CPU_IMAGES_COMBINE_H_
#define TIDEPOOL_BACKENDS_CPU_IMAGES_COMBINE_H_

#include <stdint.h>

namespace tidepool::cpu {

// z[i] = sum of weights[k] * lines[k][i] over `count` lines, in their order; 0 lines give zeros. z is none of them.
template <typename T>
using Combine = void (*)(const T* const* lines, const T* weights, int64_t count, T* z, int64_t n);

Combine<float> CombineF32();
void CombineF64(const double* const* lines, const double* weights, int64_t count, double* z,
                int64_t n);
void CombinePortable(const float* const* lines, const float* weights, int64_t count, float* z,
                     int64_t n);
// x86-64 only.
void CombineAvx2(const float* const* lines, const float* weights, int64_t count, float* z,
                 int64_t n);
void CombineAvx512(const float* const* lines, const float* weights, int64_t count, float* z,
                   int64_t n);

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_IMAGES_COMBINE_H_
