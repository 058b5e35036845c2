// Sums along an axis: floats in double, integers modulo 2^64.
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "tidepool/backends/cpu/indexing/prefix_sums.h"
#include "tidepool/backends/cpu/instruction_set.h"
#include "tidepool/ndarray/kernel/attributes_indexing.h"
#include "tidepool/ndarray/kernel/axis_split.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/thread_pool.h"

namespace tidepool::cpu {
namespace {

// Neighbouring lanes that are summed side by side where the axis is not the last.
constexpr int64_t kColumns = 1024;
constexpr int64_t kTaskElements = 1 << 15;

template <typename T>
using Sum = std::conditional_t<kIsFloat<T>, double, uint64_t>;
template <typename T>
using Result = std::conditional_t<kIsFloat<T> || std::is_same_v<T, uint64_t>, T, int64_t>;

template <typename T>
Sum<T> AsSum(T x) {
  if constexpr (kIsFloat<T>) return static_cast<Sum<T>>(x);
  return static_cast<Sum<T>>(static_cast<int64_t>(x));
}

// One lane of n elements, `step` apart: four at a time, so that one addition in four waits for the
// one before. (Rows side by side would do too, but for rows a power of two apart, which share lines.)
template <typename T, bool kExclusive>
void SumLane(const T* x, Result<T>* z, int64_t n, int64_t step) {
  using R = Result<T>;
  Sum<T> sum = 0;
  int64_t i = 0;
#if defined(__x86_64__)
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
    if ((step == 1 || step == -1) && BestInstructionSet() >= InstructionSet::kAvx2) {
      i = Avx2PrefixSums(x, z, n, /*reverse=*/step < 0, kExclusive, &sum);
      x += i * step;
      z += i * step;
    }
  }
#endif
  for (; i + 4 <= n; i += 4, x += 4 * step, z += 4 * step) {
    const Sum<T> a = AsSum(x[0]), b = AsSum(x[step]), c = AsSum(x[2 * step]);
    const Sum<T> two = a + b, three = two + c, four = two + (c + AsSum(x[3 * step]));
    const Sum<T> sums[5] = {sum, sum + a, sum + two, sum + three, sum + four};
    for (int k = 0; k < 4; ++k) z[k * step] = static_cast<R>(sums[kExclusive ? k : k + 1]);
    sum = sums[4];
  }
  for (; i < n; ++i, x += step, z += step) {
    const Sum<T> after = sum + AsSum(*x);
    *z = static_cast<R>(kExclusive ? sum : after);
    sum = after;
  }
}

// `lanes` (at most kColumns) neighbouring lanes of n elements, `step` apart.
template <typename T, bool kExclusive>
void SumLanes(const T* x, Result<T>* z, int64_t n, int64_t step, int64_t lanes) {
  Sum<T> sums[kColumns] = {};
  for (int64_t i = 0; i < n; ++i, x += step, z += step) {
    for (int64_t k = 0; k < lanes; ++k) {
      const Sum<T> before = sums[k];
      const Sum<T> after = before + AsSum(x[k]);
      sums[k] = after;
      z[k] = static_cast<Result<T>>(kExclusive ? before : after);
    }
  }
}

template <typename T>
void CumSum(const KernelCall& call) {
  const auto& a = call.attrs<CumSumAttributes>();
  const AxisSplit split(call.inputs[0], a.axis);
  const int64_t n = split.size, inner = split.inner;
  const int64_t length = std::min(inner, kColumns);
  const int64_t per_outer = (inner + length - 1) / length;
  const int64_t step = a.reverse ? -inner : inner, start = a.reverse ? (n - 1) * inner : 0;
  const T* x = call.inputs[0].as<T>();
  Result<T>* z = call.outputs[0].as<Result<T>>();
  const auto sum_lane = a.exclusive ? &SumLane<T, true> : &SumLane<T, false>;
  const auto sum_lanes = a.exclusive ? &SumLanes<T, true> : &SumLanes<T, false>;
  ParallelFor(call.threads, split.outer * per_outer,
              std::max<int64_t>(1, kTaskElements / (n * length)), split.outer * n * inner,
              [&](int64_t begin, int64_t end) {
                for (int64_t run = begin; run < end; ++run) {
                  const int64_t column = run % per_outer * length;
                  const int64_t at = run / per_outer * n * inner + column + start;
                  const int64_t lanes = std::min(length, inner - column);
                  if (lanes == 1) {
                    sum_lane(x + at, z + at, n, step);
                  } else {
                    sum_lanes(x + at, z + at, n, step, lanes);
                  }
                }
              });
}

const bool registered = [] {
  for (int i = 0; i < kDTypes; ++i) {
    const DType dtype = static_cast<DType>(i);
    VisitDType(dtype, [&](auto t) {
      KernelRegistry::Global().Add(
          {OpCode::kCumSum, DeviceType::kHost, dtype, "cpu", 10, &CumSum<decltype(t)>});
    });
  }
  return true;
}();

}  // namespace
}  // namespace tidepool::cpu
