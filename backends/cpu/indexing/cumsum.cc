// Sums along an axis: floats in double, integers modulo 2^64.
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "tidepool/backends/cpu/thread_pool.h"
#include "tidepool/ndarray/kernel/attributes_indexing.h"
#include "tidepool/ndarray/kernel/axis_split.h"
#include "tidepool/ndarray/kernel/registry.h"

namespace tidepool::cpu {
namespace {

// Lanes that are summed side by side: neighbours where the axis is not the last, whole rows where it
// is, so that additions overlap.
constexpr int64_t kColumns = 1024, kRows = 4;
constexpr int64_t kTaskElements = 1 << 15;

template <typename T>
using Sum = std::conditional_t<kIsFloat<T>, double, uint64_t>;
template <typename T>
using Result = std::conditional_t<kIsFloat<T>, T, int64_t>;

template <typename T>
Sum<T> AsSum(T x) {
  if constexpr (kIsFloat<T>) return static_cast<Sum<T>>(x);
  return static_cast<Sum<T>>(static_cast<int64_t>(x));
}

// Four rows of n elements, row_stride apart.
template <typename T, bool kExclusive>
void SumRows(const T* x, Result<T>* z, int64_t n, int64_t step, int64_t row_stride) {
  Sum<T> sums[kRows] = {};
  for (int64_t i = 0; i < n; ++i, x += step, z += step) {
    for (int k = 0; k < kRows; ++k) {
      const Sum<T> after = sums[k] + AsSum(x[k * row_stride]);
      z[k * row_stride] = static_cast<Result<T>>(kExclusive ? sums[k] : after);
      sums[k] = after;
    }
  }
}

// `lanes` (at most kColumns) lanes of n elements: element i of lane k at k * lane_stride + i * stride.
template <typename T, bool kExclusive>
void SumLanes(const T* x, Result<T>* z, int64_t n, int64_t stride, int64_t lanes,
              int64_t lane_stride) {
  Sum<T> sums[kColumns] = {};
  for (int64_t i = 0; i < n; ++i, x += stride, z += stride) {
    for (int64_t k = 0; k < lanes; ++k) {
      const Sum<T> before = sums[k];
      const Sum<T> after = before + AsSum(x[k * lane_stride]);
      sums[k] = after;
      z[k * lane_stride] = static_cast<Result<T>>(kExclusive ? before : after);
    }
  }
}

template <typename T>
void CumSum(const KernelCall& call) {
  const auto& a = call.attrs<CumSumAttributes>();
  const AxisSplit split(call.inputs[0], a.axis);
  const int64_t n = split.size, inner = split.inner;
  const bool rows = inner == 1;
  const int64_t length = rows ? kRows : std::min(inner, kColumns);
  const int64_t per_outer = rows ? 1 : (inner + length - 1) / length;
  const int64_t runs = rows ? (split.outer + kRows - 1) / kRows : split.outer * per_outer;
  const int64_t step = a.reverse ? -inner : inner, start = a.reverse ? (n - 1) * inner : 0;
  const T* x = call.inputs[0].as<T>();
  Result<T>* z = call.outputs[0].as<Result<T>>();
  const auto sum = a.exclusive ? &SumLanes<T, true> : &SumLanes<T, false>;
  const auto sum_rows = a.exclusive ? &SumRows<T, true> : &SumRows<T, false>;
  ParallelFor(call.threads, runs, std::max<int64_t>(1, kTaskElements / (n * length)),
              split.outer * n * inner, [&](int64_t begin, int64_t end) {
                for (int64_t run = begin; run < end; ++run) {
                  const int64_t column = rows ? 0 : run % per_outer * length;
                  const int64_t at =
                      (rows ? run * kRows * n : run / per_outer * n * inner + column) + start;
                  const int64_t lanes = rows ? std::min(kRows, split.outer - run * kRows)
                                             : std::min(length, inner - column);
                  if (rows && lanes == kRows) {
                    sum_rows(x + at, z + at, n, step, n);
                  } else {
                    sum(x + at, z + at, n, step, lanes, rows ? n : 1);
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
