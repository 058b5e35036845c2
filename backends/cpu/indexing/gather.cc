// Gathering rows and adding rows where indices say.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tidepool/ndarray/kernel/attributes_indexing.h"
#include "tidepool/ndarray/kernel/axis_split.h"
#include "tidepool/ndarray/kernel/gather_views.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/strided_loop.h"
#include "tidepool/ndarray/kernel/thread_pool.h"

namespace tidepool::cpu {
namespace {

constexpr int64_t kTaskElements = 1 << 15;

// One element a slice: nothing to copy in one go.
template <typename Bits, typename Index>
void GatherElements(const Bits* x, const Index* index, int64_t count, Bits* z) {
  for (int64_t i = 0; i < count; ++i) z[i] = x[index[i]];
}

// Of views with gaps: a dense copy of all that indices might choose from may be any number of times the result.
template <typename Bits>
void GatherStrided(const KernelCall& call) {
  const GatherViews views(call);
  const TensorRef& z = call.outputs[0];
  int longest = 0;
  for (int i = 1; i < z.rank; ++i) {
    if (z.dims[i] > z.dims[longest]) longest = i;
  }
  const int64_t total = z.NumElements(), size = z.rank == 0 ? 1 : z.dims[longest];
  const int64_t grain = std::max<int64_t>(1, kTaskElements / (total / size));
  VisitIndexType(views.indices.dtype, [&](auto type) {
    using Index = decltype(type);
    ParallelFor(call.threads, size, grain, total, [&](int64_t begin, int64_t end) {
      int64_t dims[kMaxRank], strides[3][kMaxRank];
      for (int i = 0; i < z.rank; ++i) {
        dims[i] = z.dims[i];
        strides[0][i] = views.x.strides[i];
        strides[1][i] = views.indices.strides[i];
        strides[2][i] = z.strides[i];
      }
      const Bits* x = views.x.template as<Bits>();
      const Index* indices = views.indices.template as<Index>();
      Bits* to = z.as<Bits>();
      if (z.rank > 0) {
        dims[longest] = end - begin;
        x += begin * strides[0][longest];
        indices += begin * strides[1][longest];
        to += begin * strides[2][longest];
      }
      ForEachRun<3>(z.rank, dims, strides,
                    [&](const int64_t* offset, int64_t count, const int64_t* stride) {
                      const Bits* from = x + offset[0];
                      const Index* index = indices + offset[1];
                      Bits* out = to + offset[2];
                      if (stride[1] != 0) {  // one element for each index
                        for (int64_t i = 0; i < count; ++i) {
                          out[i * stride[2]] =
                              from[i * stride[0] + views.step * int64_t{index[i * stride[1]]}];
                        }
                        return;
                      }
                      from += views.step * int64_t{*index};
                      if (stride[0] == 1 && stride[2] == 1) {
                        std::memcpy(out, from, count * sizeof(Bits));
                        return;
                      }
                      for (int64_t i = 0; i < count; ++i) out[i * stride[2]] = from[i * stride[0]];
                    });
    });
  });
}

template <typename Bits>
void Gather(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  const TensorRef& indices = call.inputs[1];
  if (!x.dense || !indices.dense || !call.outputs[0].dense) return GatherStrided<Bits>(call);
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
  auto add = [](OpCode op, DType dtype, void (*run)(const KernelCall&), bool strided = false) {
    KernelRegistry::Global().Add(
        {op, DeviceType::kHost, dtype, "cpu", 10, run, nullptr, nullptr, strided});
  };
  for (int i = 0; i < kDTypes; ++i) {
    const DType dtype = static_cast<DType>(i);
    VisitBits(dtype,
              [&](auto bits) { add(OpCode::kGather, dtype, &Gather<decltype(bits)>, true); });
  }
  add(OpCode::kScatterAdd, DType::kFloat32, &ScatterAdd<float>);
  add(OpCode::kScatterAdd, DType::kFloat64, &ScatterAdd<double>);
  add(OpCode::kScatterAdd, DType::kInt32, &ScatterAdd<int32_t>);
  add(OpCode::kScatterAdd, DType::kInt64, &ScatterAdd<int64_t>);
  return true;
}();

}  // namespace
}  // namespace tidepool::cpu
