// Matrix products on our own blocked kernels (backends/cpu/gemm): f32 and f64 as they are, 16-bit
// floats converted to f32 a block at a time, or bf16 multiplied as it is. Small items of a batch are tasks of the pool, large
// ones are run one after the other, each by all threads.
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "tidepool/backends/cpu/gemm/gemm.h"
#include "tidepool/backends/cpu/gemm/gemm_bf16.h"
#include "tidepool/backends/cpu/gemm/gemm_f64.h"
#include "tidepool/backends/cpu/nn_loops.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/strided_loop.h"
#include "tidepool/ndarray/kernel/thread_pool.h"

namespace tidepool::cpu {
namespace {

// Products of an item below which it is not worth several threads.
constexpr int64_t kLargeItem = 1 << 21;

// The sizes of a call, all of whose operands are dense, and where each item's matrices begin.
struct Batch {
  int64_t m, n, k;
  int64_t items = 1;
  int64_t x_rows, x_columns, y_rows, y_columns;  // as they lie
  bool transpose_x, transpose_y;
  int lead;
  int64_t dims[kMaxRank], x_strides[kMaxRank], y_strides[kMaxRank];

  explicit Batch(const KernelCall& call) {
    const auto& a = call.attrs<MatMulAttributes>();
    const TensorRef& x = call.inputs[0];
    const TensorRef& y = call.inputs[1];
    const TensorRef& z = call.outputs[0];
    x_rows = x.dims[x.rank - 2], x_columns = x.dims[x.rank - 1];
    y_rows = y.dims[y.rank - 2], y_columns = y.dims[y.rank - 1];
    transpose_x = a.transpose_x, transpose_y = a.transpose_y;
    m = z.dims[z.rank - 2];
    n = z.dims[z.rank - 1];
    k = a.transpose_x ? x_rows : x_columns;
    lead = z.rank - 2;
    BroadcastStrides(x.rank - 2, x.dims, x.strides, lead, x_strides);
    BroadcastStrides(y.rank - 2, y.dims, y.strides, lead, y_strides);
    bool y_is_one = true, x_is_whole = !a.transpose_x;
    for (int i = 0; i < lead; ++i) {
      dims[i] = z.dims[i];
      items *= dims[i];
      y_is_one = y_is_one && y_strides[i] == 0;
      x_is_whole = x_is_whole && (dims[i] == 1 || x_strides[i] != 0);
    }
    if (y_is_one && x_is_whole) {  // one product of all rows
      m *= items;
      x_rows *= items;
      items = 1;
      lead = 0;
    }
  }
  int64_t XOffset(int64_t item) const { return Offset(item, x_strides); }
  int64_t YOffset(int64_t item) const { return Offset(item, y_strides); }
  bool by_items(int threads) const { return threads > 1 && items > 1 && m * n * k < kLargeItem; }

 private:
  int64_t Offset(int64_t item, const int64_t* strides) const {
    int64_t offset = 0;
    for (int i = lead - 1; i >= 0; --i) {
      offset += item % dims[i] * strides[i];
      item /= dims[i];
    }
    return offset;
  }
};

// Sizes and strides of one item, for either problem type.
template <typename Problem>
void SetSizes(const Batch& b, Problem* p) {
  p->m = b.m, p->n = b.n, p->k = b.k;
  p->a_row_stride = b.transpose_x ? 1 : b.x_columns;
  p->a_col_stride = b.transpose_x ? b.x_columns : 1;
  p->b_row_stride = b.transpose_y ? 1 : b.y_columns;
  p->b_col_stride = b.transpose_y ? b.y_columns : 1;
  p->ldc = b.n;
}

template <typename Problem>
Problem ItemProblem(const KernelCall& call, const Batch& b) {
  const auto& a = call.attrs<MatMulAttributes>();
  Problem p{};
  SetSizes(b, &p);
  p.relu = a.relu;
  p.accumulate = a.accumulate;
  return p;
}

// Scratch of all calls at once: of every thread with an item of its own, or of all with one.
size_t ScratchOf(const KernelCall& call, const Batch& b,
                 size_t (*item)(const Batch&, int threads)) {
  if (!b.by_items(call.threads.count)) return item(b, call.threads.count);
  return (item(b, 1) + 63) / 64 * 64 * call.threads.count;
}

// body(item, scratch, pool).
template <typename Body>
void ForEachItem(const KernelCall& call, const Batch& b, size_t (*scratch)(const Batch&, int),
                 Body body) {
  const std::shared_ptr<ThreadPool> pool = PoolOf(call.threads);
  if (pool == nullptr || !b.by_items(call.threads.count)) {
    for (int64_t item = 0; item < b.items; ++item) body(item, call.scratch, pool.get());
    return;
  }
  const size_t slot_bytes = (scratch(b, 1) + 63) / 64 * 64;
  auto run = [&](int64_t item, int slot) {
    body(item, static_cast<char*>(call.scratch) + slot * slot_bytes, nullptr);
  };
  if (b.items * b.m * b.n * b.k < kMinParallelWork) {
    for (int64_t item = 0; item < b.items; ++item) run(item, 0);
  } else {
    pool->Run(b.items, run);
  }
}

size_t F32Scratch(const Batch& b, int threads) {
  GemmProblem p{};
  SetSizes(b, &p);
  return GemmScratchBytes(p, threads);
}
size_t F64Scratch(const Batch& b, int threads) {
  return GemmF64ScratchBytes(b.m, b.n, b.k, threads);
}

template <typename T, typename Problem, auto kGemm, auto kScratch>
void RunMatMul(const KernelCall& call) {
  const Batch b(call);
  const Problem same = ItemProblem<Problem>(call, b);
  ForEachItem(call, b, kScratch, [&](int64_t item, void* scratch, ThreadPool* pool) {
    Problem p = same;
    p.a = call.inputs[0].as<T>() + b.XOffset(item);
    p.b = call.inputs[1].as<T>() + b.YOffset(item);
    p.c = call.outputs[0].as<T>() + item * b.m * b.n;
    p.bias = call.inputs[2].as<T>();
    kGemm(p, scratch, pool);
  });
}

// ---- 16-bit floats ----

constexpr int64_t kBlockRows = 256, kBlockColumns = 512, kBlockDepth = 1024;

struct HalfBlocks {
  int64_t rows, columns, depth;

  explicit HalfBlocks(const Batch& b)
      : rows(std::min(b.m, kBlockRows)),
        columns(std::min(b.n, kBlockColumns)),
        depth(std::min(b.k, kBlockDepth)) {}
  static int64_t Align(int64_t floats) { return (floats + 15) / 16 * 16; }
  int64_t x() const { return Align(rows * depth); }
  int64_t y() const { return Align(depth * columns); }
  int64_t z() const { return Align(rows * columns); }
};

// X, Y, Z, bias, then the product's own.
size_t HalfScratch(const Batch& b, int threads) {
  const HalfBlocks blocks(b);
  return static_cast<size_t>(blocks.x() + blocks.y() + blocks.z() +
                             HalfBlocks::Align(blocks.columns)) *
             sizeof(float) +
         GemmScratchBytes(blocks.rows, blocks.columns, blocks.depth, threads);
}

using ToFloat = void (*)(const uint16_t*, float*, int64_t);

// A block of a matrix with `stride` between rows, made dense.
void Widen(ToFloat convert, const uint16_t* from, int64_t stride, int64_t rows, int64_t columns,
           float* to, ThreadPool* pool) {
  ParallelFor(pool == nullptr ? Threads() : Threads(*pool), rows, 16, rows * columns,
              [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) {
                  convert(from + i * stride, to + i * columns, columns);
                }
              });
}

template <bool kBrain>
void RunHalfMatMul(const KernelCall& call) {
  const auto& a = call.attrs<MatMulAttributes>();
  const Batch b(call);
  const HalfBlocks blocks(b);
  const NnLoops& loops = NetworkLoops();
  const ToFloat widen = kBrain ? loops.brain_to_float : loops.half_to_float;
  const auto narrow = kBrain ? loops.float_to_brain : loops.float_to_half;
  ForEachItem(call, b, &HalfScratch, [&](int64_t item, void* scratch, ThreadPool* pool) {
    float* x_block = static_cast<float*>(scratch);
    float* y_block = x_block + blocks.x();
    float* z_block = y_block + blocks.y();
    float* bias = z_block + blocks.z();
    void* rest = bias + HalfBlocks::Align(blocks.columns);
    const uint16_t* x = call.inputs[0].as<uint16_t>() + b.XOffset(item);
    const uint16_t* y = call.inputs[1].as<uint16_t>() + b.YOffset(item);
    uint16_t* z = call.outputs[0].as<uint16_t>() + item * b.m * b.n;
    for (int64_t j = 0; j < b.n; j += blocks.columns) {
      const int64_t columns = std::min(blocks.columns, b.n - j);
      if (call.inputs[2].present) widen(call.inputs[2].as<uint16_t>() + j, bias, columns);
      for (int64_t i = 0; i < b.m; i += blocks.rows) {
        const int64_t rows = std::min(blocks.rows, b.m - i);
        uint16_t* out = z + i * b.n + j;
        if (a.accumulate) Widen(widen, out, b.n, rows, columns, z_block, pool);
        int64_t k = 0;
        do {
          const int64_t depth = std::min(blocks.depth, b.k - k);
          const bool last = k + depth == b.k;
          if (a.transpose_x) {
            Widen(widen, x + k * b.x_columns + i, b.x_columns, depth, rows, x_block, pool);
          } else {
            Widen(widen, x + i * b.x_columns + k, b.x_columns, rows, depth, x_block, pool);
          }
          if (a.transpose_y) {
            Widen(widen, y + j * b.y_columns + k, b.y_columns, columns, depth, y_block, pool);
          } else {
            Widen(widen, y + k * b.y_columns + j, b.y_columns, depth, columns, y_block, pool);
          }
          GemmProblem p{};
          p.m = rows, p.n = columns, p.k = depth;
          p.a = x_block;
          p.a_row_stride = a.transpose_x ? 1 : depth;
          p.a_col_stride = a.transpose_x ? rows : 1;
          p.b = y_block;
          p.b_row_stride = a.transpose_y ? 1 : columns;
          p.b_col_stride = a.transpose_y ? depth : 1;
          p.c = z_block;
          p.ldc = columns;
          p.bias = last && call.inputs[2].present ? bias : nullptr;
          p.relu = last && a.relu;
          p.accumulate = a.accumulate || k > 0;
          Gemm(p, rest, pool);
          k += depth;
        } while (k < b.k);
        for (int64_t row = 0; row < rows; ++row) {
          narrow(z_block + row * columns, out + row * b.n, columns);
        }
      }
    }
  });
}

template <auto kScratch>
size_t MatMulScratch(const KernelCall& call) {
  return ScratchOf(call, Batch(call), kScratch);
}

// ---- bf16, by its own instruction where the processor has it ----

size_t Bf16Scratch(const Batch& b, int threads) {
  return GemmBf16ScratchBytes(b.m, b.n, b.k, threads);
}

bool IsByBf16(const KernelCall& call) {
  const Batch b(call);
  return IsGemmBf16Ahead(b.m, b.n, b.k);
}

void RunBrainMatMul(const KernelCall& call) {
  IsByBf16(call) ? RunMatMul<uint16_t, GemmBf16Problem, &GemmBf16, &Bf16Scratch>(call)
                 : RunHalfMatMul<true>(call);
}

size_t BrainMatMulScratch(const KernelCall& call) {
  return IsByBf16(call) ? MatMulScratch<&Bf16Scratch>(call) : MatMulScratch<&HalfScratch>(call);
}

constexpr DeviceType kHost = DeviceType::kHost;
constexpr int kPriority = 10;

const KernelRegistrar registrar({
    {OpCode::kMatMul, kHost, DType::kFloat32, "cpu", kPriority,
     &RunMatMul<float, GemmProblem, &Gemm, &F32Scratch>, &MatMulScratch<&F32Scratch>},
    {OpCode::kMatMul, kHost, DType::kFloat64, "cpu", kPriority,
     &RunMatMul<double, GemmF64Problem, &GemmF64, &F64Scratch>, &MatMulScratch<&F64Scratch>},
    {OpCode::kMatMul, kHost, DType::kFloat16, "cpu", kPriority, &RunHalfMatMul<false>,
     &MatMulScratch<&HalfScratch>},
    {OpCode::kMatMul, kHost, DType::kBFloat16, "cpu", kPriority, &RunBrainMatMul,
     &BrainMatMulScratch},
});

}  // namespace
}  // namespace tidepool::cpu
