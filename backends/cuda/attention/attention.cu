// Attention without the matrix of scores (Dao, "FlashAttention-2", 2023): a block has 64 rows of queries and
// goes through the keys they see, a tile at a time; sums are relative to the largest score so far and scaled
// down when a larger one comes. Scores are to the base of 2.
//
// Heads wider than a tile are cut in chunks of columns: scores are added up chunk by chunk, and each block
// makes one chunk of the output.
#include "tidepool/backends/cuda/attention/attention_geometry.h"
#include "tidepool/backends/cuda/attention/attention_tiles.h"
#include "tidepool/backends/cuda/attention/half_attention.h"
#include "tidepool/backends/cuda/common/cuda_kernel.h"

namespace tidepool::cuda {
namespace {

template <typename W, int kD, int kKeys>
struct ForwardShared {
  W query[kTileRows][kD + kPad], key[kKeys][kD + kPad], value[kKeys][kD + kPad];
  W weights[kTileRows][kKeys + kPad];
  RowFacts<W, kTileRows> rows;
};

// So many blocks that shared memory has room for on a multiprocessor, three of the most used size.
template <typename W, int kD>
constexpr int kBlocks = sizeof(W) == 4 && kD <= 64 ? 3
                        : sizeof(W) == 4           ? 2
                                                   : 1;

// kWhole: heads fit one chunk, so queries are loaded once.
template <typename T, int kD, int kKeys, bool kWhole>
__global__ void __launch_bounds__(kTileThreads, kBlocks<Compute<T>, kD>)
    AttentionKernel(AttentionCall<T> f, int64_t first_block) {
  using W = Compute<T>;
  constexpr int kMicro = kKeys / kColumnThreads;
  const AttentionGeometry& g = f.g;
  auto& shared = *DynamicShared<ForwardShared<W, kD, kKeys>>();
  const TileThread at;
  const auto p = f.grid.Find(first_block + blockIdx.x, g.key_heads);
  const int64_t first_row = int64_t{p.tile} * kTileRows;
  const int64_t end_row = min(first_row + kTileRows, g.rows);
  int least, most;
  g.VisibleToRows(first_row, end_row, &least, &most);
  FindRows(g, p, f.mask, first_row, &shared.rows);
  if constexpr (kWhole) LoadRows<kTileRows, kD>(shared.query, f.query, g, p, first_row, 0, g.width);

  const W scale = static_cast<W>(g.scale * kLog2E);
  W largest[kMicroRows], totals[kMicroRows] = {}, sums[kMicroRows][kD / kColumnThreads] = {};
#pragma unroll
  for (int i = 0; i < kMicroRows; ++i) largest[i] = -Infinity<W>();

  for (int first = 0; first < most; first += kKeys) {
    W scores[kMicroRows][kMicro] = {};
    __syncthreads();  // the tiles before have been used
    LoadKeys<kKeys, kD>(shared.value, f.value, p, first, g.keys, p.chunk, g.value_width);
    if constexpr (kWhole) {
      LoadKeys<kKeys, kD>(shared.key, f.key, p, first, g.keys, 0, g.width);
      __syncthreads();
      AddDots<kD, kKeys>(at, shared.query, shared.key, scores);
    } else {
      for (int chunk = 0; chunk * kD < g.width; ++chunk) {
        if (chunk > 0) __syncthreads();
        LoadRows<kTileRows, kD>(shared.query, f.query, g, p, first_row, chunk, g.width);
        LoadKeys<kKeys, kD>(shared.key, f.key, p, first, g.keys, chunk, g.width);
        __syncthreads();
        AddDots<kD, kKeys>(at, shared.query, shared.key, scores);
      }
    }
    const bool all_seen = f.mask.data == nullptr && first + kKeys <= least;
#pragma unroll
    for (int i = 0; i < kMicroRows; ++i) {
      const int row = at.row(i);
      W above = largest[i];
#pragma unroll
      for (int j = 0; j < kMicro; ++j) {
        W score = scores[i][j] * scale;
        if (!all_seen) {
          score = MaskedScore(score, f.mask, shared.rows.mask[row], first + at.column(j),
                              shared.rows.visible[row]);
        }
        above = score > above ? score : above;
        scores[i][j] = score;
      }
#pragma unroll
      for (int by = 1; by < kColumnThreads; by *= 2) {
        const W other = __shfl_xor_sync(0xffffffff, above, by);
        above = other > above ? other : above;
      }
      // Where nothing was seen so far weights are 0, not those of -infinity less itself.
      const W base = above == -Infinity<W>() ? W{0} : above;
      const W factor = Exp2(largest[i] - base);
      largest[i] = above;
      W total = 0;
#pragma unroll
      for (int j = 0; j < kMicro; ++j) {
        const W weight = Exp2(scores[i][j] - base);
        total += weight;
        shared.weights[row][at.column(j)] = weight;
      }
      totals[i] = totals[i] * factor + total;
#pragma unroll
      for (int e = 0; e < kD / kColumnThreads; ++e) sums[i][e] *= factor;
    }
    __syncwarp();
    AddProduct<kD, kKeys>(at, shared.weights, shared.value, sums);
  }

  const int64_t column = int64_t{p.chunk} * kD;
#pragma unroll
  for (int i = 0; i < kMicroRows; ++i) {
    W total = totals[i];
#pragma unroll
    for (int by = 1; by < kColumnThreads; by *= 2) total += __shfl_xor_sync(0xffffffff, total, by);
    const int64_t row = first_row + at.row(i);
    if (row >= g.rows) continue;
    int64_t query;
    const int64_t head = p.key_head * g.group + g.HeadOf(row, &query);
    StoreSums<kD>(at, sums[i], total == 0 ? W{0} : 1 / total,
                  f.output.data + p.batch * f.output.batch + head * f.output.head +
                      query * f.output.row + column * f.output.column,
                  f.output.column, f.output.packed,
                  static_cast<int>(min(int64_t{kD}, g.value_width - column)));
    if (p.chunk == 0 && at.tx == 0) {
      f.log_sums[p.batch * f.log_sum_batch + head * f.log_sum_head + query * f.log_sum_query] =
          total == 0 ? -Infinity<W>() : (largest[i] + Log2(total)) * static_cast<W>(kLn2);
    }
  }
}

template <typename T, int kD, int kKeys, bool kWhole>
void LaunchForward(AttentionCall<T> f, cudaStream_t stream) {
  f.grid = {CeilDiv(f.g.rows, kTileRows), std::max<int64_t>(1, CeilDiv(f.g.value_width, kD)),
            f.g.pairs, f.g.causal};
  LaunchGrid(AttentionKernel<T, kD, kKeys, kWhole>, f, kTileThreads,
             sizeof(ForwardShared<Compute<T>, kD, kKeys>), stream);
}

template <typename T>
void Attention(const KernelCall& call) {
  const AttentionGeometry g(call);
  if (g.pairs * g.rows == 0) return;
  const TensorRef& log_sums = call.outputs[1];
  const AttentionCall<T> f{g,
                           {},
                           HeadsView<const T>::Of(call.inputs[0]),
                           HeadsView<const T>::Of(call.inputs[1]),
                           HeadsView<const T>::Of(call.inputs[2]),
                           MaskView<T>::Of(call.inputs[3]),
                           HeadsView<T>::Of(call.outputs[0]),
                           log_sums.as<Statistic<T>>(),
                           log_sums.strides[0],
                           log_sums.strides[1],
                           log_sums.strides[2]};
  const cudaStream_t stream = StreamOf(call);
  const int64_t widest = std::max(g.width, g.value_width);
  if constexpr (sizeof(Compute<T>) == 8) {
    if (widest <= 64) return LaunchForward<T, 64, 64, true>(f, stream);
    LaunchForward<T, 64, 64, false>(f, stream);
  } else {
    if constexpr (sizeof(T) == 2) {
      if (widest <= kWidestHalfHeads) return QueueHalfAttention(f, stream);
    } else {
      if (widest <= 32) return LaunchForward<T, 32, 64, true>(f, stream);
      if (widest <= 64) return LaunchForward<T, 64, 64, true>(f, stream);
      if (widest <= 128) return LaunchForward<T, 128, 32, true>(f, stream);
    }
    LaunchForward<T, 128, 32, false>(f, stream);
  }
}

constexpr Kernel Registered(DType dtype, void (*run)(const KernelCall&)) {
  return {
      OpCode::kAttention,           DeviceType::kCuda, dtype, kProvider, kPriority, run, nullptr,
      &AttentionGeometry::Supports, /*strided=*/true};
}

const KernelRegistrar registrar({
    Registered(DType::kFloat32, &Attention<float>),
    Registered(DType::kFloat64, &Attention<double>),
    Registered(DType::kFloat16, &Attention<Float16>),
    Registered(DType::kBFloat16, &Attention<BFloat16>),
});

}  // namespace
}  // namespace tidepool::cuda
