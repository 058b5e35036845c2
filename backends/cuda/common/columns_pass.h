// Elementwise passes over dense [rows, columns] with numbers that belong to columns: a thread keeps those of
// its columns, 16 bytes side by side, in registers and goes through rows.
//
//   struct Scale {                       // passed by value
//     using Element = float;
//     static constexpr int kInputs = 1;
//     const float* in[kInputs];
//     float* out;
//     struct Column { float factor; };
//     Column Begin(int64_t column) const;
//     float Apply(const Column& c, float x) const;
//   };
//   PassOverColumns(Scale{...}, rows, columns, stream);
#ifndef TIDEPOOL_BACKENDS_CUDA_COMMON_COLUMNS_PASS_H_
#define TIDEPOOL_BACKENDS_CUDA_COMMON_COLUMNS_PASS_H_

#include <algorithm>
#include <cstdint>
#include <utility>

#include "cuda_runtime.h"
#include "tidepool/backends/cuda/common/access.h"
#include "tidepool/backends/cuda/common/slots.h"
#include "tidepool/backends/cuda/runtime/launch.h"

namespace tidepool::cuda {

// A block's threads side by side, a power of two, and the rows of each block.
struct ColumnTiles {
  int64_t rows, columns, chunk;
  int side_by_side;
};

template <int kWidth, typename Op, size_t... I>
__device__ __forceinline__ void ApplyToColumns(std::index_sequence<I...>, const Op& op,
                                               const ColumnTiles& tiles) {
  using T = typename Op::Element;
  constexpr int kRows = 4 / Op::kInputs;  // under way
  const int lanes = kBlockThreads / tiles.side_by_side;
  const int lane = static_cast<int>(threadIdx.x) / tiles.side_by_side;
  const int64_t at = static_cast<int64_t>(blockIdx.x) * tiles.side_by_side +
                     (threadIdx.x & (tiles.side_by_side - 1));
  const int64_t first = at * kWidth;
  if (first >= tiles.columns) return;
  const bool aligned = kWidth > 1 && IsAligned(op.out) && (IsAligned(op.in[I]) && ...);
  typename Op::Column column[kWidth];
#pragma unroll
  for (int u = 0; u < kWidth; ++u) column[u] = op.Begin(first + u);
  auto store = [&](int64_t i, const Vector<T, kWidth>(&in)[Op::kInputs]) {
    Vector<T, kWidth> out;
#pragma unroll
    for (int u = 0; u < kWidth; ++u) out.lane[u] = op.Apply(column[u], in[I].lane[u]...);
    StoreAccess(op.out + i, aligned, out);
  };
  const int64_t begin = blockIdx.y * tiles.chunk, end = min(tiles.rows, begin + tiles.chunk);
  int64_t row = begin + lane;
  for (; row + (kRows - 1) * lanes < end; row += kRows * lanes) {
    Vector<T, kWidth> in[kRows][Op::kInputs];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int64_t i = (row + r * lanes) * tiles.columns + first;
      ((in[r][I] = LoadAccess<kWidth>(op.in[I] + i, aligned)), ...);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) store((row + r * lanes) * tiles.columns + first, in[r]);
  }
  for (; row < end; row += lanes) {
    const int64_t i = row * tiles.columns + first;
    const Vector<T, kWidth> in[] = {LoadAccess<kWidth>(op.in[I] + i, aligned)...};
    store(i, in);
  }
}

template <int kWidth, typename Op>
__global__ void __launch_bounds__(kBlockThreads) ColumnsPassKernel(Op op, ColumnTiles tiles) {
  ApplyToColumns<kWidth>(std::make_index_sequence<Op::kInputs>(), op, tiles);
}

template <typename Op>
void PassOverColumns(const Op& op, int64_t rows, int64_t columns, cudaStream_t stream) {
  if (rows == 0 || columns == 0) return;
  constexpr int kWidth = kAccessWidth<typename Op::Element>;
  constexpr int64_t kWantedBlocks = 2112;  // 16 for each multiprocessor of an H100
  const bool wide = columns % kWidth == 0;
  const int64_t accesses = wide ? columns / kWidth : columns;
  ColumnTiles tiles{rows, columns, 0, 1};
  while (tiles.side_by_side < 32 && tiles.side_by_side < accesses) tiles.side_by_side *= 2;
  const int64_t lanes = kBlockThreads / tiles.side_by_side;
  const int64_t across = (accesses + tiles.side_by_side - 1) / tiles.side_by_side;
  // Rows that pay for reading the columns' numbers, in blocks that a grid has room for.
  const int64_t most = std::clamp<int64_t>(rows / (8 * lanes), 1, 65535);
  const int64_t parts = std::clamp<int64_t>((kWantedBlocks + across - 1) / across, 1, most);
  tiles.chunk = (rows + parts - 1) / parts;
  const dim3 blocks(static_cast<unsigned>(across),
                    static_cast<unsigned>((rows + tiles.chunk - 1) / tiles.chunk));
  if (wide) {
    Launch(ColumnsPassKernel<kWidth, Op>, blocks, kBlockThreads, 0, stream, op, tiles);
  } else {
    Launch(ColumnsPassKernel<1, Op>, blocks, kBlockThreads, 0, stream, op, tiles);
  }
}

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_COMMON_COLUMNS_PASS_H_
