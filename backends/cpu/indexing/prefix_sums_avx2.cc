// Compiled with -mavx2; called only where the processor has it. Eight elements a step: sums within
// them are ready before the sum of all before them, whose chain is one addition a step.
#include "tidepool/backends/cpu/indexing/prefix_sums.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace tidepool::cpu {
namespace {

// Four elements in the order they are summed: at x[0..3], or backwards at x[0], x[-1] and so on.
template <bool kReverse>
inline __m256d Load(const float* x) {
  if (!kReverse) return _mm256_cvtps_pd(_mm_loadu_ps(x));
  const __m128 four = _mm_loadu_ps(x - 3);
  return _mm256_cvtps_pd(_mm_shuffle_ps(four, four, 0x1b));
}
template <bool kReverse>
inline __m256d Load(const double* x) {
  if (!kReverse) return _mm256_loadu_pd(x);
  return _mm256_permute4x64_pd(_mm256_loadu_pd(x - 3), 0x1b);
}
template <bool kReverse>
inline void Store(__m256d value, float* z) {
  const __m128 four = _mm256_cvtpd_ps(value);
  if (!kReverse) return _mm_storeu_ps(z, four);
  _mm_storeu_ps(z - 3, _mm_shuffle_ps(four, four, 0x1b));
}
template <bool kReverse>
inline void Store(__m256d value, double* z) {
  if (!kReverse) return _mm256_storeu_pd(z, value);
  _mm256_storeu_pd(z - 3, _mm256_permute4x64_pd(value, 0x1b));
}

// (a, a + b, a + b + c, a + b + c + d)
inline __m256d PrefixOf(__m256d v) {
  v = _mm256_add_pd(v, _mm256_unpacklo_pd(_mm256_setzero_pd(), v));
  const __m256d low = _mm256_permute2f128_pd(v, v, 0x08);  // (0, 0, a, a + b)
  return _mm256_add_pd(v, _mm256_unpackhi_pd(low, low));
}
inline __m256d LastOf(__m256d v) { return _mm256_permute4x64_pd(v, 0xff); }
// (before, a, b, c)
inline __m256d Shifted(__m256d before, __m256d v) {
  return _mm256_blend_pd(_mm256_permute4x64_pd(v, 0x90), before, 1);
}

template <typename T, bool kReverse, bool kExclusive>
int64_t Steps(const T* x, T* z, int64_t n, double* sum) {
  constexpr int64_t kSign = kReverse ? -1 : 1;
  const int64_t whole = n / 8 * 8;
  __m256d carry = _mm256_set1_pd(*sum);
  for (int64_t i = 0; i < whole; i += 8) {
    const T* from = x + i * kSign;
    T* to = z + i * kSign;
    __m256d a = PrefixOf(Load<kReverse>(from));
    __m256d b = PrefixOf(Load<kReverse>(from + 4 * kSign));
    const __m256d of_a = LastOf(a);
    b = _mm256_add_pd(b, of_a);
    const __m256d of_both = LastOf(b);
    if (kExclusive) {
      b = Shifted(of_a, b);
      a = Shifted(_mm256_setzero_pd(), a);
    }
    Store<kReverse>(_mm256_add_pd(carry, a), to);
    Store<kReverse>(_mm256_add_pd(carry, b), to + 4 * kSign);
    carry = _mm256_add_pd(carry, of_both);
  }
  *sum = _mm256_cvtsd_f64(carry);
  return whole;
}

template <typename T>
int64_t PrefixSums(const T* x, T* z, int64_t n, bool reverse, bool exclusive, double* sum) {
  if (reverse) {
    return exclusive ? Steps<T, true, true>(x, z, n, sum) : Steps<T, true, false>(x, z, n, sum);
  }
  return exclusive ? Steps<T, false, true>(x, z, n, sum) : Steps<T, false, false>(x, z, n, sum);
}

}  // namespace

int64_t Avx2PrefixSums(const float* x, float* z, int64_t n, bool reverse, bool exclusive,
                       double* sum) {
  return PrefixSums(x, z, n, reverse, exclusive, sum);
}
int64_t Avx2PrefixSums(const double* x, double* z, int64_t n, bool reverse, bool exclusive,
                       double* sum) {
  return PrefixSums(x, z, n, reverse, exclusive, sum);
}

}  // namespace tidepool::cpu
#endif
