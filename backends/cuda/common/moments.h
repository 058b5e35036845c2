// States of sums that are merged in any tree: moments around a point, and exponentials relative to
// the largest.
#ifndef TIDEPOOL_BACKENDS_CUDA_COMMON_MOMENTS_H_
#define TIDEPOOL_BACKENDS_CUDA_COMMON_MOMENTS_H_

#include "tidepool/backends/cuda/common/element.h"

namespace tidepool::cuda {

// Sums of deviations from a point that is near the mean, or one of the values, and of their squares.
// Of f32 and 16-bit values, whose deviations have half of a double's bits, nothing is lost.
struct Moments {
  double sum, squares;
};
__device__ __forceinline__ void AddDeviation(double deviation, Moments* m) {
  m->sum += deviation;
  m->squares = fma(deviation, deviation, m->squares);
}
__device__ __forceinline__ Moments MergeMoments(const Moments& a, const Moments& b) {
  return {a.sum + b.sum, a.squares + b.squares};
}
// Sum of squared deviations from the mean of `count` values.
__device__ __forceinline__ double SquaresAroundMean(const Moments& m, double count) {
  const double squares = m.squares - m.sum * (m.sum / count);
  return squares < 0 ? 0 : squares;  // NaN stays
}

// The sum of exp(x - largest). NaN among the values makes `largest` NaN. Where `largest` is not
// finite the sum has no meaning.
template <typename W>
struct ExponentialSum {
  double sum;
  W largest;
};
template <typename W>
__device__ __forceinline__ ExponentialSum<W> EmptyExponentialSum() {
  return {0, -Infinity<W>()};
}
template <typename W>
__device__ __forceinline__ void AddExponential(W x, ExponentialSum<W>* s) {
  if (x > s->largest || IsNaN(x)) {
    s->sum = s->sum * static_cast<double>(Exp(s->largest - x)) + 1;
    s->largest = x;
  } else if (x > -Infinity<W>()) {
    s->sum += static_cast<double>(Exp(x - s->largest));
  }
}
template <typename W>
__device__ __forceinline__ ExponentialSum<W> MergeExponentials(const ExponentialSum<W>& a,
                                                               const ExponentialSum<W>& b) {
  if (!(b.largest > -Infinity<W>()) && !IsNaN(b.largest)) return a;
  if (!(a.largest > -Infinity<W>()) && !IsNaN(a.largest)) return b;
  if (IsNaN(a.largest) || a.largest > b.largest) {
    return {a.sum + b.sum * static_cast<double>(Exp(b.largest - a.largest)), a.largest};
  }
  return {a.sum * static_cast<double>(Exp(a.largest - b.largest)) + b.sum, b.largest};
}

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_COMMON_MOMENTS_H_
