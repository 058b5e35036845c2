// Loops of attention over one row of scores, compiled once for each instruction set.
#ifndef TIDEPOOL_BACKENDS_CPU_ATTENTION_ATTENTION_LOOPS_H_
#define TIDEPOOL_BACKENDS_CPU_ATTENTION_ATTENTION_LOOPS_H_

#include <stdint.h>

namespace tidepool::cpu {

// A score is s * scale + shift, and mask's element more where there is a mask.
template <typename T>
struct AttentionLoops {
  // Scores become exp(score - largest), where `largest` is the larger of itself and of theirs: it is set.
  // Returns their sum. Nothing but -infinity: zeros.
  double (*weights)(T* s, int64_t n, T scale, T shift, const T* mask, T* largest);
  // Scores become p = exp(score - log_sum), ds becomes p * (ds - delta) * scale.
  void (*weights_grad)(T* s, T* ds, int64_t n, T scale, T shift, const T* mask, T log_sum, T delta);
  double (*dot)(const T* x, const T* y, int64_t n);
  void (*scale_row)(const T* x, T* z, int64_t n, T factor);  // z may be x
};

const AttentionLoops<float>& AttentionLoopsF32();
extern const AttentionLoops<float> kPortableAttentionLoops;
extern const AttentionLoops<float> kAvx2AttentionLoops, kAvx512AttentionLoops;  // x86-64 only
extern const AttentionLoops<double> kAttentionLoopsF64;

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_ATTENTION_ATTENTION_LOOPS_H_
