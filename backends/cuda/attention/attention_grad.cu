// The gradient of attention. Weights are computed again from log_sum_exp, twice: for a block that has 64 keys
// and goes through the queries that see them, whose sums are the gradients of keys and values, and for one
// that has 64 queries and goes through the keys they see. So every sum is one block's, in a fixed order.
//
//   weights = exp(scores - log_sum_exp)           dvalue = weights^T dz
//   dscores = weights (dz value^T - delta)        dkey = scale dscores^T query, dquery = scale dscores key
//
// delta is the sum of z dz over a row. Heads wider than a tile are cut in chunks as in attention.cu.
#include "tidepool/backends/cuda/attention/attention_geometry.h"
#include "tidepool/backends/cuda/attention/attention_tiles.h"
#include "tidepool/backends/cuda/attention/half_attention.h"
#include "tidepool/backends/cuda/common/cuda_kernel.h"
#include "tidepool/backends/cuda/common/slots.h"

namespace tidepool::cuda {
namespace {

// A warp per row: the row's delta, and its log_sum where the passes find it.
template <typename T>
struct RowSums {
  AttentionGeometry g;
  HeadsView<const T> z, dz;
  const Statistic<T>* from;
  int64_t batch, head, query;  // strides of `from`
  Statistic<T>*log_sums, *deltas;
};
template <typename T>
__global__ void __launch_bounds__(kBlockThreads) RowSumsKernel(RowSums<T> r) {
  using W = Compute<T>;
  const AttentionGeometry& g = r.g;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int64_t at = GlobalThread() / 32; at < g.elements_of_rows(); at += GlobalThreads() / 32) {
    const int64_t pair = Quotient(at, g.rows), batch = Quotient(pair, g.key_heads);
    int64_t query;
    const int64_t head =
        (pair - batch * g.key_heads) * g.group + g.HeadOf(at - pair * g.rows, &query);
    const T* const z = r.z.data + batch * r.z.batch + head * r.z.head + query * r.z.row;
    const T* const dz = r.dz.data + batch * r.dz.batch + head * r.dz.head + query * r.dz.row;
    W sum = 0;
    for (int64_t e = lane; e < g.value_width; e += 32) {
      sum = Fma(Wide(z[e * r.z.column]), Wide(dz[e * r.dz.column]), sum);
    }
#pragma unroll
    for (int by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(0xffffffff, sum, by);
    if (lane == 0) {
      const W log_sum = r.from[batch * r.batch + head * r.head + query * r.query];
      r.deltas[at] = sum;
      r.log_sums[at] = log_sum == -Infinity<W>() ? Infinity<W>() : log_sum * static_cast<W>(kLog2E);
    }
  }
}

// Of a tile of 64 own rows (keys, or queries) and kOther of what it goes through. `first` and `second` have the
// operands of scores (keys and queries) and of gradients of weights (values and dz).
template <typename W, int kD, int kOther>
struct GradShared {
  W own_first[kTileRows][kD + kPad], own_second[kTileRows][kD + kPad];
  W other_first[kOther][kD + kPad], other_second[kOther][kD + kPad];
  W weights[kTileRows][kOther + kPad];
};
template <typename W, int kD, int kOther>
struct KeysShared {
  GradShared<W, kD, kOther> tiles;
  RowFacts<W, kOther> rows;
};
template <typename W, int kD, int kOther>
struct QueriesShared {
  GradShared<W, kD, kOther> tiles;
  RowFacts<W, kTileRows> rows;
};

template <typename T, int kD, int kRows, bool kWhole>
__global__ void __launch_bounds__(kTileThreads)
    KeysGradKernel(AttentionGradCall<T> b, int64_t first_block) {
  using W = Compute<T>;
  constexpr int kMicro = kRows / kColumnThreads, kSums = kD / kColumnThreads;
  const AttentionGeometry& g = b.g;
  auto& shared = *DynamicShared<KeysShared<W, kD, kRows>>();
  auto& tiles = shared.tiles;
  const TileThread at;
  const auto p = b.grid.Find(first_block + blockIdx.x, g.key_heads);
  const int64_t first_key = int64_t{p.tile} * kTileRows;
  const W scale = static_cast<W>(g.scale * kLog2E);
  W of_key[kMicroRows][kSums] = {}, of_value[kMicroRows][kSums] = {};
  if constexpr (kWhole) {
    LoadKeys<kTileRows, kD>(tiles.own_first, b.key, p, first_key, g.keys, 0, g.width);
    LoadKeys<kTileRows, kD>(tiles.own_second, b.value, p, first_key, g.keys, 0, g.value_width);
  }

  for (int64_t first = 0; first < g.rows; first += kRows) {
    int least, most;
    g.VisibleToRows(first, min(first + kRows, g.rows), &least, &most);
    if (most <= first_key) continue;
    W scores[kMicroRows][kMicro] = {};
    __syncthreads();  // the tiles before have been used
    FindRowsOfGradient(g, p, b.mask, first, b.log_sums, b.deltas, &shared.rows);
    if constexpr (kWhole) {
      LoadRows<kRows, kD>(tiles.other_first, b.query, g, p, first, 0, g.width);
      LoadRows<kRows, kD>(tiles.other_second, b.dz, g, p, first, 0, g.value_width);
      __syncthreads();
      AddDots<kD, kRows>(at, tiles.own_first, tiles.other_first, scores);
    } else {
      for (int chunk = 0; chunk * kD < g.width; ++chunk) {
        if (chunk > 0) __syncthreads();
        LoadKeys<kTileRows, kD>(tiles.own_first, b.key, p, first_key, g.keys, chunk, g.width);
        LoadRows<kRows, kD>(tiles.other_first, b.query, g, p, first, chunk, g.width);
        __syncthreads();
        AddDots<kD, kRows>(at, tiles.own_first, tiles.other_first, scores);
      }
      __syncthreads();
      LoadRows<kRows, kD>(tiles.other_second, b.dz, g, p, first, p.chunk, g.value_width);
      __syncthreads();
    }
    const bool all_seen = b.mask.data == nullptr && first_key + kTileRows <= least;
#pragma unroll
    for (int j = 0; j < kMicro; ++j) {
      const int row = at.column(j);
#pragma unroll
      for (int i = 0; i < kMicroRows; ++i) {
        W score = scores[i][j] * scale;
        if (!all_seen) {
          score = MaskedScore(score, b.mask, shared.rows.mask[row], first_key + at.row(i),
                              shared.rows.visible[row]);
        }
        tiles.weights[at.row(i)][row] = Exp2(score - shared.rows.log_sum[row]);
        scores[i][j] = 0;
      }
    }
    __syncwarp();
    AddProduct<kD, kRows>(at, tiles.weights, tiles.other_second, of_value);
    if constexpr (kWhole) {
      AddDots<kD, kRows>(at, tiles.own_second, tiles.other_second, scores);
    } else {
      for (int chunk = 0; chunk * kD < g.value_width; ++chunk) {
        __syncthreads();
        LoadKeys<kTileRows, kD>(tiles.own_second, b.value, p, first_key, g.keys, chunk,
                                g.value_width);
        LoadRows<kRows, kD>(tiles.other_second, b.dz, g, p, first, chunk, g.value_width);
        __syncthreads();
        AddDots<kD, kRows>(at, tiles.own_second, tiles.other_second, scores);
      }
      __syncthreads();
      LoadRows<kRows, kD>(tiles.other_first, b.query, g, p, first, p.chunk, g.width);
      __syncthreads();
    }
    __syncwarp();  // all have read the weights
#pragma unroll
    for (int j = 0; j < kMicro; ++j) {
      const int row = at.column(j);
#pragma unroll
      for (int i = 0; i < kMicroRows; ++i) {
        W& weight = tiles.weights[at.row(i)][row];
        weight *= scores[i][j] - shared.rows.delta[row];
      }
    }
    __syncwarp();
    AddProduct<kD, kRows>(at, tiles.weights, tiles.other_first, of_key);
  }

  const int64_t column = int64_t{p.chunk} * kD;
#pragma unroll
  for (int i = 0; i < kMicroRows; ++i) {
    const int64_t key = first_key + at.row(i);
    if (key >= g.keys) continue;
    auto store = [&](const HeadsView<T>& to, const W(&sums)[kSums], W factor, int64_t width) {
      StoreSums<kD>(
          at, sums, factor,
          to.data + p.batch * to.batch + p.key_head * to.head + key * to.row + column * to.column,
          to.column, to.packed, static_cast<int>(min(int64_t{kD}, width - column)));
    };
    store(b.dkey, of_key[i], static_cast<W>(g.scale), g.width);
    store(b.dvalue, of_value[i], W{1}, g.value_width);
  }
}

template <typename T, int kD, int kKeys, bool kWhole>
__global__ void __launch_bounds__(kTileThreads)
    QueriesGradKernel(AttentionGradCall<T> b, int64_t first_block) {
  using W = Compute<T>;
  constexpr int kMicro = kKeys / kColumnThreads, kSums = kD / kColumnThreads;
  const AttentionGeometry& g = b.g;
  auto& shared = *DynamicShared<QueriesShared<W, kD, kKeys>>();
  auto& tiles = shared.tiles;
  const TileThread at;
  const auto p = b.grid.Find(first_block + blockIdx.x, g.key_heads);
  const int64_t first_row = int64_t{p.tile} * kTileRows;
  int least, most;
  g.VisibleToRows(first_row, min(first_row + kTileRows, g.rows), &least, &most);
  FindRowsOfGradient(g, p, b.mask, first_row, b.log_sums, b.deltas, &shared.rows);
  const W scale = static_cast<W>(g.scale * kLog2E);
  W sums[kMicroRows][kSums] = {};
  if constexpr (kWhole) {
    LoadRows<kTileRows, kD>(tiles.own_first, b.query, g, p, first_row, 0, g.width);
    LoadRows<kTileRows, kD>(tiles.own_second, b.dz, g, p, first_row, 0, g.value_width);
  }

  for (int first = 0; first < most; first += kKeys) {
    W scores[kMicroRows][kMicro] = {}, slopes[kMicroRows][kMicro] = {};
    __syncthreads();  // the tiles before have been used
    if constexpr (kWhole) {
      LoadKeys<kKeys, kD>(tiles.other_first, b.key, p, first, g.keys, 0, g.width);
      LoadKeys<kKeys, kD>(tiles.other_second, b.value, p, first, g.keys, 0, g.value_width);
      __syncthreads();
      AddDots<kD, kKeys>(at, tiles.own_first, tiles.other_first, scores);
      AddDots<kD, kKeys>(at, tiles.own_second, tiles.other_second, slopes);
    } else {
      for (int chunk = 0; chunk * kD < max(g.width, g.value_width); ++chunk) {
        if (chunk > 0) __syncthreads();
        LoadRows<kTileRows, kD>(tiles.own_first, b.query, g, p, first_row, chunk, g.width);
        LoadRows<kTileRows, kD>(tiles.own_second, b.dz, g, p, first_row, chunk, g.value_width);
        LoadKeys<kKeys, kD>(tiles.other_first, b.key, p, first, g.keys, chunk, g.width);
        LoadKeys<kKeys, kD>(tiles.other_second, b.value, p, first, g.keys, chunk, g.value_width);
        __syncthreads();
        AddDots<kD, kKeys>(at, tiles.own_first, tiles.other_first, scores);
        AddDots<kD, kKeys>(at, tiles.own_second, tiles.other_second, slopes);
      }
      __syncthreads();
      LoadKeys<kKeys, kD>(tiles.other_first, b.key, p, first, g.keys, p.chunk, g.width);
      __syncthreads();
    }
    const bool all_seen = b.mask.data == nullptr && first + kKeys <= least;
#pragma unroll
    for (int i = 0; i < kMicroRows; ++i) {
      const int row = at.row(i);
      const W log_sum = shared.rows.log_sum[row], delta = shared.rows.delta[row];
#pragma unroll
      for (int j = 0; j < kMicro; ++j) {
        W score = scores[i][j] * scale;
        if (!all_seen) {
          score = MaskedScore(score, b.mask, shared.rows.mask[row], first + at.column(j),
                              shared.rows.visible[row]);
        }
        tiles.weights[row][at.column(j)] = Exp2(score - log_sum) * (slopes[i][j] - delta);
      }
    }
    __syncwarp();
    AddProduct<kD, kKeys>(at, tiles.weights, tiles.other_first, sums);
  }

  const int64_t column = int64_t{p.chunk} * kD;
#pragma unroll
  for (int i = 0; i < kMicroRows; ++i) {
    const int64_t row = first_row + at.row(i);
    if (row >= g.rows) continue;
    int64_t query;
    const int64_t head = p.key_head * g.group + g.HeadOf(row, &query);
    const HeadsView<T>& to = b.dquery;
    StoreSums<kD>(
        at, sums[i], static_cast<W>(g.scale),
        to.data + p.batch * to.batch + head * to.head + query * to.row + column * to.column,
        to.column, to.packed, static_cast<int>(min(int64_t{kD}, g.width - column)));
  }
}

template <typename T, int kD, int kOther, bool kWhole>
void LaunchBackward(AttentionGradCall<T> b, cudaStream_t stream) {
  using W = Compute<T>;
  const AttentionGeometry& g = b.g;
  const int64_t chunks = CeilDiv(g.width, kD);
  // The first keys are seen by most queries.
  b.grid = {CeilDiv(g.keys, kTileRows), std::max(chunks, CeilDiv(g.value_width, kD)), g.pairs,
            false};
  LaunchGrid(KeysGradKernel<T, kD, kOther, kWhole>, b, kTileThreads,
             sizeof(KeysShared<W, kD, kOther>), stream);
  b.grid = {CeilDiv(g.rows, kTileRows), chunks, g.pairs, g.causal};
  LaunchGrid(QueriesGradKernel<T, kD, kOther, kWhole>, b, kTileThreads,
             sizeof(QueriesShared<W, kD, kOther>), stream);
}

template <typename T>
size_t ScratchBytes(const KernelCall& call) {
  const AttentionGeometry g(call);
  return static_cast<size_t>(
      2 * Aligned(g.elements_of_rows() * static_cast<int64_t>(sizeof(Statistic<T>))));
}

template <typename T>
void AttentionGrad(const KernelCall& call) {
  const AttentionGeometry g(call);
  const TensorRef& from = call.inputs[5];
  const cudaStream_t stream = StreamOf(call);
  auto* const log_sums = static_cast<Statistic<T>*>(call.scratch);
  auto* const deltas = reinterpret_cast<Statistic<T>*>(
      static_cast<char*>(call.scratch) +
      Aligned(g.elements_of_rows() * static_cast<int64_t>(sizeof(Statistic<T>))));
  const auto dz = HeadsView<const T>::Of(call.inputs[6]);
  if (g.elements_of_rows() > 0) {
    const RowSums<T> sums{g,
                          HeadsView<const T>::Of(call.inputs[4]),
                          dz,
                          from.as<const Statistic<T>>(),
                          from.strides[0],
                          from.strides[1],
                          from.strides[2],
                          log_sums,
                          deltas};
    Launch(RowSumsKernel<T>, BlocksFor(g.elements_of_rows(), kBlockThreads / 32, 1 << 16),
           kBlockThreads, 0, stream, sums);
  }
  const AttentionGradCall<T> b{g,
                               {},
                               HeadsView<const T>::Of(call.inputs[0]),
                               HeadsView<const T>::Of(call.inputs[1]),
                               HeadsView<const T>::Of(call.inputs[2]),
                               dz,
                               MaskView<T>::Of(call.inputs[3]),
                               HeadsView<T>::Of(call.outputs[0]),
                               HeadsView<T>::Of(call.outputs[1]),
                               HeadsView<T>::Of(call.outputs[2]),
                               log_sums,
                               deltas};
  const int64_t widest = std::max(g.width, g.value_width);
  if constexpr (sizeof(Compute<T>) == 8) {
    if (widest <= 64) return LaunchBackward<T, 64, 32, true>(b, stream);
    LaunchBackward<T, 64, 32, false>(b, stream);
  } else {
    if constexpr (sizeof(T) == 2) {
      if (widest <= kWidestHalfHeads) return QueueHalfAttentionGrad(b, stream);
    } else {
      if (widest <= 32) return LaunchBackward<T, 32, 64, true>(b, stream);
      if (widest <= 64) return LaunchBackward<T, 64, 64, true>(b, stream);
      if (widest <= 128) return LaunchBackward<T, 128, 32, true>(b, stream);
    }
    LaunchBackward<T, 64, 64, false>(b, stream);
  }
}

constexpr Kernel Registered(DType dtype, void (*run)(const KernelCall&),
                            size_t (*scratch)(const KernelCall&)) {
  return {
      OpCode::kAttentionGrad,       DeviceType::kCuda, dtype, kProvider, kPriority, run, scratch,
      &AttentionGeometry::Supports, /*strided=*/true};
}

const KernelRegistrar registrar({
    Registered(DType::kFloat32, &AttentionGrad<float>, &ScratchBytes<float>),
    Registered(DType::kFloat64, &AttentionGrad<double>, &ScratchBytes<double>),
    Registered(DType::kFloat16, &AttentionGrad<Float16>, &ScratchBytes<Float16>),
    Registered(DType::kBFloat16, &AttentionGrad<BFloat16>, &ScratchBytes<BFloat16>),
});

}  // namespace
}  // namespace tidepool::cuda
