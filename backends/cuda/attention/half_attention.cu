// Attention of f16 and bf16 by tensor cores, heads up to 128 wide. As in attention.cu, but a block has 128 rows of
// queries, 32 a warp, weights go from one product to the next in registers, and the next tile is on its way while
// one is used: values while scores are made, keys while weights are.
#include "tidepool/backends/cuda/attention/half_attention.h"
#include "tidepool/backends/cuda/attention/half_tiles.h"

namespace tidepool::cuda {
namespace {

template <typename T, int kD, int kRows, int kKeys>
struct alignas(16) HalfShared {
  HalfTile<T, kRows, kD> query;
  HalfTile<T, kKeys, kD> key, value;
  RowFacts<float, kRows> rows;
};

// kM: fragments of 16 rows of a warp.
template <typename T, int kD, int kM, int kKeys>
__global__ void __launch_bounds__(kTileThreads, 2)
    HalfAttentionKernel(AttentionCall<T> f, int64_t first_block) {
  constexpr int kRows = 64 * kM, kScores = kKeys / 8, kSums = kD / 8;
  const AttentionGeometry& g = f.g;
  auto& shared = *DynamicShared<HalfShared<T, kD, kRows, kKeys>>();
  const LaneThread at;
  const auto p = f.grid.Find(first_block + blockIdx.x, g.key_heads);
  const int64_t first_row = int64_t{p.tile} * kRows;
  const int warp_row = at.warp * 16 * kM;
  int least, most;
  g.VisibleToRows(first_row, min(first_row + kRows, g.rows), &least, &most);
  FindRows(g, p, f.mask, first_row, &shared.rows);
  LoadHalfRows<kRows, kD>(shared.query, f.query, g, p, first_row, g.width);
  if (most > 0) LoadHalfKeys<kKeys, kD>(shared.key, f.key, p, 0, g.keys, g.width);
  CommitCopies();

  const float scale = static_cast<float>(g.scale * kLog2E);
  float largest[kM][2], totals[kM][2] = {}, sums[kM][kSums][4] = {};
#pragma unroll
  for (int m = 0; m < kM; ++m) largest[m][0] = largest[m][1] = -Infinity<float>();

  for (int first = 0; first < most; first += kKeys) {
    float scores[kM][kScores][4] = {};
    WaitForCopies<0>();
    __syncthreads();  // the keys are there, and all have used the values before
    LoadHalfKeys<kKeys, kD>(shared.value, f.value, p, first, g.keys, g.value_width);
    CommitCopies();
    AddHalfDots<kD>(at, shared.query, warp_row, shared.key, scores);
    WaitForCopies<0>();
    __syncthreads();  // the values are there, and all have used the keys
    if (first + kKeys < most)
      LoadHalfKeys<kKeys, kD>(shared.key, f.key, p, first + kKeys, g.keys, g.width);
    CommitCopies();

    const bool all_seen = f.mask.data == nullptr && first + kKeys <= least;
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = warp_row + 16 * m + at.g + 8 * half;
        float above = largest[m][half];
#pragma unroll
        for (int n = 0; n < kScores; ++n) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            float& score = scores[m][n][2 * half + i];
            score *= scale;
            if (!all_seen) {
              score = MaskedScore(score, f.mask, shared.rows.mask[row],
                                  first + 8 * n + 2 * at.t + i, shared.rows.visible[row]);
            }
            above = score > above ? score : above;
          }
        }
#pragma unroll
        for (int by = 1; by < 4; by *= 2) {
          const float other = __shfl_xor_sync(0xffffffff, above, by);
          above = other > above ? other : above;
        }
        // Where nothing was seen so far weights are 0, not those of -infinity less itself.
        const float base = above == -Infinity<float>() ? 0.0f : above;
        const float factor = QuickExp2(largest[m][half] - base);
        largest[m][half] = above;
        float total = 0;
#pragma unroll
        for (int n = 0; n < kScores; ++n) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            float& score = scores[m][n][2 * half + i];
            score = QuickExp2(score - base);
            total += score;
          }
        }
        totals[m][half] = totals[m][half] * factor + total;
#pragma unroll
        for (int n = 0; n < kSums; ++n) {
          sums[m][n][2 * half] *= factor;
          sums[m][n][2 * half + 1] *= factor;
        }
      }
    }
    AddHalfProduct<kD>(at, scores, shared.value, sums);
  }
  WaitForCopies<0>();

#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float total = totals[m][half];
#pragma unroll
      for (int by = 1; by < 4; by *= 2) total += __shfl_xor_sync(0xffffffff, total, by);
      const int64_t row = first_row + warp_row + 16 * m + at.g + 8 * half;
      if (row >= g.rows) continue;
      int64_t query;
      const int64_t head = p.key_head * g.group + g.HeadOf(row, &query);
      StoreHalfRow(
          at, sums[m], half, total == 0 ? 0.0f : 1 / total,
          f.output.data + p.batch * f.output.batch + head * f.output.head + query * f.output.row,
          f.output.column, f.output.packed, static_cast<int>(g.value_width));
      if (at.t == 0) {
        f.log_sums[p.batch * f.log_sum_batch + head * f.log_sum_head + query * f.log_sum_query] =
            total == 0 ? -Infinity<float>()
                       : (largest[m][half] + Log2(total)) * static_cast<float>(kLn2);
      }
    }
  }
}

template <typename T, int kD, int kM, int kKeys>
void LaunchForward(AttentionCall<T> f, cudaStream_t stream) {
  f.grid = {CeilDiv(f.g.rows, 64 * kM), 1, f.g.pairs, f.g.causal};
  LaunchGrid(HalfAttentionKernel<T, kD, kM, kKeys>, f, kTileThreads,
             sizeof(HalfShared<T, kD, 64 * kM, kKeys>), stream);
}

}  // namespace

template <typename T>
void QueueHalfAttention(const AttentionCall<T>& f, cudaStream_t stream) {
  const int64_t widest = std::max(f.g.width, f.g.value_width);
  if (widest <= 32) return LaunchForward<T, 32, 2, 64>(f, stream);
  if (widest <= 64) return LaunchForward<T, 64, 2, 64>(f, stream);
  LaunchForward<T, 128, 2, 32>(f, stream);
}

template void QueueHalfAttention(const AttentionCall<Float16>&, cudaStream_t);
template void QueueHalfAttention(const AttentionCall<BFloat16>&, cudaStream_t);

}  // namespace tidepool::cuda
