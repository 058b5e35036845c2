// The kernel of all reductions, for .cu files. An operator is a struct, passed to the device by value:
//
//   using State = ...;    what some elements give; without constructors
//   using Context = ...;  what an output's elements share
//   using Value = ...;    an element
//   Context Begin(int64_t output, int64_t x) const;  x: offset of its first element
//   State Init() const;
//   Value Load(const Context&, int64_t x, int64_t index) const;  element `index` of the output
//   void Add(const Context&, Value, int64_t index, State*) const;
//   State Merge(const State& a, const State& b) const;
//   void Finish(const Context&, int64_t output, int64_t z, const State&) const;  writes it
//
// Operators that read X alone also have `using Element = T` and a pointer `x` to it.
//
// Which elements a thread adds and in which order states are merged is fixed by the plan.
#ifndef TIDEPOOL_BACKENDS_CUDA_REDUCTION_REDUCE_KERNEL_H_
#define TIDEPOOL_BACKENDS_CUDA_REDUCTION_REDUCE_KERNEL_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tidepool/backends/cuda/common/block_tree.h"
#include "tidepool/backends/cuda/common/cuda_kernel.h"
#include "tidepool/backends/cuda/common/element.h"
#include "tidepool/backends/cuda/reduction/reduce_plan.h"
#include "tidepool/backends/cuda/runtime/launch.h"

namespace tidepool::cuda {

struct NoContext {};

// Offsets of element `index` of some axes.
__device__ __forceinline__ void FindOffsets(const ReduceAxes& axes, int64_t index, int64_t* x,
                                            int64_t* z) {
  if (axes.rank == 1) {
    *x = index * axes.x_strides[0];
    *z = index * axes.z_strides[0];
    return;
  }
  int64_t x_offset = 0, z_offset = 0;
  for (int i = axes.rank - 1; i >= 0; --i) {
    const int64_t rest = Quotient(index, axes.dims[i]), at = index - rest * axes.dims[i];
    x_offset += at * axes.x_strides[i];
    z_offset += at * axes.z_strides[i];
    index = rest;
  }
  *x = x_offset;
  *z = z_offset;
}
__device__ __forceinline__ int64_t FindOffset(const ReduceAxes& axes, int64_t index) {
  int64_t x, z;
  FindOffsets(axes, index, &x, &z);
  return x;
}

// Adds elements [begin, end) of a dense row in runs of 16 bytes. The same elements in the same order
// whether or not the row is aligned for accesses of that width.
template <typename Op>
__device__ __forceinline__ void AddRuns(const Op& op, const typename Op::Context& context,
                                        const SlotThread& at, int64_t x, int64_t begin, int64_t end,
                                        typename Op::State* state) {
  using T = typename Op::Element;
  constexpr int kRun = 16 / sizeof(T);
  using Run = Vector<T, kRun>;
  const T* const row = op.x + x;
  const int64_t step = at.lanes * kRun;
  int64_t i = begin + at.lane * kRun;
  if (reinterpret_cast<uintptr_t>(row + begin) % sizeof(Run) == 0) {
    auto load = [&](int64_t first) { return *reinterpret_cast<const Run*>(row + first); };
    auto add = [&](const Run& run, int64_t first) {
      for (int u = 0; u < kRun; ++u) op.Add(context, run.lane[u], first + u, state);
    };
    for (; i + step + kRun <= end; i += 2 * step) {
      const Run run = load(i), other = load(i + step);
      add(run, i);
      add(other, i + step);
    }
    if (i + kRun <= end) add(load(i), i);
  } else {
    for (; i + kRun <= end; i += step) {
      for (int u = 0; u < kRun; ++u) op.Add(context, row[i + u], i + u, state);
    }
  }
  for (int64_t j = begin + (end - begin) / kRun * kRun + at.lane; j < end; j += at.lanes) {
    op.Add(context, row[j], j, state);
  }
}

template <typename Op>
__device__ __forceinline__ void AddOneByOne(const Op& op, const typename Op::Context& context,
                                            const SlotThread& at, const ReduceAxes& reduced,
                                            int64_t x, int64_t begin, int64_t end,
                                            typename Op::State* state) {
  constexpr int kAtOnce = 4;  // loads under way before the first is used
  int64_t i = begin + at.lane;
  for (; i + (kAtOnce - 1) * at.lanes < end; i += kAtOnce * at.lanes) {
    typename Op::Value values[kAtOnce];
    for (int u = 0; u < kAtOnce; ++u) {
      const int64_t index = i + u * at.lanes;
      values[u] = op.Load(context, x + FindOffset(reduced, index), index);
    }
    for (int u = 0; u < kAtOnce; ++u) op.Add(context, values[u], i + u * at.lanes, state);
  }
  for (; i < end; i += at.lanes) {
    op.Add(context, op.Load(context, x + FindOffset(reduced, i), i), i, state);
  }
}

template <typename Op>
__global__ void __launch_bounds__(kBlockThreads)
    ReduceKernel(Op op, ReducePlan plan, typename Op::State* partials) {
  using State = typename Op::State;
  __shared__ State shared[kBlockThreads];
  const SlotThread at(plan.slots);
  const int64_t begin = blockIdx.y * plan.chunk;
  const int64_t end = min(plan.count, begin + plan.chunk);
  for (int64_t base = static_cast<int64_t>(blockIdx.x) * at.slots; base < plan.outputs;
       base += static_cast<int64_t>(gridDim.x) * at.slots) {
    const int64_t output = min(base + at.slot, plan.outputs - 1);
    int64_t x = 0, z = 0;
    FindOffsets(plan.kept, output, &x, &z);
    const typename Op::Context context = op.Begin(output, x);
    State state = op.Init();
    bool added = false;
    if constexpr (requires { typename Op::Element; }) {
      if (plan.run > 1) {
        AddRuns(op, context, at, x, begin, end, &state);
        added = true;
      }
    }
    if (!added) AddOneByOne(op, context, at, plan.reduced, x, begin, end, &state);
    state = MergeLanes(at, state, shared,
                       [&](const State& a, const State& b) { return op.Merge(a, b); });
    if (at.lane != 0 || base + at.slot >= plan.outputs) continue;
    if (partials != nullptr) {
      partials[output * plan.splits + blockIdx.y] = state;
    } else {
      op.Finish(context, output, z, state);
    }
  }
}

// A slot per output merges its partial states.
template <typename Op>
__global__ void __launch_bounds__(kBlockThreads)
    MergePartialsKernel(Op op, ReducePlan plan, const typename Op::State* partials) {
  using State = typename Op::State;
  __shared__ State shared[kBlockThreads];
  const SlotThread at(Slots{32, true});
  for (int64_t base = static_cast<int64_t>(blockIdx.x) * at.slots; base < plan.outputs;
       base += static_cast<int64_t>(gridDim.x) * at.slots) {
    const int64_t output = min(base + at.slot, plan.outputs - 1);
    State state = op.Init();
    for (int64_t i = at.lane; i < plan.splits; i += at.lanes) {
      state = op.Merge(state, partials[output * plan.splits + i]);
    }
    state = MergeLanes(at, state, shared,
                       [&](const State& a, const State& b) { return op.Merge(a, b); });
    if (at.lane != 0 || base + at.slot >= plan.outputs) continue;
    int64_t x = 0, z = 0;
    FindOffsets(plan.kept, output, &x, &z);
    op.Finish(op.Begin(output, x), output, z, state);
  }
}

template <typename Op>
size_t ReduceScratchBytes(const ReducePlan& plan) {
  return static_cast<size_t>(plan.partials()) * sizeof(typename Op::State);
}

// `scratch`: ReduceScratchBytes.
template <typename Op>
void Reduce(const Op& op, const ReducePlan& plan, void* scratch, cudaStream_t stream) {
  if (plan.outputs == 0) return;
  constexpr int64_t kMostBlocks = 2048;
  auto* const partials =
      plan.splits > 1 ? static_cast<typename Op::State*>(scratch) : nullptr;
  const dim3 blocks(static_cast<unsigned>(std::min(plan.output_blocks(), kMostBlocks)),
                    static_cast<unsigned>(plan.splits));
  Launch(ReduceKernel<Op>, blocks, kBlockThreads, 0, stream, op, plan, partials);
  if (partials == nullptr) return;
  Launch(MergePartialsKernel<Op>, BlocksFor(plan.outputs, kBlockThreads / 32, kMostBlocks),
         kBlockThreads, 0, stream, op, plan, partials);
}

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_REDUCTION_REDUCE_KERNEL_H_
