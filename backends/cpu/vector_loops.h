// Loops over contiguous floats, compiled once for AVX2 and FMA and once for any processor. Loops()
// gives the table for this machine.
#ifndef TIDEPOOL_BACKENDS_CPU_VECTOR_LOOPS_H_
#define TIDEPOOL_BACKENDS_CPU_VECTOR_LOOPS_H_

#include <stdint.h>

namespace tidepool::cpu {

// rest1 and rest2 are 1 - beta: in float the difference would lose four digits of them.
struct AdamStep {
  float beta1, beta2, rest1, rest2, step_size, epsilon, keep;
};
// What becomes of the gradient first (ndarray/kernel/update_numbers.h).
struct UpdateTerms {
  float scale, l2, l1, clip;
};

struct VectorLoops {
  const char* name;
  void (*accumulate)(const float* x, float* z, int64_t n);  // z += x
  float (*sum)(const float* x, int64_t n);
  bool (*all_finite)(const float* x, int64_t n);
  void (*sgd)(const float* g, float* p, float rate, const UpdateTerms& terms, int64_t n);
  void (*nesterovs)(const float* g, float* p, float* v, float rate, float momentum, const UpdateTerms& terms,
                    int64_t n);
  // s = keep * s + rest * g^2; p -= rate * g / (sqrt(s) + epsilon): AdaGrad with 1 and 1, RMSProp.
  void (*by_root)(const float* g, float* p, float* s, float rate, float epsilon, float keep, float rest,
                  const UpdateTerms& terms, int64_t n);
  void (*adam)(const float* g, float* p, float* m, float* v, const AdamStep& step, const UpdateTerms& terms,
               int64_t n);
};

const VectorLoops& Loops();
extern const VectorLoops kPortableLoops;
extern const VectorLoops kAvx2Loops;  // x86-64 only

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_VECTOR_LOOPS_H_
