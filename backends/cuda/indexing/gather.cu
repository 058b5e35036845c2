// Slices by index, and ones at indices. Moves go by the width of elements; rows whose bytes allow it
// are moved up to 16 bytes at a time.
#include <cstdint>

#include "tidepool/backends/cuda/framework/divider.h"
#include "tidepool/backends/cuda/framework/numbers.h"
#include "tidepool/backends/cuda/framework/queue.h"
#include "tidepool/backends/cuda/framework/registration.h"
#include "tidepool/backends/cuda/framework/strided_layout.h"
#include "tidepool/backends/cuda/framework/value_fault.h"
#include "tidepool/backends/cuda/runtime/launch.h"
#include "tidepool/ndarray/kernel/attributes_indexing.h"
#include "tidepool/ndarray/kernel/axis_split.h"
#include "tidepool/ndarray/kernel/gather_views.h"

namespace tidepool::cuda {
namespace {

constexpr int kThreads = 256;

// Z [outer, count, inner] = X [outer, size, inner] at indices [count], zeros where one is outside; inner in
// elements of T.
template <typename T, typename Index>
__global__ void GatherRows(const T* x, const Index* indices, T* z, int64_t total, int64_t size,
                           Divider by_inner, Divider by_count, int64_t inner, ValueCheck check) {
  for (int64_t n = GlobalThread(); n < total; n += GlobalThreads()) {
    int64_t k, i;
    const int64_t row = by_inner.Divide(n, &k);
    const int64_t o = by_count.Divide(row, &i);
    const auto index = static_cast<int64_t>(indices[i]);
    if (check.IsInside(index)) {
      z[n] = x[(o * size + index) * inner + k];
    } else {
      if (o == 0 && k == 0) check.Report(i, index);
      z[n] = T{};
    }
  }
}

template <typename T>
void LaunchGather(const KernelCall& call, const AxisSplit& split, int64_t inner) {
  const TensorRef& indices = call.inputs[1];
  const Queue queue = QueueOf(call);
  const int64_t count = indices.NumElements();
  const int64_t total = split.outer * count * inner;
  VisitIndexType(indices.dtype, [&](auto type) {
    using Index = decltype(type);
    Launch(GatherRows<T, Index>, queue.Blocks(total, kThreads), kThreads, 0, queue.stream,
           call.inputs[0].as<const T>(), indices.as<const Index>(), call.outputs[0].as<T>(), total,
           split.size, Divider(inner, total), Divider(count, total), inner,
           ValueCheckOf(call, split.size));
  });
}

// Of views with gaps, which GatherViews spreads to the result's shape. Operands of the layout: Z, X, the indices
// and their numbers in row-major order.
template <typename T, typename Index>
__global__ void GatherStrided(StridedLayout layout, const T* x, const Index* indices, T* z,
                              int64_t first, int64_t step, ValueCheck check) {
  for (int64_t n = GlobalThread(); n < layout.count; n += GlobalThreads()) {
    int32_t offsets[4];
    layout.Offsets(static_cast<uint32_t>(n), offsets);
    const auto index = static_cast<int64_t>(indices[offsets[2]]);
    if (check.IsInside(index)) {
      z[offsets[0]] = x[offsets[1] + index * step];
    } else {
      check.Report(first + offsets[3], index);
      z[offsets[0]] = T{};
    }
  }
}

void RunStridedGather(const KernelCall& call) {
  const GatherViews views(call);
  TensorRef places = views.indices;
  places.strides = views.index_places;
  const TensorRef& z = call.outputs[0];
  const TensorRef* const refs[] = {&z, &views.x, &views.indices, &places};
  const StridedPlan plan(z, refs);
  const Queue queue = QueueOf(call);
  const ValueCheck check =
      ValueCheckOf(call, call.inputs[0].dims[call.attrs<AxisAttributes>().axis]);
  VisitBits(z.dtype, [&](auto bits) {
    using T = decltype(bits);
    VisitIndexType(views.indices.dtype, [&](auto type) {
      using Index = decltype(type);
      ForEachPiece(plan, [&](const StridedLayout& layout, const int64_t* offsets) {
        Launch(GatherStrided<T, Index>, queue.Blocks(layout.count, kThreads), kThreads, 0,
               queue.stream, layout, views.x.template as<const T>() + offsets[1],
               views.indices.template as<const Index>() + offsets[2],
               z.template as<T>() + offsets[0], offsets[3], views.step, check);
      });
    });
  });
}

void RunGather(const KernelCall& call) {
  if (!call.inputs[0].dense || !call.inputs[1].dense || !call.outputs[0].dense)
    return RunStridedGather(call);
  const AxisSplit split(call.inputs[0], call.attrs<AxisAttributes>().axis);
  const int64_t bytes = split.inner * static_cast<int64_t>(DTypeBytes(call.inputs[0].dtype));
  const uintptr_t both = reinterpret_cast<uintptr_t>(call.inputs[0].data) |
                         reinterpret_cast<uintptr_t>(call.outputs[0].data) |
                         static_cast<uintptr_t>(bytes);
  if (both % 16 == 0) return LaunchGather<Vector<uint32_t, 4>>(call, split, bytes / 16);
  if (both % 8 == 0) return LaunchGather<uint64_t>(call, split, bytes / 8);
  if (both % 4 == 0) return LaunchGather<uint32_t>(call, split, bytes / 4);
  if (both % 2 == 0) return LaunchGather<uint16_t>(call, split, bytes / 2);
  LaunchGather<uint8_t>(call, split, bytes);
}

template <typename T, typename Index>
__global__ void OneHotRows(const Index* indices, T* z, int64_t total, Divider by_depth, T on, T off,
                           ValueCheck check) {
  for (int64_t n = GlobalThread(); n < total; n += GlobalThreads()) {
    int64_t column;
    const int64_t row = by_depth.Divide(n, &column);
    const auto index = static_cast<int64_t>(indices[row]);
    if (column == 0 && !check.IsInside(index)) check.Report(row, index);
    z[n] = index == column ? on : off;
  }
}

void RunOneHot(const KernelCall& call) {
  const auto& a = call.attrs<OneHotAttributes>();
  const TensorRef& indices = call.inputs[0];
  const TensorRef& z = call.outputs[0];
  const Queue queue = QueueOf(call);
  const int64_t total = z.NumElements(), depth = z.dims[z.rank - 1];
  VisitDType(z.dtype, [&](auto t) {
    using Number = decltype(t);
    VisitBits(z.dtype, [&](auto bits) {
      using T = decltype(bits);
      if constexpr (sizeof(T) == sizeof(Number)) {
        const T on = std::bit_cast<T>(ConvertElement<Number>(a.on));
        const T off = std::bit_cast<T>(ConvertElement<Number>(a.off));
        VisitIndexType(indices.dtype, [&](auto type) {
          using Index = decltype(type);
          Launch(OneHotRows<T, Index>, queue.Blocks(total, kThreads), kThreads, 0, queue.stream,
                 indices.as<const Index>(), z.as<T>(), total, Divider(depth, total), on, off,
                 ValueCheckOf(call, depth));
        });
      }
    });
  });
}

const bool registered = [] {
  for (int i = 0; i < kDTypes; ++i) {
    AddKernel(OpCode::kGather, static_cast<DType>(i), &RunGather, true);
    AddKernel(OpCode::kOneHot, static_cast<DType>(i), &RunOneHot);
  }
  return true;
}();

}  // namespace
}  // namespace tidepool::cuda
