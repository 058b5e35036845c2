// Gathering rows and adding rows where indices say.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tidepool/ndarray/kernel/attributes_indexing.h"
#include "tidepool/ndarray/kernel/axis_split.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/thread_pool.h"

namespace tidepool::cpu {
namespace {

constexpr int64_t kTaskElements = 1 << 15;

// One element a slice: nothing to copy in one go.
template <typename Bits, typename Index>
void GatherElements(const Bits* x, const Index* index, int64_t count, Bits* z) {
  for (int64_t i = 0; i < count; ++i) z[i] = x[index[i]];
}

template <typename Bits>
void Gather(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  const TensorRef& indices = call.inputs[1];
  const AxisSplit split(x, call.attrs<AxisAttributes>().axis);
  const int64_t count = indices.NumElements(), inner = split.inner;
  VisitIndexType(indices.dtype, [&](auto type) {
    const auto* index = indices.as<decltype(type)>();
    const int64_t grain = std::max<int64_t>(1, kTaskElements / inner);
    for (int64_t o = 0; o < split.outer; ++o) {
      const Bits* from = x.as<Bits>() + o * split.size * inner;
      Bits* to = call.outputs[0].as<Bits>() + o * count * inner;
      ParallelFor(call.threads, count, grain, count * inner, [&](int64_t begin, int64_t end) {
        if (inner == 1) return GatherElements(from, index + begin, end - begin, to + begin);
        for (int64_t i = begin; i < end; ++i) {
          std::memcpy(to + i * inner, from + index[i] * inner, inner * sizeof(Bits));
        }
      });
    }
  });
}

template <typename T>
void AddTo(const T* update, T* sum, int64_t count) {
  using Sum = typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>,
                                          std::type_identity<T>>::type;  // wraps
  for (int64_t i = 0; i < count; ++i) {
    sum[i] = static_cast<T>(static_cast<Sum>(sum[i]) + static_cast<Sum>(update[i]));
  }
}

// Each slice of Z belongs to one task, which adds to it in the order of the indices.
template <typename T>
void ScatterAdd(const KernelCall& call) {
  const TensorRef& z = call.outputs[0];
  const TensorRef& indices = call.inputs[1];
  const AxisSplit split(z, call.attrs<AxisAttributes>().axis);
  const int64_t count = indices.NumElements(), inner = split.inner;
  const int64_t work = split.outer * count * inner;
  // Every task reads all indices.
  const int64_t ranges =
      work < kMinParallelWork ? 1 : std::min<int64_t>(call.threads.count, split.size);
  const int64_t length = (split.size + ranges - 1) / ranges;
  VisitIndexType(indices.dtype, [&](auto type) {
    const auto* index = indices.as<decltype(type)>();
    ParallelFor(call.threads, ranges, 1, work, [&](int64_t first, int64_t last) {
      for (int64_t range = first; range < last; ++range) {
        const int64_t begin = range * length, end = std::min(begin + length, split.size);
        for (int64_t o = 0; o < split.outer; ++o) {
          const T* updates = call.inputs[0].as<T>() + o * count * inner;
          T* sums = z.as<T>() + o * split.size * inner;
          for (int64_t i = 0; i < count; ++i) {
            if (index[i] < begin || index[i] >= end) continue;
            if (inner == 1) {
              AddTo(updates + i, sums + index[i], 1);
              continue;
            }
            AddTo(updates + i * inner, sums + index[i] * inner, inner);
          }
        }
      }
    });
  });
}

const bool registered = [] {
  auto add = [](OpCode op, DType dtype, void (*run)(const KernelCall&)) {
    KernelRegistry::Global().Add({op, DeviceType::kHost, dtype, "cpu", 10, run});
  };
  for (int i = 0; i < kDTypes; ++i) {
    const DType dtype = static_cast<DType>(i);
    VisitBits(dtype, [&](auto bits) { add(OpCode::kGather, dtype, &Gather<decltype(bits)>); });
  }
  add(OpCode::kScatterAdd, DType::kFloat32, &ScatterAdd<float>);
  add(OpCode::kScatterAdd, DType::kFloat64, &ScatterAdd<double>);
  add(OpCode::kScatterAdd, DType::kInt32, &ScatterAdd<int32_t>);
  add(OpCode::kScatterAdd, DType::kInt64, &ScatterAdd<int64_t>);
  return true;
}();

}  // namespace
}  // namespace tidepool::cpu
