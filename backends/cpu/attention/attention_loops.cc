#include "tidepool/backends/cpu/attention/attention_loops.h"

#include <cmath>
#include <limits>

#include "tidepool/backends/cpu/instruction_set.h"

namespace tidepool::cpu {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

double ScoreAt(const double* s, int64_t i, double scale, double shift, const double* mask) {
  return s[i] * scale + shift + (mask != nullptr ? mask[i] : 0);
}

double Weights(double* s, int64_t n, double scale, double shift, const double* mask,
               double* largest) {
  for (int64_t i = 0; i < n; ++i) {
    s[i] = ScoreAt(s, i, scale, shift, mask);
    if (s[i] > *largest) *largest = s[i];
  }
  const double from = *largest == kNothing ? 0 : *largest;
  long double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    s[i] = std::exp(s[i] - from);
    sum += s[i];
  }
  return static_cast<double>(sum);
}

void WeightsGrad(double* s, double* ds, int64_t n, double scale, double shift, const double* mask,
                 double log_sum, double delta) {
  for (int64_t i = 0; i < n; ++i) {
    s[i] = log_sum == kNothing ? 0 : std::exp(ScoreAt(s, i, scale, shift, mask) - log_sum);
    ds[i] = log_sum == kNothing ? 0 : s[i] * (ds[i] - delta) * scale;
  }
}

double Dot(const double* x, const double* y, int64_t n) {
  long double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<long double>(x[i]) * y[i];
  return static_cast<double>(sum);
}

void ScaleRow(const double* x, double* z, int64_t n, double factor) {
  for (int64_t i = 0; i < n; ++i) z[i] = x[i] * factor;
}

}  // namespace

const AttentionLoops<double> kAttentionLoopsF64 = {&Weights, &WeightsGrad, &Dot, &ScaleRow};

const AttentionLoops<float>& AttentionLoopsF32() {
#if defined(__x86_64__)
  if (BestInstructionSet() >= InstructionSet::kAvx512) return kAvx512AttentionLoops;
  if (BestInstructionSet() >= InstructionSet::kAvx2) return kAvx2AttentionLoops;
#endif
  return kPortableAttentionLoops;
}

}  // namespace tidepool::cpu
