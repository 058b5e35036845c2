// Products of matrices that are not in memory but gathered: implicit GEMM (Chetlur et al. 2014).
//
// A block makes a tile of the product, kMicro x kMicro elements a thread, from slices of kDepth that
// pass through shared memory while the next ones are on their way to registers. A problem is a struct:
//
//   using Left = ...;   what a row of the left matrix needs to be known of; Right: a column of the right
//   using LeftDepth, RightDepth = ...;  what an index of the summed axis does
//   kLeftAlongDepth, kRightAlongDepth: neighbours along the summed axis lie side by side in memory
//   int64_t rows, columns, depth;  of each group
//   Left FindLeft(int group, int64_t row) const;    any row; beyond the last all loads give 0
//   LeftDepth FindLeftDepth(int group, int64_t k) const;  k < depth
//   W LoadLeft(const Left&, const LeftDepth&) const;      likewise of the right
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
};

// Where this thread loads: place in the slice, and rows (or columns) place + kSide * u.
template <bool kAlongDepth>
struct LoadPlace {
  int depth, place;
  __device__ __forceinline__ explicit LoadPlace(int t)
      : depth(kAlongDepth ? t % kDepth : t / kSide), place(kAlongDepth ? t / kDepth : t % kSide) {}
};

// A thread's elements come in runs of four side by side, which shared memory gives in one access.
__device__ __forceinline__ int MicroPlace(int thread, int u) {
  return u / 4 * (4 * kSide) + thread * 4 + u % 4;
}

template <typename Problem, int kMicro>
__global__ void __launch_bounds__(kSide* kSide) TiledProduct(Problem p, ProductTiles tiles) {
  using W = typename Problem::W;
  constexpr int kTile = kSide * kMicro;
  constexpr int kPitch = kTile + 4;  // spreads columns of a slice over the banks
  struct alignas(16) Slice {
    W at[kDepth][kPitch];
  };
  __shared__ Slice left, right;
  const int t = static_cast<int>(threadIdx.x);
  const int tx = t % kSide, ty = t / kSide;
  const LoadPlace<Problem::kLeftAlongDepth> l(t);
  const LoadPlace<Problem::kRightAlongDepth> r(t);

  for (int64_t tile = blockIdx.x; tile < tiles.count(); tile += gridDim.x) {
    int64_t rest = tile / tiles.column_tiles;
    const int64_t first_column = (tile - rest * tiles.column_tiles) * kTile;
    int64_t next = rest / tiles.row_tiles;
    const int64_t first_row = (rest - next * tiles.row_tiles) * kTile;
    const int64_t split = next / tiles.groups;
    const int group = static_cast<int>(next - split * tiles.groups);
    const int64_t begin = split * tiles.chunk, end = min(p.depth, begin + tiles.chunk);

    typename Problem::Left lefts[kMicro];
    typename Problem::Right rights[kMicro];
    for (int u = 0; u < kMicro; ++u) {
      lefts[u] = p.FindLeft(group, first_row + l.place + kSide * u);
      rights[u] = p.FindRight(group, first_column + r.place + kSide * u);
    }
    W left_next[kMicro], right_next[kMicro], sums[kMicro][kMicro] = {};
    auto load = [&](int64_t k0) {
      const int64_t lk = k0 + l.depth, rk = k0 + r.depth;
      const auto left_depth = p.FindLeftDepth(group, min(lk, end - 1));
      const auto right_depth = p.FindRightDepth(group, min(rk, end - 1));
      for (int u = 0; u < kMicro; ++u) {
        left_next[u] = lk < end ? p.LoadLeft(lefts[u], left_depth) : W{0};
        right_next[u] = rk < end ? p.LoadRight(rights[u], right_depth) : W{0};
      }
    };
    if (begin < end) load(begin);
    for (int64_t k0 = begin; k0 < end; k0 += kDepth) {
      __syncthreads();  // the slice before has been used
      for (int u = 0; u < kMicro; ++u) {
        left.at[l.depth][l.place + kSide * u] = left_next[u];
        right.at[r.depth][r.place + kSide * u] = right_next[u];
      }
      __syncthreads();
      if (k0 + kDepth < end) load(k0 + kDepth);
#if !defined(TIDEPOOL_CUDA_EMULATED)
#pragma unroll
#endif
      for (int k = 0; k < kDepth; ++k) {
        W a[kMicro], b[kMicro];
        for (int u = 0; u < kMicro; ++u) {
          a[u] = left.at[k][MicroPlace(ty, u)];
          b[u] = right.at[k][MicroPlace(tx, u)];
        }
        for (int i = 0; i < kMicro; ++i) {
          for (int j = 0; j < kMicro; ++j) sums[i][j] += a[i] * b[j];
        }
      }
    }
    for (int i = 0; i < kMicro; ++i) {
      const int64_t row = first_row + MicroPlace(ty, i);
      if (row >= p.rows) continue;
      for (int j = 0; j < kMicro; ++j) {
        const int64_t column = first_column + MicroPlace(tx, j);
        if (column < p.columns) p.Store(group, split, row, column, sums[i][j]);
      }
    }
  }
}

// Of a product of these sizes: side of the tiles and parts of the summed axis. The same on every
// device. `splits_at_most` above 1 allows parts.
struct ProductPlan {
  bool large = false;  // tiles of 128 instead of 64
  ProductTiles tiles;

  static ProductPlan Of(int64_t rows, int64_t columns, int64_t depth, int64_t groups,
                        int64_t splits_at_most, bool may_be_large) {
    constexpr int64_t kWantedTiles = 256, kLeastDepth = 256;
    auto ceil = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
    ProductPlan plan;
    plan.large = may_be_large && columns > 64 && rows > 64 &&
                 ceil(rows, 128) * ceil(columns, 128) * groups >= kWantedTiles;
    const int64_t side = plan.large ? 128 : 64;
    ProductTiles& tiles = plan.tiles;
    tiles.row_tiles = ceil(rows, side);
    tiles.column_tiles = ceil(columns, side);
    tiles.groups = groups;
    const int64_t blocks = std::max<int64_t>(1, tiles.count());
    const int64_t splits = std::clamp<int64_t>(kWantedTiles / blocks, 1,
                                               std::clamp<int64_t>(depth / kLeastDepth, 1, splits_at_most));
    tiles.chunk = std::max<int64_t>(1, ceil(ceil(depth, splits), kDepth) * kDepth);
    tiles.splits = std::max<int64_t>(1, ceil(depth, tiles.chunk));
    return plan;
  }
};

template <typename Problem>
void LaunchProduct(const Problem& problem, const ProductPlan& plan, cudaStream_t stream) {
  if (problem.rows == 0 || problem.columns == 0 || plan.tiles.groups == 0) return;
  constexpr bool kMayBeLarge = sizeof(typename Problem::W) == 4;
  const dim3 blocks = BlocksFor(plan.tiles.count(), 1, 1 << 20);
  if constexpr (kMayBeLarge) {
    if (plan.large) {
      Launch(TiledProduct<Problem, 8>, blocks, kSide * kSide, 0, stream, problem, plan.tiles);
      return;
    }
  }
  Launch(TiledProduct<Problem, 4>, blocks, kSide * kSide, 0, stream, problem, plan.tiles);
}

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_CONVOLUTION_TILED_PRODUCT_H_
