// Sums of lines by weights, compiled once for each instruction set.
#ifndef TIDEPOOL_BACKENDS_CPU_IMAGES_COMBINE_H_
#define TIDEPOOL_BACKENDS_CPU_IMAGES_COMBINE_H_

#include <stdint.h>

namespace tidepool::cpu {

template <typename T>
struct CombineLoops {
  // z[i] = sum of weights[k] * lines[k][i] over `count` lines, in their order; 0 lines give zeros. z is none of them.
  void (*lines)(const T* const* lines, const T* weights, int64_t count, T* z, int64_t n);
  // For each of `count` places of z, of `channels` elements: the sum of weights[k] * x[places[k]] over k from first[i] to
  // first[i + 1].
  void (*places)(const T* x, const int64_t* first, const int64_t* places, const T* weights,
                 int64_t count, int64_t channels, T* z);
};

const CombineLoops<float>& CombineLoopsF32();
extern const CombineLoops<double> kCombineLoopsF64;
extern const CombineLoops<float> kPortableCombineLoops;
extern const CombineLoops<float> kAvx2CombineLoops, kAvx512CombineLoops;  // x86-64 only

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_IMAGES_COMBINE_H_
