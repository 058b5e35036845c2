// The gradient of attention of f16 and bf16 by tensor cores, heads up to 128 wide. As in attention_grad.cu; weights
// and their gradients go from one product to the next in registers, rounded to 16 bits, and the tiles that a block
// goes through are two: one that is used and one that is on its way.
#include "tidepool/backends/cuda/attention/half_attention.h"
#include "tidepool/backends/cuda/attention/half_tiles.h"

namespace tidepool::cuda {
namespace {

constexpr int kWarpRows = 16;

// `first` has the operands of scores (keys and queries), `second` those of gradients of weights (values and dz).
template <typename T, int kD, int kOther, int kFactRows, int kFactTiles>
struct alignas(16) HalfGradShared {
  HalfTile<T, kTileRows, kD> own_first, own_second;
  HalfTile<T, kOther, kD> other_first[2], other_second[2];
  RowFacts<float, kFactRows> rows[kFactTiles];
};
template <typename T, int kD, int kOther>
using HalfKeysShared = HalfGradShared<T, kD, kOther, kOther, 2>;
template <typename T, int kD, int kOther>
using HalfQueriesShared = HalfGradShared<T, kD, kOther, kTileRows, 1>;

template <typename T, int kD, int kRows>
__global__ void __launch_bounds__(kTileThreads, 2)
    HalfKeysGradKernel(AttentionGradCall<T> b, int64_t first_block) {
  constexpr int kScores = kRows / 8, kSums = kD / 8;
  const AttentionGeometry& g = b.g;
  auto& shared = *DynamicShared<HalfKeysShared<T, kD, kRows>>();
  const LaneThread at;
  const auto p = b.grid.Find(first_block + blockIdx.x, g.key_heads);
  const int64_t first_key = int64_t{p.tile} * kTileRows;
  const int warp_row = at.warp * kWarpRows;
  const float scale = static_cast<float>(g.scale * kLog2E);
  float of_key[1][kSums][4] = {}, of_value[1][kSums][4] = {};

  // The first tile of rows from `first` on some of which see a key of this block.
  const int all_rows = static_cast<int>(g.rows);
  auto next_seen = [&](int first) {
    for (; first < all_rows; first += kRows) {
      int least, most;
      g.VisibleToRows(first, min(int64_t{first} + kRows, g.rows), &least, &most);
      if (most > first_key) break;
    }
    return first;
  };
  auto load = [&](int first, int buffer) {
    if (first < all_rows) {
      LoadHalfRows<kRows, kD>(shared.other_first[buffer], b.query, g, p, first, g.width);
      LoadHalfRows<kRows, kD>(shared.other_second[buffer], b.dz, g, p, first, g.value_width);
      FindRowsOfGradient(g, p, b.mask, first, b.log_sums, b.deltas, &shared.rows[buffer]);
    }
    CommitCopies();
  };
  LoadHalfKeys<kTileRows, kD>(shared.own_first, b.key, p, first_key, g.keys, g.width);
  LoadHalfKeys<kTileRows, kD>(shared.own_second, b.value, p, first_key, g.keys, g.value_width);
  int first = next_seen(0);
  load(first, 0);
  int buffer = 0;
  while (first < all_rows) {
    const int next = next_seen(first + kRows);
    load(next, buffer ^ 1);
    WaitForCopies<1>();
    __syncthreads();  // this tile is there
    const auto& query = shared.other_first[buffer];
    const auto& dz = shared.other_second[buffer];
    const auto& rows = shared.rows[buffer];
    float weights[1][kScores][4] = {}, slopes[1][kScores][4] = {};
    AddHalfDots<kD>(at, shared.own_first, warp_row, query, weights);
    AddHalfDots<kD>(at, shared.own_second, warp_row, dz, slopes);
    int least, most;
    g.VisibleToRows(first, min(int64_t{first} + kRows, g.rows), &least, &most);
    const bool all_seen = b.mask.data == nullptr && first_key + kTileRows <= least;
#pragma unroll
    for (int n = 0; n < kScores; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = 8 * n + 2 * at.t + i;
        const float log_sum = rows.log_sum[row], delta = rows.delta[row];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float score = weights[0][n][2 * half + i] * scale;
          if (!all_seen) {
            score = MaskedScore(score, b.mask, rows.mask[row],
                                first_key + warp_row + at.g + 8 * half, rows.visible[row]);
          }
          const float weight = QuickExp2(score - log_sum);
          weights[0][n][2 * half + i] = weight;
          slopes[0][n][2 * half + i] = weight * (slopes[0][n][2 * half + i] - delta);
        }
      }
    }
    AddHalfProduct<kD>(at, weights, dz, of_value);
    AddHalfProduct<kD>(at, slopes, query, of_key);
    __syncthreads();  // all have used this tile
    first = next;
    buffer ^= 1;
  }
  WaitForCopies<0>();

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t key = first_key + warp_row + at.g + 8 * half;
    if (key >= g.keys) continue;
    auto store = [&](const HeadsView<T>& to, const float(&sums)[kSums][4], float factor,
                     int64_t width) {
      StoreHalfRow(at, sums, half, factor,
                   to.data + p.batch * to.batch + p.key_head * to.head + key * to.row, to.column,
                   to.packed, static_cast<int>(width));
    };
    store(b.dkey, of_key[0], static_cast<float>(g.scale), g.width);
    store(b.dvalue, of_value[0], 1.0f, g.value_width);
  }
}

template <typename T, int kD, int kKeys>
__global__ void __launch_bounds__(kTileThreads, 2)
    HalfQueriesGradKernel(AttentionGradCall<T> b, int64_t first_block) {
  constexpr int kScores = kKeys / 8, kSums = kD / 8;
  const AttentionGeometry& g = b.g;
  auto& shared = *DynamicShared<HalfQueriesShared<T, kD, kKeys>>();
  const auto& rows = shared.rows[0];
  const LaneThread at;
  const auto p = b.grid.Find(first_block + blockIdx.x, g.key_heads);
  const int64_t first_row = int64_t{p.tile} * kTileRows;
  const int warp_row = at.warp * kWarpRows;
  int least, most;
  g.VisibleToRows(first_row, min(first_row + kTileRows, g.rows), &least, &most);
  FindRowsOfGradient(g, p, b.mask, first_row, b.log_sums, b.deltas, &shared.rows[0]);
  const float scale = static_cast<float>(g.scale * kLog2E);
  float sums[1][kSums][4] = {};

  auto load = [&](int first, int buffer) {
    if (first < most) {
      LoadHalfKeys<kKeys, kD>(shared.other_first[buffer], b.key, p, first, g.keys, g.width);
      LoadHalfKeys<kKeys, kD>(shared.other_second[buffer], b.value, p, first, g.keys,
                              g.value_width);
    }
    CommitCopies();
  };
  LoadHalfRows<kTileRows, kD>(shared.own_first, b.query, g, p, first_row, g.width);
  LoadHalfRows<kTileRows, kD>(shared.own_second, b.dz, g, p, first_row, g.value_width);
  load(0, 0);
  int buffer = 0;
  for (int first = 0; first < most; first += kKeys, buffer ^= 1) {
    load(first + kKeys, buffer ^ 1);
    WaitForCopies<1>();
    __syncthreads();  // this tile is there
    float weights[1][kScores][4] = {}, slopes[1][kScores][4] = {};
    AddHalfDots<kD>(at, shared.own_first, warp_row, shared.other_first[buffer], weights);
    AddHalfDots<kD>(at, shared.own_second, warp_row, shared.other_second[buffer], slopes);
    const bool all_seen = b.mask.data == nullptr && first + kKeys <= least;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp_row + at.g + 8 * half;
      const float log_sum = rows.log_sum[row], delta = rows.delta[row];
#pragma unroll
      for (int n = 0; n < kScores; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float score = weights[0][n][2 * half + i] * scale;
          if (!all_seen) {
            score = MaskedScore(score, b.mask, rows.mask[row], first + 8 * n + 2 * at.t + i,
                                rows.visible[row]);
          }
          float& slope = slopes[0][n][2 * half + i];
          slope = QuickExp2(score - log_sum) * (slope - delta);
        }
      }
    }
    AddHalfProduct<kD>(at, slopes, shared.other_first[buffer], sums);
    __syncthreads();  // all have used this tile
  }
  WaitForCopies<0>();

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t row = first_row + warp_row + at.g + 8 * half;
    if (row >= g.rows) continue;
    int64_t query;
    const int64_t head = p.key_head * g.group + g.HeadOf(row, &query);
    const HeadsView<T>& to = b.dquery;
    StoreHalfRow(at, sums[0], half, static_cast<float>(g.scale),
                 to.data + p.batch * to.batch + head * to.head + query * to.row, to.column,
                 to.packed, static_cast<int>(g.width));
  }
}

template <typename T, int kD, int kOther>
void LaunchBackward(AttentionGradCall<T> b, cudaStream_t stream) {
  // The first keys are seen by most queries.
  b.grid = {CeilDiv(b.g.keys, kTileRows), 1, b.g.pairs, false};
  LaunchGrid(HalfKeysGradKernel<T, kD, kOther>, b, kTileThreads,
             sizeof(HalfKeysShared<T, kD, kOther>), stream);
  b.grid = {CeilDiv(b.g.rows, kTileRows), 1, b.g.pairs, b.g.causal};
  LaunchGrid(HalfQueriesGradKernel<T, kD, kOther>, b, kTileThreads,
             sizeof(HalfQueriesShared<T, kD, kOther>), stream);
}

}  // namespace

template <typename T>
void QueueHalfAttentionGrad(const AttentionGradCall<T>& call, cudaStream_t stream) {
  const int64_t widest = std::max(call.g.width, call.g.value_width);
  if (widest <= 32) return LaunchBackward<T, 32, 64>(call, stream);
  if (widest <= 64) return LaunchBackward<T, 64, 64>(call, stream);
  LaunchBackward<T, 128, 32>(call, stream);
}

template void QueueHalfAttentionGrad(const AttentionGradCall<Float16>&, cudaStream_t);
template void QueueHalfAttentionGrad(const AttentionGradCall<BFloat16>&, cudaStream_t);

}  // namespace tidepool::cuda
