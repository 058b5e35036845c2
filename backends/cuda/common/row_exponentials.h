// The largest element of a row and the sum of the exponentials relative to it, for .cu files of softmax
// and what is made with it.
#ifndef TIDEPOOL_BACKENDS_CUDA_COMMON_ROW_EXPONENTIALS_H_
#define TIDEPOOL_BACKENDS_CUDA_COMMON_ROW_EXPONENTIALS_H_

#include "tidepool/backends/cuda/common/element.h"
#include "tidepool/backends/cuda/common/moments.h"
#include "tidepool/backends/cuda/common/rows.h"

namespace tidepool::cuda {

// Of two numbers; NaN where one of them is.
struct Largest {
  template <typename W>
  __device__ __forceinline__ W operator()(W a, W b) const {
    return b > a || IsNaN(b) ? b : a;
  }
};

// NaN as largest of a row of an infinity or NaN: it is NaN throughout, as its differences are.
template <typename W>
struct RowExponentials {
  W largest, sum;
};

// `pieces`: of the row, with -infinity as rest. With kKeep, of rows of one piece, the elements become their
// exponentials.
template <bool kKeep, typename T, int kWidth, bool kOne>
__device__ __forceinline__ RowExponentials<Compute<T>> ExponentialsOfRow(
    const RowThread& at, RowPieces<T, kWidth, kOne>& pieces) {
  using W = Compute<T>;
  using Part = RowPart<T, kWidth>;
  auto& value = pieces.part.value;
  auto largest_of_part = [&] {
    W largest = value[0];
#pragma unroll
    for (int u = 1; u < Part::kCount; ++u) largest = Largest()(largest, value[u]);
    return largest;
  };
  // An access at a time, so that rounding errors of long sums do not add up.
  auto sum_of_part = [&](W largest) {
    W sum = 0;
#pragma unroll
    for (int k = 0; k < Part::kAccesses; ++k) {
      W of_access = 0;
#pragma unroll
      for (int u = k * kWidth; u < (k + 1) * kWidth; ++u) {
        const W exponential = Exp(value[u] - largest);
        of_access += exponential;
        if constexpr (kKeep && kOne) value[u] = exponential;
      }
      sum += of_access;
    }
    return sum;
  };
  if constexpr (kOne) {
    __shared__ W shared[32];
    const W found = MergeTeam(at, largest_of_part(), shared, Largest());
    const W largest = IsFinite(found) ? found : NaN<W>();
    return {largest, MergeTeam(at, sum_of_part(largest), shared, AddUp())};
  } else {
    using Sum = ExponentialSum<W>;
    __shared__ Sum shared[32];
    Sum sum = EmptyExponentialSum<W>();
    pieces.Each([&](int64_t, int) {
      const W largest = largest_of_part();
      if (IsNaN(largest) || largest > -Infinity<W>()) {
        sum = MergeExponentials(sum, {static_cast<double>(sum_of_part(largest)), largest});
      }
    });
    sum = MergeTeam(at, sum, shared,
                    [](const Sum& a, const Sum& b) { return MergeExponentials(a, b); });
    return {IsFinite(sum.largest) ? sum.largest : NaN<W>(), static_cast<W>(sum.sum)};
  }
}

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_COMMON_ROW_EXPONENTIALS_H_
