// Loops over contiguous floats, compiled once for AVX2 and FMA and once for any processor. Loops()
// gives the table for this machine. Those of f64 are compiled for any processor alone: they wait for memory, and without FMA
// their bits are the same on all of x86-64.
#ifndef TIDEPOOL_BACKENDS_CPU_VECTOR_LOOPS_H_
#define TIDEPOOL_BACKENDS_CPU_VECTOR_LOOPS_H_

#include <stdint.h>

namespace tidepool::cpu {

// rest1 and rest2 are 1 - beta: in float the difference would lose four digits of them.
template <typename T>
struct AdamStep {
  T beta1, beta2, rest1, rest2, step_size, epsilon, keep;
};
// What becomes of the gradient first (ndarray/kernel/update_numbers.h).
template <typename T>
struct UpdateTerms {
  T scale, l2, l1, clip;
};

// Parameter updates of T, f32 or f64.
template <typename T>
struct UpdateLoops {
  void (*sgd)(const T* g, T* p, T rate, const UpdateTerms<T>& terms, int64_t n);
  void (*nesterovs)(const T* g, T* p, T* v, T rate, T momentum, const UpdateTerms<T>& terms,
                    int64_t n);
  // s = keep * s + rest * g^2; p -= rate * g / (sqrt(s) + epsilon): AdaGrad with 1 and 1, RMSProp.
  void (*by_root)(const T* g, T* p, T* s, T rate, T epsilon, T keep, T rest,
                  const UpdateTerms<T>& terms, int64_t n);
  void (*adam)(const T* g, T* p, T* m, T* v, const AdamStep<T>& step, const UpdateTerms<T>& terms,
               int64_t n);
};

struct VectorLoops : UpdateLoops<float> {
  const char* name;
  void (*accumulate)(const float* x, float* z, int64_t n);  // z += x
  float (*sum)(const float* x, int64_t n);
  bool (*all_finite)(const float* x, int64_t n);
};

const VectorLoops& Loops();
extern const VectorLoops kPortableLoops;
extern const UpdateLoops<double> kUpdateLoopsF64;
// UpdateLoopsOf<float>() or UpdateLoopsOf<double>().
template <typename T>
const UpdateLoops<T>& UpdateLoopsOf();
template <>
inline const UpdateLoops<float>& UpdateLoopsOf<float>() {
  return Loops();
}
template <>
inline const UpdateLoops<double>& UpdateLoopsOf<double>() {
  return kUpdateLoopsF64;
}
extern const VectorLoops kAvx2Loops;  // x86-64 only

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_VECTOR_LOOPS_H_
