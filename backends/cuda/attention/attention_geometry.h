// What the kernels of attention know of a call, by value: operands of any strides, and which block does what.
//
// The queries of all heads that share a key head are rows of one problem, row = head in group * queries +
// query, so that the gradients of keys and values are sums of one block, and few queries of many heads fill a
// tile. A "pair" is a batch item and a key head.
#ifndef TIDEPOOL_BACKENDS_CUDA_ATTENTION_ATTENTION_GEOMETRY_H_
#define TIDEPOOL_BACKENDS_CUDA_ATTENTION_ATTENTION_GEOMETRY_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tidepool/backends/cuda/common/element.h"
#include "tidepool/backends/cuda/framework/divider.h"
#include "tidepool/backends/cuda/runtime/launch.h"
#include "tidepool/ndarray/kernel/attributes_attention.h"
#include "tidepool/ndarray/kernel/kernel.h"

namespace tidepool::cuda {

// An operand [batch, heads, rows, columns].
template <typename T>
struct HeadsView {
  T* data;
  int64_t batch, head, row, column;  // strides in elements
  bool packed;                       // rows may be accessed 16 bytes (and four elements) at a time

  static HeadsView Of(const TensorRef& ref) {
    constexpr int64_t kVector = 16 / static_cast<int64_t>(sizeof(T));
    const int64_t* const s = ref.strides;
    HeadsView view{ref.as<T>(), s[0], s[1], s[2], s[3], false};
    bool even = ref.dims[3] % std::max<int64_t>(4, kVector) == 0 && (s[3] == 1 || ref.dims[3] == 1);
    for (int axis = 0; axis < 3; ++axis)
      even = even && (ref.dims[axis] <= 1 || s[axis] % kVector == 0);
    view.packed = even && reinterpret_cast<uintptr_t>(ref.data) % 16 == 0;
    return view;
  }
};

// What is added to the scores; strides of 0 where it broadcasts.
template <typename T>
struct MaskView {
  const T* data = nullptr;  // null: nothing
  int64_t batch = 0, head = 0, query = 0, key = 0;

  static MaskView Of(const TensorRef& ref) {
    MaskView view;
    if (!ref.present) return view;
    auto stride = [&ref](int axis) { return ref.dims[axis] == 1 ? int64_t{0} : ref.strides[axis]; };
    return {ref.as<const T>(), stride(0), stride(1), stride(2), stride(3)};
  }
};

struct AttentionGeometry {
  int64_t pairs, key_heads, group, queries, rows, keys, width, value_width, first_query;
  Divider by_queries;
  bool causal;
  double scale;

  explicit AttentionGeometry(const KernelCall& call)
      : pairs(call.inputs[1].dims[0] * call.inputs[1].dims[1]),
        key_heads(call.inputs[1].dims[1]),
        group(call.inputs[0].dims[1] / key_heads),
        queries(call.inputs[0].dims[2]),
        rows(group * queries),
        keys(call.inputs[1].dims[2]),
        width(call.inputs[0].dims[3]),
        value_width(call.inputs[2].dims[3]),
        first_query(std::min(call.attrs<AttentionAttributes>().first_query, keys)),
        by_queries(std::max<int64_t>(1, queries), rows),
        causal(call.attrs<AttentionAttributes>().causal),
        scale(call.attrs<AttentionAttributes>().ScaleOf(width)) {}

  // Places in a tile and their numbers are 32-bit.
  static bool Supports(const KernelCall& call) {
    const AttentionGeometry g(call);
    return std::max({g.rows, g.keys, g.width, g.value_width}) < int64_t{1} << 30;
  }
  __host__ __device__ int64_t elements_of_rows() const { return pairs * rows; }

  __device__ __forceinline__ int64_t HeadOf(int64_t row, int64_t* query) const {
    return by_queries.Divide(row, query);
  }
  __device__ __forceinline__ int Visible(int64_t query) const {
    return static_cast<int>(causal ? min(keys, first_query + query + 1) : keys);
  }
  // How many keys all rows, and any row, of [first, end) see.
  __device__ __forceinline__ void VisibleToRows(int64_t first, int64_t end, int* least,
                                                int* most) const {
    int64_t query, last;
    const bool one_head = HeadOf(first, &query) == HeadOf(end - 1, &last);
    *least = Visible(one_head ? query : 0);
    *most = Visible(one_head ? last : queries - 1);
  }
};

// Which piece a block does: the chunk of columns, the tile, the pair. Blocks of a pair follow one another.
struct BlockGrid {
  int64_t tiles, chunks, pairs;
  bool backward;  // the last tiles, which are the longest of a causal call, come first

  int64_t count() const { return tiles * chunks * pairs; }
  struct Place {
    int64_t batch, key_head, pair;
    int tile, chunk;
  };
  __device__ __forceinline__ Place Find(int64_t block, int64_t key_heads) const {
    Place p;
    const int64_t rest = Quotient(block, chunks);
    p.chunk = static_cast<int>(block - rest * chunks);
    p.pair = Quotient(rest, tiles);
    const int64_t tile = rest - p.pair * tiles;
    p.tile = static_cast<int>(backward ? tiles - 1 - tile : tile);
    p.batch = Quotient(p.pair, key_heads);
    p.key_head = p.pair - p.batch * key_heads;
    return p;
  }
};

// What the kernels of a call take; the launch fills in the grid.
template <typename T>
struct AttentionCall {
  AttentionGeometry g;
  BlockGrid grid;
  HeadsView<const T> query, key, value;
  MaskView<T> mask;
  HeadsView<T> output;
  Statistic<T>* log_sums;
  int64_t log_sum_batch, log_sum_head, log_sum_query;  // strides
};
template <typename T>
struct AttentionGradCall {
  AttentionGeometry g;
  BlockGrid grid;
  HeadsView<const T> query, key, value, dz;
  MaskView<T> mask;
  HeadsView<T> dquery, dkey, dvalue;
  const Statistic<T>*
      log_sums;  // [pairs, rows], to the base of 2; infinity for rows that see nothing
  const Statistic<T>* deltas;  // [pairs, rows]
};

// kernel(parameters, number of the first block), for all blocks of parameters.grid.
template <typename Parameters>
void LaunchGrid(void (*kernel)(Parameters, int64_t), const Parameters& parameters, int threads,
                size_t shared_bytes, cudaStream_t stream) {
  constexpr int64_t kMostBlocks = int64_t{1} << 30;
  constexpr size_t kSharedWithoutAsking = 48 << 10;
  if (shared_bytes > kSharedWithoutAsking) {
    Check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shared_bytes)),
          "cudaFuncSetAttribute");
  }
  const int64_t count = parameters.grid.count();
  for (int64_t first = 0; first < count; first += kMostBlocks) {
    Launch(kernel, dim3(static_cast<unsigned>(std::min(kMostBlocks, count - first))), threads,
           shared_bytes, stream, parameters, first);
  }
}

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

constexpr double kLog2E = 1.4426950408889634074;
constexpr double kLn2 = 0.69314718055994530942;

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_ATTENTION_ATTENTION_GEOMETRY_H_
