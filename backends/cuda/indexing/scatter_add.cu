// Z[.., indices[i], ..] += updates[.., i, ..] in the order of i: the same bits in every run.
//
// A block per i whose index no earlier one has adds up all updates of that index: it reads the
// indices after it in pieces, keeps the places of its own in order, and each thread adds them to its
// elements of the slice one after the other. No atomics on floats. The indices are read once for each
// that is different, from the cache: n^2 / 2 of them when all are.
#include <cstdint>
#include <type_traits>

#include "tidepool/backends/cuda/framework/divider.h"
#include "tidepool/backends/cuda/framework/queue.h"
#include "tidepool/backends/cuda/framework/registration.h"
#include "tidepool/backends/cuda/framework/value_fault.h"
#include "tidepool/backends/cuda/runtime/launch.h"
#include "tidepool/ndarray/kernel/attributes_indexing.h"
#include "tidepool/ndarray/kernel/axis_split.h"

namespace tidepool::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

template <typename T>
using Sum = std::conditional_t<std::is_integral_v<T>,
                               std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>, T>;

template <typename T, typename Index>
__global__ void __launch_bounds__(kThreads)
    AddSlices(const T* updates, const Index* indices, T* z, int64_t count, int64_t size,
              int64_t inner, int64_t slice, Divider by_inner, ValueCheck check) {
  __shared__ int64_t mine[kThreads];
  __shared__ int warp_counts[kWarps];
  const int t = static_cast<int>(threadIdx.x), warp = t / 32, lane = t % 32;
  for (int64_t i = blockIdx.x; i < count; i += gridDim.x) {
    const Index index = indices[i];
    if (!check.IsInside(static_cast<int64_t>(index))) {  // all threads of the block
      if (t == 0) check.Report(i, static_cast<int64_t>(index));
      continue;
    }
    bool seen = false;
    for (int64_t begin = 0; begin < i && !seen; begin += kThreads) {
      const int64_t j = begin + t;
      seen = __syncthreads_or(j < i && indices[j] == index) != 0;
    }
    if (seen) continue;  // all threads of the block
    for (int64_t begin = i; begin < count; begin += kThreads) {
      const int64_t j = begin + t;
      const bool match = j < count && indices[j] == index;
      const unsigned votes = __ballot_sync(0xffffffff, match);
      if (lane == 0) warp_counts[warp] = __popc(votes);
      __syncthreads();
      int before = 0, matches = 0;
      for (int w = 0; w < kWarps; ++w) {
        if (w < warp) before += warp_counts[w];
        matches += warp_counts[w];
      }
      if (match) mine[before + __popc(votes & ((1u << lane) - 1))] = j;
      __syncthreads();
      for (int64_t e = t; matches > 0 && e < slice; e += kThreads) {
        int64_t k;
        const int64_t o = by_inner.Divide(e, &k);
        T* const place = z + (o * size + static_cast<int64_t>(index)) * inner + k;
        auto sum = static_cast<Sum<T>>(*place);
        for (int m = 0; m < matches; ++m) {
          sum += static_cast<Sum<T>>(updates[(o * count + mine[m]) * inner + k]);
        }
        *place = static_cast<T>(sum);
      }
      __syncthreads();
    }
  }
}

template <typename T>
void RunScatterAdd(const KernelCall& call) {
  const TensorRef& updates = call.inputs[0];
  const TensorRef& indices = call.inputs[1];
  const TensorRef& z = call.outputs[0];
  const AxisSplit split(z, call.attrs<AxisAttributes>().axis);
  const int64_t count = indices.NumElements(), slice = split.outer * split.inner;
  if (count == 0 || slice == 0) return;
  const Queue queue = QueueOf(call);
  VisitIndexType(indices.dtype, [&](auto type) {
    using Index = decltype(type);
    Launch(AddSlices<T, Index>, queue.Blocks(count * kThreads, kThreads), kThreads, 0, queue.stream,
           updates.as<const T>(), indices.as<const Index>(), z.as<T>(), count, split.size,
           split.inner, slice, Divider(split.inner, slice), ValueCheckOf(call, split.size));
  });
}

const bool registered = [] {
  AddKernel(OpCode::kScatterAdd, DType::kFloat32, &RunScatterAdd<float>);
  AddKernel(OpCode::kScatterAdd, DType::kFloat64, &RunScatterAdd<double>);
  AddKernel(OpCode::kScatterAdd, DType::kInt32, &RunScatterAdd<int32_t>);
  AddKernel(OpCode::kScatterAdd, DType::kInt64, &RunScatterAdd<int64_t>);
  return true;
}();

}  // namespace
}  // namespace tidepool::cuda
