// Loops of random numbers, compiled for each set of instruction_set.h.
#ifndef TIDEPOOL_BACKENDS_CPU_RANDOM_RANDOM_LOOPS_H_
#define TIDEPOOL_BACKENDS_CPU_RANDOM_RANDOM_LOOPS_H_

#include <stdint.h>

namespace tidepool::cpu {

struct RandomLoops {
  // words[4 * b + w]: word w of Philox block first + b (ndarray/kernel/philox.h).
  void (*words)(uint64_t seed, uint64_t stream, uint64_t first, int64_t blocks, uint32_t* words);
  // As UniformTransform of philox.h.
  void (*uniform)(const uint32_t* words, float low, double range, float last, float* z, int64_t n);
  // z[i] = mean + deviation * the unit normal number of words i - i % 2 and the next, for `pairs` pairs, as NormalPair of philox.h;
  // of mean 0 and deviation 1 the numbers themselves.
  void (*normal)(const uint32_t* words, double mean, double deviation, float* z, int64_t pairs);
  // z[i] = words[i] < limit ? one : 0, of elements of 1, 2, 4 and 8 bytes.
  void (*ones[4])(const uint32_t* words, uint32_t limit, uint64_t one, void* z, int64_t n);
  // z[i] = words[i] < limit ? 0 : scale * x[i].
  void (*dropout_f32)(const uint32_t* words, uint32_t limit, const float* x, float scale, float* z,
                      int64_t n);
  void (*dropout_f64)(const uint32_t* words, uint32_t limit, const double* x, double scale,
                      double* z, int64_t n);
};

const RandomLoops& FindRandomLoops();
extern const RandomLoops kPortableRandomLoops;
extern const RandomLoops kAvx2RandomLoops, kAvx512RandomLoops;  // x86-64 only

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_RANDOM_RANDOM_LOOPS_H_
