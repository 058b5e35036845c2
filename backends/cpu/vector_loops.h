// Loops over contiguous floats, compiled once for AVX2 and FMA and once for any processor. Loops()
// gives the table for this machine.
#ifndef TIDEPOOL_BACKENDS_CPU_VECTOR_LOOPS_H_
#define TIDEPOOL_BACKENDS_CPU_VECTOR_LOOPS_H_

#include <stdint.h>

namespace tidepool::cpu {

// rest1 and rest2 are 1 - beta: in float the difference would lose four digits of them.
struct AdamStep {
  float beta1, beta2, rest1, rest2, step_size, epsilon, keep, l2;
};

struct VectorLoops {
  const char* name;
  void (*accumulate)(const float* x, float* z, int64_t n);  // z += x
  float (*sum)(const float* x, int64_t n);
  bool (*all_finite)(const float* x, int64_t n);
  void (*sgd)(const float* g, float* p, float rate, float l2, int64_t n);
  void (*nesterovs)(const float* g, float* p, float* v, float rate, float momentum, float l2,
                    int64_t n);
  void (*adam)(const float* g, float* p, float* m, float* v, const AdamStep& step, int64_t n);
};

const VectorLoops& Loops();
extern const VectorLoops kPortableLoops;
extern const VectorLoops kAvx2Loops;  // x86-64 only

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_VECTOR_LOOPS_H_
