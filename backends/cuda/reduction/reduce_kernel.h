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
// Operators that read X alone also have `using Element = T` and a pointer `x` to it. Others may say how
// they read kRunWidth elements side by side, from `x` on, of outputs or of one output:
//
//   static constexpr int kRunWidth = ...;
//   bool IsAligned(int64_t x) const;
//   void LoadRun(int64_t x, int64_t index, bool aligned, Value (&values)[kRunWidth]) const;
//
// Operators with kColumns = true make kRunWidth outputs side by side at a time (columns_kernel.h).
//
// Which elements a thread adds and in which order states are merged is fixed by the plan.
#ifndef TIDEPOOL_BACKENDS_CUDA_REDUCTION_REDUCE_KERNEL_H_
#define TIDEPOOL_BACKENDS_CUDA_REDUCTION_REDUCE_KERNEL_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "tidepool/backends/cuda/common/block_tree.h"
#include "tidepool/backends/cuda/common/cuda_kernel.h"
#include "tidepool/backends/cuda/common/element.h"
#include "tidepool/backends/cuda/reduction/columns_kernel.h"
#include "tidepool/backends/cuda/reduction/reduce_plan.h"
#include "tidepool/backends/cuda/runtime/launch.h"

namespace tidepool::cuda {

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
  constexpr int kRun = kRunWidth<Op>, kAtOnce = 4;
  using Value = typename Op::Value;
  const int64_t step = at.lanes * kRun;
  auto add = [&](const Value(&run)[kRun], int64_t first) {
#pragma unroll
    for (int u = 0; u < kRun; ++u) op.Add(context, run[u], first + u, state);
  };
  auto add_runs = [&](auto is_aligned) {
    constexpr bool kAligned = is_aligned();
    int64_t i = begin + at.lane * kRun;
    if constexpr (kAligned) {
      for (; i + (kAtOnce - 1) * step + kRun <= end; i += kAtOnce * step) {
        Value runs[kAtOnce][kRun];
#pragma unroll
        for (int r = 0; r < kAtOnce; ++r)
          LoadRun(op, x + i + r * step, i + r * step, true, runs[r]);
#pragma unroll
        for (int r = 0; r < kAtOnce; ++r) add(runs[r], i + r * step);
      }
    }
    for (; i + kRun <= end; i += step) {
      Value run[kRun];
      LoadRun(op, x + i, i, kAligned, run);
      add(run, i);
    }
  };
  if (RunIsAligned(op, x + begin)) {
    add_runs(std::true_type());
  } else {
    add_runs(std::false_type());
  }
  for (int64_t j = begin + (end - begin) / kRun * kRun + at.lane; j < end; j += at.lanes) {
    op.Add(context, op.Load(context, x + j, j), j, state);
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
    if constexpr (kRunWidth < Op >> 1) {
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
      partials[blockIdx.y * plan.outputs + output] = state;
    } else {
      op.Finish(context, output, z, state);
    }
  }
}

// A slot per output merges its partial states, [splits, outputs].
template <typename Op>
__global__ void __launch_bounds__(kBlockThreads)
    MergePartialsKernel(Op op, ReducePlan plan, Slots slots, const typename Op::State* partials) {
  using State = typename Op::State;
  __shared__ State shared[kBlockThreads];
  const SlotThread at(slots);
  for (int64_t base = static_cast<int64_t>(blockIdx.x) * at.slots; base < plan.outputs;
       base += static_cast<int64_t>(gridDim.x) * at.slots) {
    const int64_t output = min(base + at.slot, plan.outputs - 1);
    State state = op.Init();
#pragma unroll 4
    for (int64_t i = at.lane; i < plan.splits; i += at.lanes) {
      state = op.Merge(state, partials[i * plan.outputs + output]);
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
  auto* const partials = plan.splits > 1 ? static_cast<typename Op::State*>(scratch) : nullptr;
  const dim3 blocks(static_cast<unsigned>(std::min(plan.output_blocks(), kMostBlocks)),
                    static_cast<unsigned>(plan.splits));
  bool by_columns = false;
  if constexpr (requires { requires Op::kColumns; }) by_columns = plan.width > 1;
  if (by_columns) {
    if constexpr (requires { requires Op::kColumns; }) {
      Launch(ColumnsKernel<Op>, blocks, kBlockThreads, 0, stream, op, plan, partials);
    }
  } else {
    Launch(ReduceKernel<Op>, blocks, kBlockThreads, 0, stream, op, plan, partials);
  }
  if (partials == nullptr) return;
  // Neighbouring outputs' states lie side by side.
  const Slots slots = plan.outputs < 16 ? Slots{kBlockThreads, true} : Slots{8, false};
  Launch(MergePartialsKernel<Op>, BlocksFor(plan.outputs, slots.count(), kMostBlocks),
         kBlockThreads, 0, stream, op, plan, slots, partials);
}

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_REDUCTION_REDUCE_KERNEL_H_
