// Products of tiles in shared memory, for attention in f32 and f64 (and 16-bit elements widened to f32).
//
// A block of 128 threads makes tiles of 64 rows; each of its four warps has 16 of them to itself, so what one
// product leaves in shared memory for the next needs no more than __syncwarp. Of a warp's threads, four stand
// along rows and eight along columns: a load of 16 bytes of every thread is one access to all 32 banks, as
// rows are padded by four elements and neighbouring threads have neighbouring rows.
#ifndef TIDEPOOL_BACKENDS_CUDA_ATTENTION_ATTENTION_TILES_H_
#define TIDEPOOL_BACKENDS_CUDA_ATTENTION_ATTENTION_TILES_H_

#include <algorithm>
#include <cstdint>

#include "tidepool/backends/cuda/attention/attention_geometry.h"

namespace tidepool::cuda {

inline constexpr int kTileThreads = 128;
inline constexpr int kTileRows = 64;
inline constexpr int kPad = 4;
inline constexpr int kMicroRows = 4;      // of a thread
inline constexpr int kColumnThreads = 8;  // of a warp, along columns

template <typename T>
struct alignas(sizeof(T) >= 4 ? 16 : 4 * sizeof(T)) Quad {
  T lane[4];
};

// This thread's rows and columns of a tile.
struct TileThread {
  int warp, ty, tx;
  __device__ __forceinline__ TileThread()
      : warp(static_cast<int>(threadIdx.x) / 32),
        ty(static_cast<int>(threadIdx.x) % 32 / kColumnThreads),
        tx(static_cast<int>(threadIdx.x) % kColumnThreads) {}
  __device__ __forceinline__ int row(int i) const { return warp * 16 + ty + 4 * i; }
  __device__ __forceinline__ int column(int j) const { return tx + kColumnThreads * j; }
  // First of the four columns of an accumulator's quad.
  __device__ __forceinline__ int quad(int u) const { return tx * 4 + 4 * kColumnThreads * u; }
};

// Rows of a matrix into shared memory, zeros beyond its `rows` and `columns`. offset(row): of a row's
// first element from `data`.
template <int kRows, int kD, typename T, typename Offset>
__device__ __forceinline__ void LoadTile(Compute<T> (*to)[kD + kPad], const T* data,
                                         int64_t column_stride, bool packed, int rows, int columns,
                                         Offset offset) {
  constexpr int kQuads = kD / 4, kStep = kTileThreads / kQuads, kSteps = kRows / kStep;
  constexpr int kHeld = kSteps < 4 ? kSteps : 4;  // loads under way at a time
  static_assert(kRows % kStep == 0 && kSteps % kHeld == 0);
  const int column = static_cast<int>(threadIdx.x) % kQuads * 4,
            first = static_cast<int>(threadIdx.x) / kQuads;
#pragma unroll
  for (int s = 0; s < kSteps; s += kHeld) {
    Quad<T> held[kHeld];
#pragma unroll
    for (int u = 0; u < kHeld; ++u) {
      const int row = first + (s + u) * kStep;
      held[u] = Quad<T>{};
      if (row < rows && column < columns) {
        const T* const from = data + offset(row);
        if (packed) {
          held[u] = *reinterpret_cast<const Quad<T>*>(from + column);
        } else {
#pragma unroll
          for (int l = 0; l < 4; ++l) {
            if (column + l < columns) held[u].lane[l] = from[(column + l) * column_stride];
          }
        }
      }
    }
#pragma unroll
    for (int u = 0; u < kHeld; ++u) {
      Quad<Compute<T>> wide;
#pragma unroll
      for (int l = 0; l < 4; ++l) wide.lane[l] = Wide(held[u].lane[l]);
      *reinterpret_cast<Quad<Compute<T>>*>(&to[first + (s + u) * kStep][column]) = wide;
    }
  }
}

// Columns [chunk * kD, ...) of rows from `first` on of a head's matrix.
template <int kRows, int kD, typename T>
__device__ __forceinline__ void LoadKeys(Compute<T> (*to)[kD + kPad],
                                         const HeadsView<const T>& view, const BlockGrid::Place& p,
                                         int64_t first, int64_t end, int chunk, int64_t width) {
  const int64_t column = int64_t{chunk} * kD;
  LoadTile<kRows, kD, T>(
      to,
      view.data + p.batch * view.batch + p.key_head * view.head + first * view.row +
          column * view.column,
      view.column, view.packed, static_cast<int>(min(int64_t{kRows}, end - first)),
      static_cast<int>(min(int64_t{kD}, width - column)), [&](int row) { return row * view.row; });
}

// The same of an operand that has queries, from row `first` of the pair on.
template <int kRows, int kD, typename T>
__device__ __forceinline__ void LoadRows(Compute<T> (*to)[kD + kPad],
                                         const HeadsView<const T>& view, const AttentionGeometry& g,
                                         const BlockGrid::Place& p, int64_t first, int chunk,
                                         int64_t width) {
  const int64_t column = int64_t{chunk} * kD;
  LoadTile<kRows, kD, T>(
      to,
      view.data + p.batch * view.batch + p.key_head * g.group * view.head + column * view.column,
      view.column, view.packed, static_cast<int>(min(int64_t{kRows}, g.rows - first)),
      static_cast<int>(min(int64_t{kD}, width - column)), [&](int row) {
        int64_t query;
        const int64_t head = g.HeadOf(first + row, &query);
        return head * view.head + query * view.row;
      });
}

// products[i][j] += a[row i] . b[column j]
template <int kD, int kColumns, typename W>
__device__ __forceinline__ void AddDots(const TileThread& at, const W (*a)[kD + kPad],
                                        const W (*b)[kD + kPad],
                                        W (&products)[kMicroRows][kColumns / kColumnThreads]) {
  constexpr int kMicro = kColumns / kColumnThreads;
#pragma unroll 1
  for (int k = 0; k < kD; k += 4) {
    Quad<W> of_a[kMicroRows];
#pragma unroll
    for (int i = 0; i < kMicroRows; ++i)
      of_a[i] = *reinterpret_cast<const Quad<W>*>(&a[at.row(i)][k]);
#pragma unroll
    for (int j = 0; j < kMicro; ++j) {
      const Quad<W> of_b = *reinterpret_cast<const Quad<W>*>(&b[at.column(j)][k]);
#pragma unroll
      for (int i = 0; i < kMicroRows; ++i) {
#pragma unroll
        for (int l = 0; l < 4; ++l)
          products[i][j] = Fma(of_a[i].lane[l], of_b.lane[l], products[i][j]);
      }
    }
  }
}

// sums[i][column] += weights[row i] . values[.][column]; kInner of them. A thread's columns come in quads.
template <int kD, int kInner, typename W>
__device__ __forceinline__ void AddProduct(const TileThread& at, const W (*weights)[kInner + kPad],
                                           const W (*values)[kD + kPad],
                                           W (&sums)[kMicroRows][kD / kColumnThreads]) {
#pragma unroll 2
  for (int c = 0; c < kInner; c += 4) {
    Quad<W> weight[kMicroRows];
#pragma unroll
    for (int i = 0; i < kMicroRows; ++i)
      weight[i] = *reinterpret_cast<const Quad<W>*>(&weights[at.row(i)][c]);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int u = 0; u < kD / 32; ++u) {
        const Quad<W> value = *reinterpret_cast<const Quad<W>*>(&values[c + k][at.quad(u)]);
#pragma unroll
        for (int i = 0; i < kMicroRows; ++i) {
#pragma unroll
          for (int l = 0; l < 4; ++l) {
            sums[i][u * 4 + l] = Fma(weight[i].lane[k], value.lane[l], sums[i][u * 4 + l]);
          }
        }
      }
    }
  }
}

// A row of sums, times a factor, to where it lies; `columns` of them are real.
template <int kD, typename T, typename W>
__device__ __forceinline__ void StoreSums(const TileThread& at,
                                          const W (&sums)[kD / kColumnThreads], W factor, T* to,
                                          int64_t column_stride, bool packed, int columns) {
#pragma unroll
  for (int u = 0; u < kD / 32; ++u) {
    Quad<T> quad;
#pragma unroll
    for (int l = 0; l < 4; ++l) quad.lane[l] = Narrow<T>(sums[u * 4 + l] * factor);
    const int column = at.quad(u);
    if (packed) {
      if (column < columns) *reinterpret_cast<Quad<T>*>(to + column) = quad;
    } else {
#pragma unroll
      for (int l = 0; l < 4; ++l) {
        if (column + l < columns) to[(column + l) * column_stride] = quad.lane[l];
      }
    }
  }
}

// What the scores of a row need, in shared memory.
template <typename W, int kRows>
struct RowFacts {
  int64_t mask[kRows];             // offset of its elements
  W log_sum[kRows], delta[kRows];  // for gradients; log_sum to the base of 2
  int visible[kRows];              // keys that it sees
};

template <typename T, int kRows>
__device__ __forceinline__ void FindRows(const AttentionGeometry& g, const BlockGrid::Place& p,
                                         const MaskView<T>& mask, int64_t first,
                                         RowFacts<Compute<T>, kRows>* facts) {
  const int t = static_cast<int>(threadIdx.x);
  if (t >= kRows) return;
  int64_t query = 0;
  const bool real = first + t < g.rows;
  const int64_t head = real ? g.HeadOf(first + t, &query) : 0;
  facts->visible[t] = real ? g.Visible(query) : 0;
  facts->mask[t] =
      p.batch * mask.batch + (p.key_head * g.group + head) * mask.head + query * mask.query;
}

// And for gradients. log_sums and deltas are dense, [pairs, rows]. A row that sees nothing has weights of 0.
template <typename T, int kRows>
__device__ __forceinline__ void FindRowsOfGradient(
    const AttentionGeometry& g, const BlockGrid::Place& p, const MaskView<T>& mask, int64_t first,
    const Compute<T>* log_sums, const Compute<T>* deltas, RowFacts<Compute<T>, kRows>* facts) {
  using W = Compute<T>;
  FindRows(g, p, mask, first, facts);
  const int t = static_cast<int>(threadIdx.x);
  if (t >= kRows) return;
  const bool real = first + t < g.rows;
  facts->log_sum[t] = real ? log_sums[p.pair * g.rows + first + t] : W{0};
  facts->delta[t] = real ? deltas[p.pair * g.rows + first + t] : W{0};
}

// A score times log2(e), -infinity where it is not seen.
template <typename T>
__device__ __forceinline__ Compute<T> MaskedScore(Compute<T> score, const MaskView<T>& mask,
                                                  int64_t row_offset, int64_t key, int visible) {
  using W = Compute<T>;
  if (key >= visible) return -Infinity<W>();
  if (mask.data == nullptr) return score;
  return Fma(Wide(mask.data[row_offset + key * mask.key]), static_cast<W>(kLog2E), score);
}

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_ATTENTION_ATTENTION_TILES_H_
