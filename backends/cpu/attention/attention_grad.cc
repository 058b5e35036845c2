// The gradient of attention: the weights of each block of scores are computed again from log_sum_exp. A
// task has a share of the blocks of keys of one key head, and goes through all queries that see them, so
// what it adds to the gradients of keys and values is its own. What the shares of a head add to its
// queries is added up in their order: the bits are the same for any number of threads.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>

#include "tidepool/backends/cpu/attention/attention_blocks.h"
#include "tidepool/backends/cpu/gemm/parallel_tasks.h"
#include "tidepool/backends/cpu/network_kernels.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/thread_pool.h"

namespace tidepool::cpu {
namespace {

constexpr int64_t kLeastTasks = 8;

struct Shares {
  int64_t pairs, key_blocks, shares, blocks_of_share;

  explicit Shares(const Geometry& g) {
    pairs = g.batch * g.key_heads;
    key_blocks = (g.keys + kKeys - 1) / kKeys;
    shares = std::clamp<int64_t>(kLeastTasks / std::max<int64_t>(1, pairs), 1,
                                 std::max<int64_t>(1, key_blocks));
    blocks_of_share = (key_blocks + shares - 1) / shares;
  }
};

// Of one thread.
template <typename Type>
struct Slot {
  using T = typename Type::T;
  T *weights, *gradients, *mask, *deltas, *dkey, *dvalue;
  void* products;
  size_t bytes;

  Slot(const Geometry& g, void* memory) {
    Parts parts(memory);
    const int64_t rows = g.MostRows(), keys = g.MostKeys();
    weights = parts.Take<T>(rows * keys);
    gradients = parts.Take<T>(rows * keys);
    mask = parts.Take<T>(keys);
    deltas = parts.Take<T>(g.group * g.queries);
    dkey = parts.Take<T>(keys * g.width);
    dvalue = parts.Take<T>(keys * g.value_width);
    size_t most = 0;
    for (const int64_t wide : {g.width, g.value_width}) {
      most = std::max({most, Type::ScratchBytes(rows, keys, wide),
                       Type::ScratchBytes(rows, wide, keys), Type::ScratchBytes(keys, wide, rows)});
    }
    products = parts.Take<char>(static_cast<int64_t>(most));
    bytes = parts.bytes();
  }
};

// Elements of the gradient of the queries, for each share.
int64_t QueryElements(const Geometry& g) { return g.batch * g.heads * g.queries * g.width; }

template <typename T>
T StridedDot(const AttentionLoops<T>& loops, const T* x, int64_t x_stride, const T* y,
             int64_t y_stride, int64_t n) {
  if (x_stride == 1 && y_stride == 1) return static_cast<T>(loops.dot(x, y, n));
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i * x_stride]) * y[i * y_stride];
  return static_cast<T>(sum);
}

template <typename T>
void Store(const T* from, int64_t rows, int64_t columns, const Matrix<T>& to) {
  for (int64_t r = 0; r < rows; ++r) {
    T* const row = to.data + r * to.row_stride;
    for (int64_t i = 0; i < columns; ++i) row[i * to.column_stride] = from[r * columns + i];
  }
}

// dquery: [group, queries, width] of the key head, zeros or what earlier blocks of the share gave.
template <typename Type, typename T = typename Type::T>
void RunKeys(const KernelCall& call, const Geometry& g, int64_t batch, int64_t key_head,
             int64_t first, T* dquery, const Slot<Type>& slot) {
  const AttentionLoops<T>& loops = LoopsOf(Type());
  const Heads<T> query(call.inputs[0]), key(call.inputs[1]), value(call.inputs[2]),
      dz(call.inputs[6]), dkey(call.outputs[1]), dvalue(call.outputs[2]);
  const Mask<T> mask(call.inputs[3]);
  const TensorRef& log_sums = call.inputs[5];
  const int64_t n = std::min(kKeys, g.keys - first), ld = g.MostKeys();
  const T scale = static_cast<T>(g.attributes.ScaleOf(g.width));
  const Matrix<T> keys = key.From(batch, key_head, first),
                  values = value.From(batch, key_head, first);
  std::fill_n(slot.dkey, n * g.width, T(0));
  std::fill_n(slot.dvalue, n * g.value_width, T(0));
  for (int64_t index = 0; index < g.BlocksOfKeyHead(); ++index) {
    const RowBlock block = g.Block(batch, key_head, index);
    const int64_t rows = block.rows();
    if (g.attributes.Visible(block.query + block.queries - 1, g.keys) <= first) continue;
    const Matrix<T> of_query = RowsOf(query, block), of_dz = RowsOf(dz, block);
    Product<Type>(rows, n, g.width, of_query, keys.Transposed(), slot.weights, ld, false,
                  slot.products);
    Product<Type>(rows, n, g.value_width, of_dz, values.Transposed(), slot.gradients, ld, false,
                  slot.products);
    for (int64_t r = 0; r < rows; ++r) {
      T *const weights = slot.weights + r * ld, *const gradients = slot.gradients + r * ld;
      const int64_t head = block.HeadOf(r), row = block.QueryOf(r);
      const int64_t visible = std::clamp<int64_t>(g.attributes.Visible(row, g.keys) - first, 0, n);
      const auto added = mask.At(batch, head, row, first, visible, slot.mask);
      const T log_sum = log_sums.as<T>()[batch * log_sums.strides[0] + head * log_sums.strides[1] +
                                         row * log_sums.strides[2]];
      loops.weights_grad(weights, gradients, visible, scale, added.shift, added.elements, log_sum,
                         slot.deltas[(head - key_head * g.group) * g.queries + row]);
      std::fill(weights + visible, weights + n, T(0));
      std::fill(gradients + visible, gradients + n, T(0));
    }
    const Matrix<T> weights{slot.weights, ld, 1}, gradients{slot.gradients, ld, 1};
    Product<Type>(n, g.value_width, rows, weights.Transposed(), of_dz, slot.dvalue, g.value_width,
                  true, slot.products);
    Product<Type>(n, g.width, rows, gradients.Transposed(), of_query, slot.dkey, g.width, true,
                  slot.products);
    Product<Type>(rows, g.width, n, gradients, keys,
                  dquery + ((block.head - key_head * g.group) * g.queries + block.query) * g.width,
                  g.width, true, slot.products);
  }
  Store(slot.dkey, n, g.width, dkey.From(batch, key_head, first));
  Store(slot.dvalue, n, g.value_width, dvalue.From(batch, key_head, first));
}

template <typename Type>
size_t ScratchBytes(const KernelCall& call) {
  using T = typename Type::T;
  const Geometry g(call);
  Parts parts(nullptr);
  parts.Take<T>(Shares(g).shares * QueryElements(g));
  return parts.bytes() + Slot<Type>(g, nullptr).bytes * static_cast<size_t>(call.threads.count);
}

template <typename Type>
void Run(const KernelCall& call) {
  using T = typename Type::T;
  const Geometry g(call);
  const Shares s(g);
  const AttentionLoops<T>& loops = LoopsOf(Type());
  const std::shared_ptr<ThreadPool> pool =
      g.Work() < kMinParallelWork ? nullptr : PoolOf(call.threads);
  Parts parts(call.scratch);
  T* const dqueries = parts.Take<T>(s.shares * QueryElements(g));
  char* const slots = static_cast<char*>(call.scratch) + parts.bytes();
  const size_t slot_bytes = Slot<Type>(g, nullptr).bytes;
  const int64_t of_head = g.queries * g.width;
  ParallelTasks(pool.get(), s.pairs * s.shares, [&](int64_t index, int slot_index) {
    const int64_t pair = index / s.shares, share = index % s.shares;
    const int64_t batch = pair / g.key_heads, key_head = pair % g.key_heads;
    const Slot<Type> slot(g, slots + slot_bytes * slot_index);
    const Heads<T> z(call.inputs[4]), dz(call.inputs[6]);
    for (int64_t r = 0; r < g.group * g.queries; ++r) {
      const int64_t head = key_head * g.group + r / g.queries, row = r % g.queries;
      slot.deltas[r] = StridedDot(loops, z.At(batch, head, row), z.strides[3],
                                  dz.At(batch, head, row), dz.strides[3], g.value_width);
    }
    T* const dquery = dqueries + share * QueryElements(g) + pair * g.group * of_head;
    std::fill_n(dquery, g.group * of_head, T(0));
    const int64_t last = std::min(s.key_blocks, (share + 1) * s.blocks_of_share);
    for (int64_t block = share * s.blocks_of_share; block < last; ++block) {
      RunKeys<Type>(call, g, batch, key_head, block * kKeys, dquery, slot);
    }
  });
  const Heads<T> dquery(call.outputs[0]);
  ParallelFor(call.threads, g.batch * g.heads, 1, QueryElements(g) * s.shares,
              [&](int64_t begin, int64_t end) {
                for (int64_t pair = begin; pair < end; ++pair) {
                  T* const total = dqueries + pair * of_head;
                  for (int64_t share = 1; share < s.shares; ++share) {
                    const T* const more = total + share * QueryElements(g);
                    for (int64_t i = 0; i < of_head; ++i) total[i] += more[i];
                  }
                  Store(total, g.queries, g.width, dquery.From(pair / g.heads, pair % g.heads, 0));
                }
              });
}

const NetworkKernels of_f32({{OpCode::kAttentionGrad, &Run<OfF32>, &ScratchBytes<OfF32>, true}});
const KernelRegistrar of_f64({
    {OpCode::kAttentionGrad, DeviceType::kHost, DType::kFloat64, "cpu", 10, &Run<OfF64>,
     &ScratchBytes<OfF64>, nullptr, true},
});

}  // namespace
}  // namespace tidepool::cpu
