// Products of matrices that are not in memory but gathered: implicit GEMM (Chetlur et al. 2014).
//
// A block makes a tile of the product, kRows x kColumns elements a thread, from slices of kDepth that
// pass through shared memory while the next ones are on their way to registers. A problem is a struct:
//
//   using Element = ...;  of both matrices
//   kFewRows: its tiles may have fewer rows than columns; else fewer columns than rows
//   using Left = ...;   what a row of the left matrix needs to be known of; Right: a column of the right
//   using LeftDepth, RightDepth = ...;  what an index of the summed axis does
//   kLeftAlongDepth, kRightAlongDepth: neighbours along the summed axis lie side by side in memory
//   int64_t rows, columns, depth;  of each group
//   Left FindLeft(int group, int64_t row) const;    any row; beyond the last all elements are 0
//   LeftDepth FindLeftDepth(int group, int64_t k) const;  k < depth
//   const Element* AtLeft(const Left&, const LeftDepth&) const;  null where it is 0; likewise of the right
//   void Store(int group, int64_t split, int64_t row, int64_t column, W value) const;
//
// The summed axis may be cut in parts, which are stored apart. Sums have a fixed order.
#ifndef TIDEPOOL_BACKENDS_CUDA_CONVOLUTION_TILED_PRODUCT_H_
#define TIDEPOOL_BACKENDS_CUDA_CONVOLUTION_TILED_PRODUCT_H_

#include <algorithm>
#include <cstdint>

#include "tidepool/backends/cuda/common/element.h"
#include "tidepool/backends/cuda/runtime/launch.h"

namespace tidepool::cuda {

inline constexpr int kSide = 16;   // threads along each side of a tile
inline constexpr int kDepth = 16;  // of a slice

struct ProductTiles {
  int64_t row_tiles = 1, column_tiles = 1, groups = 1, splits = 1;
  int64_t chunk = 1;  // of the summed axis, for a split
  __host__ __device__ int64_t count() const { return row_tiles * column_tiles * groups * splits; }

  struct Place {
    int64_t row_tile, column_tile, split;
    int group;
  };
  __device__ __forceinline__ Place Find(int64_t tile) const {
    Place at;
    int64_t rest = tile / column_tiles;
    at.column_tile = tile - rest * column_tiles;
    const int64_t next = rest / row_tiles;
    at.row_tile = rest - next * row_tiles;
    at.split = next / groups;
    at.group = static_cast<int>(next - at.split * groups);
    return at;
  }
};

// Where this thread loads: place in the slice, and rows (or columns) place + kSide * u.
template <bool kAlongDepth>
struct LoadPlace {
  int depth, place;
  __device__ __forceinline__ explicit LoadPlace(int t)
      : depth(kAlongDepth ? t % kDepth : t / kSide), place(kAlongDepth ? t / kDepth : t % kSide) {}
};

// A thread's elements come in runs of four (or two) side by side, which shared memory gives in one access.
template <int kMicro>
__device__ __forceinline__ int MicroPlace(int thread, int u) {
  constexpr int kRun = kMicro < 4 ? kMicro : 4;
  return u / kRun * (kRun * kSide) + thread * kRun + u % kRun;
}

template <typename Problem, int kRows, int kColumns>
__global__ void __launch_bounds__(kSide* kSide) TiledProduct(Problem p, ProductTiles tiles) {
  using W = typename Problem::W;
  constexpr int kTileRows = kSide * kRows, kTileColumns = kSide * kColumns;
  // Four more spread columns of a slice over the banks.
  struct alignas(16) Left {
    W at[kDepth][kTileRows + 4];
  };
  struct alignas(16) Right {
    W at[kDepth][kTileColumns + 4];
  };
  __shared__ Left left;
  __shared__ Right right;
  const int t = static_cast<int>(threadIdx.x);
  const int tx = t % kSide, ty = t / kSide;
  const LoadPlace<Problem::kLeftAlongDepth> l(t);
  const LoadPlace<Problem::kRightAlongDepth> r(t);

  for (int64_t tile = blockIdx.x; tile < tiles.count(); tile += gridDim.x) {
    const ProductTiles::Place at = tiles.Find(tile);
    const int64_t first_row = at.row_tile * kTileRows, first_column = at.column_tile * kTileColumns;
    const int64_t split = at.split;
    const int group = at.group;
    const int64_t begin = split * tiles.chunk, end = min(p.depth, begin + tiles.chunk);

    typename Problem::Left lefts[kRows];
    typename Problem::Right rights[kColumns];
    for (int u = 0; u < kRows; ++u) lefts[u] = p.FindLeft(group, first_row + l.place + kSide * u);
    for (int u = 0; u < kColumns; ++u)
      rights[u] = p.FindRight(group, first_column + r.place + kSide * u);
    W left_next[kRows], right_next[kColumns], sums[kRows][kColumns] = {};
    auto load = [&](int64_t k0) {
      const int64_t lk = k0 + l.depth, rk = k0 + r.depth;
      const auto left_depth = p.FindLeftDepth(group, min(lk, end - 1));
      const auto right_depth = p.FindRightDepth(group, min(rk, end - 1));
      for (int u = 0; u < kRows; ++u) {
        const auto* const from = lk < end ? p.AtLeft(lefts[u], left_depth) : nullptr;
        left_next[u] = from != nullptr ? Wide(*from) : W{0};
      }
      for (int u = 0; u < kColumns; ++u) {
        const auto* const from = rk < end ? p.AtRight(rights[u], right_depth) : nullptr;
        right_next[u] = from != nullptr ? Wide(*from) : W{0};
      }
    };
    if (begin < end) load(begin);
    for (int64_t k0 = begin; k0 < end; k0 += kDepth) {
      __syncthreads();  // the slice before has been used
      for (int u = 0; u < kRows; ++u) left.at[l.depth][l.place + kSide * u] = left_next[u];
      for (int u = 0; u < kColumns; ++u) right.at[r.depth][r.place + kSide * u] = right_next[u];
      __syncthreads();
      if (k0 + kDepth < end) load(k0 + kDepth);
#if !defined(TIDEPOOL_CUDA_EMULATED)
#pragma unroll
#endif
      for (int k = 0; k < kDepth; ++k) {
        W a[kRows], b[kColumns];
        for (int u = 0; u < kRows; ++u) a[u] = left.at[k][MicroPlace<kRows>(ty, u)];
        for (int u = 0; u < kColumns; ++u) b[u] = right.at[k][MicroPlace<kColumns>(tx, u)];
        for (int i = 0; i < kRows; ++i) {
          for (int j = 0; j < kColumns; ++j) sums[i][j] += a[i] * b[j];
        }
      }
    }
    for (int i = 0; i < kRows; ++i) {
      const int64_t row = first_row + MicroPlace<kRows>(ty, i);
      if (row >= p.rows) continue;
      for (int j = 0; j < kColumns; ++j) {
        const int64_t column = first_column + MicroPlace<kColumns>(tx, j);
        if (column < p.columns) p.Store(group, split, row, column, sums[i][j]);
      }
    }
  }
}

// Elements of a thread along each side of a tile.
struct TileShape {
  int rows, columns;
};
// Tall ones; those of problems with few rows lie on their side. The last is the one of f64.
inline constexpr TileShape kTileShapes[] = {{8, 8}, {8, 4}, {8, 2}, {4, 4}};

inline constexpr int64_t kMultiprocessors = 128;  // that plans are made for, whatever the device

// Tiles of high x wide elements, parts of the summed axis in whole slices.
inline ProductTiles TilesOf(int64_t rows, int64_t columns, int64_t depth, int64_t groups,
                            int64_t high, int64_t wide, int64_t splits_at_most, int64_t slice) {
  constexpr int64_t kLeastDepth = 256;
  auto ceil = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  ProductTiles tiles;
  tiles.row_tiles = ceil(rows, high);
  tiles.column_tiles = ceil(columns, wide);
  tiles.groups = groups;
  const int64_t blocks = std::max<int64_t>(1, tiles.count());
  const int64_t splits =
      std::clamp<int64_t>(2 * kMultiprocessors / blocks, 1,
                          std::clamp<int64_t>(depth / kLeastDepth, 1, splits_at_most));
  tiles.chunk = std::max<int64_t>(1, ceil(ceil(depth, splits), slice) * slice);
  tiles.splits = std::max<int64_t>(1, ceil(depth, tiles.chunk));
  return tiles;
}
// Of blocks, as many at a time as there are multiprocessors.
inline int64_t WavesOf(const ProductTiles& tiles) {
  return (tiles.count() + kMultiprocessors - 1) / kMultiprocessors;
}

// Of a product of these sizes: shape of the tiles and parts of the summed axis, by an estimate of the time on
// kMultiprocessors. The same on every device, as sums' order depends on it. `splits_at_most` above 1 allows parts.
struct ProductPlan {
  int shape = 3;  // of kTileShapes
  ProductTiles tiles;

  static ProductPlan Of(int64_t rows, int64_t columns, int64_t depth, int64_t groups,
                        int64_t splits_at_most, bool only_last, bool few_rows) {
    ProductPlan best;
    int64_t least = -1;
    for (int shape = only_last ? 3 : 0; shape < 4; ++shape) {
      const TileShape tall = kTileShapes[shape];
      const int64_t high = few_rows ? tall.columns : tall.rows,
                    wide = few_rows ? tall.rows : tall.columns;
      const ProductTiles tiles =
          TilesOf(rows, columns, depth, groups, kSide * high, kSide * wide, splits_at_most, kDepth);
      // Products, and what brings operands to registers: about two products' time each.
      const int64_t time = WavesOf(tiles) * tiles.chunk * (high * wide + 2 * (high + wide));
      if (least >= 0 && time >= least) continue;
      least = time;
      best = {shape, tiles};
    }
    return best;
  }
};

template <typename Problem, int kShape>
void LaunchShape(const Problem& problem, const ProductPlan& plan, cudaStream_t stream) {
  constexpr TileShape kTall = kTileShapes[kShape];
  constexpr int kRows = Problem::kFewRows ? kTall.columns : kTall.rows;
  constexpr int kColumns = Problem::kFewRows ? kTall.rows : kTall.columns;
  Launch(TiledProduct<Problem, kRows, kColumns>, BlocksFor(plan.tiles.count(), 1, 1 << 20),
         kSide * kSide, 0, stream, problem, plan.tiles);
}

template <typename Problem>
void LaunchProduct(const Problem& problem, const ProductPlan& plan, cudaStream_t stream) {
  if (problem.rows == 0 || problem.columns == 0 || plan.tiles.groups == 0) return;
  if constexpr (sizeof(typename Problem::W) == 4) {
    if (plan.shape == 0) return LaunchShape<Problem, 0>(problem, plan, stream);
    if (plan.shape == 1) return LaunchShape<Problem, 1>(problem, plan, stream);
    if (plan.shape == 2) return LaunchShape<Problem, 2>(problem, plan, stream);
  }
  LaunchShape<Problem, 3>(problem, plan, stream);
}

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_CONVOLUTION_TILED_PRODUCT_H_
