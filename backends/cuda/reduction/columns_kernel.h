// Reductions of columns: a thread makes the outputs of 16 bytes side by side, and has 64 bytes of four rows
// under way. What operators are: reduce_kernel.h.
#ifndef TIDEPOOL_BACKENDS_CUDA_REDUCTION_COLUMNS_KERNEL_H_
#define TIDEPOOL_BACKENDS_CUDA_REDUCTION_COLUMNS_KERNEL_H_

#include <cstdint>
#include <type_traits>

#include "tidepool/backends/cuda/common/access.h"
#include "tidepool/backends/cuda/common/block_tree.h"
#include "tidepool/backends/cuda/reduction/reduce_plan.h"

namespace tidepool::cuda {

struct NoContext {};

// Elements side by side that the operator takes at a time; 1: it does not.
template <typename Op>
constexpr int RunWidth() {
  if constexpr (requires { Op::kRunWidth; }) {
    return Op::kRunWidth;
  } else if constexpr (requires { typename Op::Element; }) {
    return kAccessWidth<typename Op::Element>;
  } else {
    return 1;
  }
}
template <typename Op>
inline constexpr int kRunWidth = RunWidth<Op>();

// Whether runs at offset x, and at a multiple of their width from there, may be read by 16 bytes.
template <typename Op>
__device__ __forceinline__ bool RunIsAligned(const Op& op, int64_t x) {
  if constexpr (requires { Op::kRunWidth; }) {
    return op.IsAligned(x);
  } else {
    return IsAligned(op.x + x);
  }
}
template <typename Op>
__device__ __forceinline__ void LoadRun(const Op& op, int64_t x, int64_t index, bool aligned,
                                        typename Op::Value (&values)[kRunWidth<Op>]) {
  if constexpr (requires { Op::kRunWidth; }) {
    op.LoadRun(x, index, aligned, values);
  } else {
    const auto access = LoadAccess<kRunWidth<Op>>(op.x + x, aligned);
#pragma unroll
    for (int u = 0; u < kRunWidth<Op>; ++u) values[u] = access.lane[u];
  }
}

// Slots lie side by side: a slot is kRunWidth outputs, its lanes take every n-th row.
template <typename Op>
__global__ void __launch_bounds__(kBlockThreads)
    ColumnsKernel(Op op, ReducePlan plan, typename Op::State* partials) {
  using State = typename Op::State;
  constexpr int kWidth = kRunWidth<Op>, kRows = 4;
  // Columns whose states are in shared memory at a time.
  constexpr int kShared = kBlockThreads * kWidth * sizeof(State) <= 16384
                              ? kWidth
                              : 16384 / (kBlockThreads * sizeof(State));
  static_assert(kShared > 0 && kWidth % kShared == 0);
  __shared__ State shared[kShared][kBlockThreads];
  const SlotThread at(plan.slots);
  const int t = static_cast<int>(threadIdx.x);
  const int64_t stride = plan.reduced.x_strides[0], z_stride = plan.kept.z_strides[0];
  const int64_t begin = blockIdx.y * plan.chunk, end = min(plan.count, begin + plan.chunk);
  for (int64_t base = static_cast<int64_t>(blockIdx.x) * at.slots * kWidth; base < plan.outputs;
       base += static_cast<int64_t>(gridDim.x) * at.slots * kWidth) {
    const int64_t first = min(base + at.slot * kWidth, plan.outputs - kWidth);
    typename Op::Context context[kWidth];
    State state[kWidth];
#pragma unroll
    for (int u = 0; u < kWidth; ++u) {
      context[u] = op.Begin(first + u, first + u);
      state[u] = op.Init();
    }
    auto add = [&](const typename Op::Value(&values)[kWidth], int64_t row) {
#pragma unroll
      for (int u = 0; u < kWidth; ++u) op.Add(context[u], values[u], row, &state[u]);
    };
    // Rows in their order either way; what lies off 16 bytes is not worth loads under way.
    auto add_rows = [&](auto is_aligned) {
      constexpr bool kAligned = is_aligned();
      int64_t row = begin + at.lane;
      if constexpr (kAligned) {
        for (; row + (kRows - 1) * at.lanes < end; row += kRows * at.lanes) {
          typename Op::Value values[kRows][kWidth];
#pragma unroll
          for (int r = 0; r < kRows; ++r) {
            const int64_t i = row + r * at.lanes;
            LoadRun(op, first + i * stride, i, true, values[r]);
          }
#pragma unroll
          for (int r = 0; r < kRows; ++r) add(values[r], row + r * at.lanes);
        }
      }
      for (; row < end; row += at.lanes) {
        typename Op::Value values[kWidth];
        LoadRun(op, first + row * stride, row, kAligned, values);
        add(values, row);
      }
    };
    if (RunIsAligned(op, first)) {
      add_rows(std::true_type());
    } else {
      add_rows(std::false_type());
    }
    // Each lane merges some of its slot's columns, lane after lane.
#pragma unroll
    for (int from = 0; from < kWidth; from += kShared) {
      __syncthreads();  // of an earlier use
#pragma unroll
      for (int u = 0; u < kShared; ++u) shared[u][t] = state[from + u];
      __syncthreads();
      for (int u = at.lane; u < kShared; u += at.lanes) {
        const int64_t output = base + at.slot * kWidth + from + u;
        if (output >= plan.outputs) break;
        State merged = shared[u][at.slot];
        for (int lane = 1; lane < at.lanes; ++lane) {
          merged = op.Merge(merged, shared[u][lane * at.slots + at.slot]);
        }
        if (partials != nullptr) {
          partials[blockIdx.y * plan.outputs + output] = merged;
        } else {
          op.Finish(op.Begin(output, output), output, output * z_stride, merged);
        }
      }
    }
  }
}

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_REDUCTION_COLUMNS_KERNEL_H_
