// Tiles of 16-bit elements in shared memory and their products by tensor cores, for attention. A block has four
// warps, each with rows of its own; rows are padded by 16 bytes, so that the eight rows of a matrix lie in
// different banks.
#ifndef TIDEPOOL_BACKENDS_CUDA_ATTENTION_HALF_TILES_H_
#define TIDEPOOL_BACKENDS_CUDA_ATTENTION_HALF_TILES_H_

#include <cstdint>

#include "tidepool/backends/cuda/attention/attention_geometry.h"
#include "tidepool/backends/cuda/attention/attention_tiles.h"
#include "tidepool/backends/cuda/common/warp_matrix.h"

namespace tidepool::cuda {

inline constexpr int kHalfPad = 8;

// Rows of kD elements.
template <typename T, int kRows, int kD>
using HalfTile = T[kRows][kD + kHalfPad];

// Rows of a matrix, zeros beyond its `rows` and `columns`: 16 bytes at a time without waiting where rows are
// packed. offset(row): of a row's first element from `data`.
template <int kRows, int kD, typename T, typename Offset>
__device__ __forceinline__ void LoadHalfTile(HalfTile<T, kRows, kD>& to, const T* data,
                                             int64_t column_stride, bool packed, int rows,
                                             int columns, Offset offset) {
  constexpr int kVectors = kD / 8, kStep = kTileThreads / kVectors;
  static_assert(kRows % kStep == 0);
  const int column = static_cast<int>(threadIdx.x) % kVectors * 8;
  const int first = static_cast<int>(threadIdx.x) / kVectors;
  if (packed) {
#pragma unroll
    for (int row = first; row < kRows; row += kStep) {
      const bool real = row < rows && column < columns;
      CopyAsync(&to[row][column], real ? data + offset(row) + column : data, real);
    }
    return;
  }
  for (int row = first; row < kRows; row += kStep) {
    Vector<T, 8> held = {};
    if (row < rows) {
      const T* const from = data + offset(row);
#pragma unroll
      for (int l = 0; l < 8; ++l) {
        if (column + l < columns) held.lane[l] = from[(column + l) * column_stride];
      }
    }
    *reinterpret_cast<Vector<T, 8>*>(&to[row][column]) = held;
  }
}

// Rows of a key head's matrix from `first` on.
template <int kRows, int kD, typename T>
__device__ __forceinline__ void LoadHalfKeys(HalfTile<T, kRows, kD>& to,
                                             const HeadsView<const T>& view,
                                             const BlockGrid::Place& p, int64_t first, int64_t end,
                                             int64_t width) {
  LoadHalfTile<kRows, kD>(
      to, view.data + p.batch * view.batch + p.key_head * view.head + first * view.row, view.column,
      view.packed, static_cast<int>(min(int64_t{kRows}, end - first)), static_cast<int>(width),
      [&](int row) { return row * view.row; });
}

// The same of an operand that has queries, from row `first` of the pair on.
template <int kRows, int kD, typename T>
__device__ __forceinline__ void LoadHalfRows(HalfTile<T, kRows, kD>& to,
                                             const HeadsView<const T>& view,
                                             const AttentionGeometry& g, const BlockGrid::Place& p,
                                             int64_t first, int64_t width) {
  LoadHalfTile<kRows, kD>(to, view.data + p.batch * view.batch + p.key_head * g.group * view.head,
                          view.column, view.packed,
                          static_cast<int>(min(int64_t{kRows}, g.rows - first)),
                          static_cast<int>(width), [&](int row) {
                            int64_t query;
                            const int64_t head = g.HeadOf(first + row, &query);
                            return head * view.head + query * view.row;
                          });
}

// This thread's place in a warp's fragments.
struct LaneThread {
  int warp, lane, g, t;
  __device__ __forceinline__ LaneThread()
      : warp(static_cast<int>(threadIdx.x) / 32),
        lane(static_cast<int>(threadIdx.x) % 32),
        g(lane / 4),
        t(lane % 4) {}
};

// The fragment of A of tile[row ..., column ...].
template <int kPitch, typename T>
__device__ __forceinline__ void LoadLeft(const LaneThread& at, const T (*tile)[kPitch], int row,
                                         int column, uint32_t (&a)[4]) {
  LoadMatrices<false>(a, &tile[row + at.lane % 16][column + at.lane / 16 * 8]);
}

// products[n] += A of step k . rows 8 n ... of `tile`, which are columns of B; for 16 of the summed axis.
template <typename T, int kPitch, int kM, int kN>
__device__ __forceinline__ void AddDotsOfStep(const LaneThread& at, const uint32_t (&a)[kM][4],
                                              const T (*tile)[kPitch], int k,
                                              float (&products)[kM][kN][4]) {
#pragma unroll
  for (int n = 0; n < kN; n += 2) {
    uint32_t b[4];
    LoadMatrices<false>(b, &tile[8 * n + at.lane % 8 + at.lane / 16 * 8][k + at.lane / 8 % 2 * 8]);
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      MultiplyAdd<T>(products[m][n], a[m], b[0], b[1]);
      MultiplyAdd<T>(products[m][n + 1], a[m], b[2], b[3]);
    }
  }
}

// sums[n] += weights . tile, for 16 of its rows from `row` on; the weights are of two neighbouring products.
template <typename T, int kPitch, int kM, int kN>
__device__ __forceinline__ void AddProductOfStep(const LaneThread& at, const uint32_t (&a)[kM][4],
                                                 const T (*tile)[kPitch], int row,
                                                 float (&sums)[kM][kN][4]) {
#pragma unroll
  for (int n = 0; n < kN; n += 2) {
    uint32_t b[4];
    LoadMatrices<true>(b, &tile[row + at.lane % 16][8 * n + at.lane / 16 * 8]);
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      MultiplyAdd<T>(sums[m][n], a[m], b[0], b[1]);
      MultiplyAdd<T>(sums[m][n + 1], a[m], b[2], b[3]);
    }
  }
}

// products += own rows [row, row + 16 kM) . rows of `tile`, over kD columns.
template <int kD, typename T, int kM, int kN>
__device__ __forceinline__ void AddHalfDots(const LaneThread& at, const T (*own)[kD + kHalfPad],
                                            int row, const T (*tile)[kD + kHalfPad],
                                            float (&products)[kM][kN][4]) {
#pragma unroll 4
  for (int k = 0; k < kD; k += 16) {
    uint32_t a[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) LoadLeft(at, own, row + 16 * m, k, a[m]);
    AddDotsOfStep(at, a, tile, k, products);
  }
}

// sums += weights . tile, the weights rounded to T: a product's fragments of C are those of A of the next.
template <int kD, typename T, int kM, int kInner, int kN>
__device__ __forceinline__ void AddHalfProduct(const LaneThread& at,
                                               const float (&weights)[kM][kInner][4],
                                               const T (*tile)[kD + kHalfPad],
                                               float (&sums)[kM][kN][4]) {
#pragma unroll
  for (int n = 0; n < kInner; n += 2) {
    uint32_t a[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      a[m][0] = PackPair<T>(weights[m][n][0], weights[m][n][1]);
      a[m][1] = PackPair<T>(weights[m][n][2], weights[m][n][3]);
      a[m][2] = PackPair<T>(weights[m][n + 1][0], weights[m][n + 1][1]);
      a[m][3] = PackPair<T>(weights[m][n + 1][2], weights[m][n + 1][3]);
    }
    AddProductOfStep(at, a, tile, 8 * n, sums);
  }
}

// Elements 2 half and 2 half + 1 of each of kN fragments, times a factor, to a row; `columns` of it are real.
template <typename T, int kN>
__device__ __forceinline__ void StoreHalfRow(const LaneThread& at, const float (&sums)[kN][4],
                                             int half, float factor, T* to, int64_t column_stride,
                                             bool packed, int columns) {
#pragma unroll
  for (int n = 0; n < kN; ++n) {
    const int column = 8 * n + 2 * at.t;
    const float first = sums[n][2 * half] * factor, second = sums[n][2 * half + 1] * factor;
    if (packed) {
      if (column < columns) *reinterpret_cast<uint32_t*>(to + column) = PackPair<T>(first, second);
    } else {
      if (column < columns) to[column * column_stride] = Narrow<T>(first);
      if (column + 1 < columns) to[(column + 1) * column_stride] = Narrow<T>(second);
    }
  }
}

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_ATTENTION_HALF_TILES_H_
