#include "tidepool/backends/cpu/gemm/multiply_add_peak.h"

#include <algorithm>
#include <chrono>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tidepool::cpu {

#if defined(__x86_64__)

namespace {

constexpr int kChains = 12;  // more than latency times throughput
constexpr int kRounds = 1 << 16;

__attribute__((target("avx2,fma"))) float MultiplyAndAdd() {
  __m256 sums[kChains];
  for (__m256& sum : sums) sum = _mm256_set1_ps(1.0f);
  const __m256 factor = _mm256_set1_ps(0.999f), addend = _mm256_set1_ps(0.001f);
  for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
    for (__m256& sum : sums) sum = _mm256_fmadd_ps(sum, factor, addend);
  }
  __m256 total = sums[0];
  for (int i = 1; i < kChains; ++i) total = _mm256_add_ps(total, sums[i]);
  return _mm256_cvtss_f32(total);
}

}  // namespace

double MultiplyAddPeak() {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
  using Clock = std::chrono::steady_clock;
  double best = 0;
  volatile float kept = 0;
  for (int run = 0; run < 100; ++run) {
    const Clock::time_point begin = Clock::now();
    kept = kept + MultiplyAndAdd();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    best = std::max(best, 2.0 * 8 * kChains * kRounds / seconds);
  }
  return best;
}

#else

double MultiplyAddPeak() { return 0; }

#endif

}  // namespace tidepool::cpu
