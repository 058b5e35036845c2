// Attention by blocks of keys, whose weights are of the largest score so far; what was added up before a
// larger one came is scaled down. A task is a block of queries, so the bits are the same for any number
// of threads.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>

#include "tidepool/backends/cpu/attention/attention_blocks.h"
#include "tidepool/backends/cpu/gemm/parallel_tasks.h"
#include "tidepool/backends/cpu/network_kernels.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/thread_pool.h"

namespace tidepool::cpu {
namespace {

// Of one thread.
template <typename Type>
struct Slot {
  using T = typename Type::T;
  T *scores, *sums, *mask, *largest;
  double* totals;
  void* products;
  size_t bytes;

  Slot(const Geometry& g, void* memory) {
    Parts parts(memory);
    const int64_t rows = g.MostRows(), keys = g.MostKeys();
    scores = parts.Take<T>(rows * keys);
    sums = parts.Take<T>(rows * g.value_width);
    mask = parts.Take<T>(keys);
    largest = parts.Take<T>(rows);
    totals = parts.Take<double>(rows);
    products = parts.Take<char>(static_cast<int64_t>(std::max(
        Type::ScratchBytes(rows, keys, g.width), Type::ScratchBytes(rows, g.value_width, keys))));
    bytes = parts.bytes();
  }
};

template <typename Type>
void RunBlock(const KernelCall& call, const Geometry& g, const RowBlock& block,
              const Slot<Type>& slot) {
  using T = typename Type::T;
  constexpr T kNothing = -std::numeric_limits<T>::infinity();
  const AttentionLoops<T>& loops = LoopsOf(Type());
  const Heads<T> query(call.inputs[0]), key(call.inputs[1]), value(call.inputs[2]),
      z(call.outputs[0]);
  const Mask<T> mask(call.inputs[3]);
  const int64_t rows = block.rows(), ld = g.MostKeys();
  const T scale = static_cast<T>(g.attributes.ScaleOf(g.width));
  const int64_t most = g.attributes.Visible(block.query + block.queries - 1, g.keys);
  std::fill_n(slot.largest, rows, kNothing);
  std::fill_n(slot.totals, rows, 0.0);
  std::fill_n(slot.sums, rows * g.value_width, T(0));
  for (int64_t first = 0; first < most; first += kKeys) {
    const int64_t n = std::min(kKeys, most - first);
    Product<Type>(rows, n, g.width, RowsOf(query, block),
                  key.From(block.batch, block.key_head, first).Transposed(), slot.scores, ld, false,
                  slot.products);
    for (int64_t r = 0; r < rows; ++r) {
      T* const scores = slot.scores + r * ld;
      const int64_t visible =
          std::clamp<int64_t>(g.attributes.Visible(block.QueryOf(r), g.keys) - first, 0, n);
      std::fill(scores + visible, scores + n, T(0));
      if (visible == 0) continue;
      const auto added =
          mask.At(block.batch, block.HeadOf(r), block.QueryOf(r), first, visible, slot.mask);
      const T before = slot.largest[r];
      const double sum =
          loops.weights(scores, visible, scale, added.shift, added.elements, &slot.largest[r]);
      if (slot.largest[r] != before && before != kNothing) {
        const T factor = std::exp(before - slot.largest[r]);
        slot.totals[r] *= factor;
        T* const sums = slot.sums + r * g.value_width;
        loops.scale_row(sums, sums, g.value_width, factor);
      }
      slot.totals[r] += sum;
    }
    Product<Type>(rows, g.value_width, n, {slot.scores, ld, 1},
                  value.From(block.batch, block.key_head, first), slot.sums, g.value_width,
                  first > 0, slot.products);
  }
  const TensorRef& log_sums = call.outputs[1];
  for (int64_t r = 0; r < rows; ++r) {
    const double total = slot.totals[r];
    const T factor = total == 0 ? T(0) : static_cast<T>(1 / total);
    const T* const sums = slot.sums + r * g.value_width;
    T* const out = z.At(block.batch, block.HeadOf(r), block.QueryOf(r));
    if (z.strides[3] == 1) {
      loops.scale_row(sums, out, g.value_width, factor);
    } else {
      for (int64_t e = 0; e < g.value_width; ++e) out[e * z.strides[3]] = sums[e] * factor;
    }
    log_sums.as<T>()[block.batch * log_sums.strides[0] + block.HeadOf(r) * log_sums.strides[1] +
                     block.QueryOf(r) * log_sums.strides[2]] =
        total == 0 ? kNothing : static_cast<T>(slot.largest[r] + std::log(total));
  }
}

template <typename Type>
size_t ScratchBytes(const KernelCall& call) {
  return Slot<Type>(Geometry(call), nullptr).bytes * static_cast<size_t>(call.threads.count);
}

template <typename Type>
void Run(const KernelCall& call) {
  const Geometry g(call);
  const std::shared_ptr<ThreadPool> pool =
      g.Work() < kMinParallelWork ? nullptr : PoolOf(call.threads);
  const size_t slot_bytes = Slot<Type>(g, nullptr).bytes;
  const int64_t blocks = g.BlocksOfKeyHead();
  ParallelTasks(pool.get(), g.batch * g.key_heads * blocks, [&](int64_t index, int slot) {
    // The last blocks of a causal head are the longest: they come first.
    const int64_t pair = index / blocks, block = blocks - 1 - index % blocks;
    RunBlock<Type>(call, g, g.Block(pair / g.key_heads, pair % g.key_heads, block),
                   Slot<Type>(g, static_cast<char*>(call.scratch) + slot_bytes * slot));
  });
}

const NetworkKernels of_f32({{OpCode::kAttention, &Run<OfF32>, &ScratchBytes<OfF32>, true}});
const KernelRegistrar of_f64({
    {OpCode::kAttention, DeviceType::kHost, DType::kFloat64, "cpu", 10, &Run<OfF64>,
     &ScratchBytes<OfF64>, nullptr, true},
});

}  // namespace
}  // namespace tidepool::cpu
