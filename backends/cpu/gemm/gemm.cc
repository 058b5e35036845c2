#include "tidepool/backends/cpu/gemm/gemm.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tidepool/backends/cpu/gemm/parallel_tasks.h"
#include "tidepool/backends/cpu/gemm/tile_block.h"
#include "tidepool/backends/cpu/gemm/tile_kernels.h"
#include "tidepool/memory/error.h"

namespace tidepool::cpu {
namespace {

// Below this many multiply-adds waking a second thread costs more than it saves.
constexpr int64_t kMinParallelProducts = 64 * 64 * 64;
// Columns per task of a transposed product: its output waits in scratch to be transposed.
constexpr int64_t kMaxTransposedColumns = 128;
// A panel of B used for fewer rows than this is read where it lies.
constexpr int64_t kMinRowsToPackB = 24;
// The same for A, in columns, when the floats of its rows are far apart.
constexpr int64_t kMinColumnsToPackA = 48;
// And when rows are contiguous but so spaced that they compete for the same lines of the cache, unless tiles are wide: those have
// few rows.
constexpr int64_t kConflictingStride = 1024 / sizeof(float);
constexpr int64_t kMinColumnsToPackConflicting = 512;
// Floats of scratch that a task has on its stack. A request of memory costs about as much as a product that small, most
// of which pack nothing, and the code of requests would push that of products out of the instruction cache.
constexpr int64_t kMaxStackFloats = 4352;

// Rows of a block, of which B's part is packed once. Where A is read in place they are as many as have their part of it in half of the
// second-level cache, from where it comes for every panel of B; copies of more rows would take scratch.
constexpr int64_t kMostBlockRows = 516;

// The product as the tiles see it: rows read one float at a time, columns 8 at a time. A transposed
// product computes C^T = B^T A^T.
struct Plan {
  GemmProblem p;
  bool transposed = false;
  int64_t block_rows, block_columns, block_depth;
  int64_t row_blocks, column_blocks;
};

struct SlotScratch {
  float* panel;   // block_depth x kMaxPanelWidth
  float* a;       // strips of 8 rows x block_depth
  float* output;  // block_rows x block_columns, transposed products only
};

int64_t BlockDepth(int64_t k) { return EvenPiece(k, kMaxBlockDepth, 8); }

int64_t CacheFloats() {
#if defined(_SC_LEVEL2_CACHE_SIZE)
  return std::max<int64_t>(0, sysconf(_SC_LEVEL2_CACHE_SIZE)) / sizeof(float);
#else
  return 0;
#endif
}

int64_t MaxRowsInPlace(int64_t k) {
  static const int64_t half = CacheFloats() / 2;
  const int64_t fitting = half / std::max<int64_t>(1, BlockDepth(k)) / kMaxTileRows * kMaxTileRows;
  return std::clamp(fitting, kMaxBlockRows, kMostBlockRows);
}

// Which operand should be read 8 floats at a time? One whose columns are contiguous needs no transposition. When neither is,
// either B is packed, once for each block of rows, or A is, and the output is written twice, once transposed: a float of
// output costs twice what a packed one does (measured for inner dimensions of 16 to 768, with AVX2 and AVX-512).
bool ShouldTranspose(const GemmProblem& p) {
  if (p.b_col_stride == 1) return false;
  if (p.a_row_stride == 1 && p.b_row_stride == 1) return true;
  return p.b_row_stride == 1 && p.a_col_stride == 1 &&
         2 * p.m * p.n + p.m * p.k < p.n * p.k * CeilDiv(p.m, MaxRowsInPlace(p.k));
}

bool ShouldPackRows(const TileKernels& kernels, const GemmProblem& p, int64_t columns) {
  if (p.a_col_stride != 1) return columns >= kMinColumnsToPackA;
  return kernels.usual_vectors < kMaxTileVectors && p.a_row_stride % kConflictingStride == 0 &&
         columns >= kMinColumnsToPackConflicting;
}

// C^T = B^T A^T.
GemmProblem Transposed(const GemmProblem& problem) {
  GemmProblem p = problem;
  std::swap(p.m, p.n);
  p.a = problem.b, p.a_row_stride = problem.b_col_stride, p.a_col_stride = problem.b_row_stride;
  p.b = problem.a, p.b_row_stride = problem.a_col_stride, p.b_col_stride = problem.a_row_stride;
  return p;
}

Plan MakePlan(const TileKernels& kernels, const GemmProblem& problem, int threads) {
  Plan plan;
  plan.p = problem;
  GemmProblem& p = plan.p;
  plan.transposed = ShouldTranspose(problem);
  if (plan.transposed) p = Transposed(problem);
  const int64_t max_columns = plan.transposed ? kMaxTransposedColumns : p.n;
  plan.block_depth = BlockDepth(p.k);
  const bool copies_rows = plan.transposed || ShouldPackRows(kernels, p, p.n);
  plan.block_rows = EvenPiece(p.m, copies_rows ? kMaxBlockRows : MaxRowsInPlace(p.k), kMaxTileRows);
  plan.block_columns = EvenPiece(p.n, max_columns, 16);
  const auto tasks = [&] {
    return CeilDiv(p.m, plan.block_rows) * CeilDiv(p.n, plan.block_columns);
  };
  // Cutting an output further repeats some packing, but gives every thread work.
  while (threads > 1 && tasks() < 4 * threads) {
    if (plan.block_columns > 64 && plan.block_columns >= plan.block_rows / 2) {
      plan.block_columns = RoundUp(plan.block_columns / 2, 16);
    } else if (plan.block_rows > 48) {
      plan.block_rows = RoundUp(plan.block_rows / 2, 12);
    } else {
      break;
    }
  }
  plan.row_blocks = CeilDiv(p.m, plan.block_rows);
  plan.column_blocks = CeilDiv(p.n, plan.block_columns);
  return plan;
}

// Pointers to rows [row, row + rows) of A from inner position k0 on; packs them first where that
// pays. Returns the step between floats of a row, in bytes.
int64_t PrepareRows(const TileKernels& kernels, const GemmProblem& p, int64_t row, int64_t rows,
                    int64_t k0, int64_t depth, int64_t columns, float* packed,
                    const float** pointers) {
  const float* a = p.a + row * p.a_row_stride + k0 * p.a_col_stride;
  if (!ShouldPackRows(kernels, p, columns)) {
    for (int64_t r = 0; r < rows; ++r) pointers[r] = a + r * p.a_row_stride;
    return p.a_col_stride * sizeof(float);
  }
  for (int64_t r = 0; r < rows; r += kVectorFloats) {
    kernels.pack_panel(a + r * p.a_row_stride, p.a_col_stride, p.a_row_stride, depth,
                       std::min<int64_t>(kVectorFloats, rows - r), kVectorFloats,
                       packed + r * depth);
  }
  for (int64_t r = 0; r < rows; ++r) {
    pointers[r] = packed + r / kVectorFloats * kVectorFloats * depth + r % kVectorFloats;
  }
  return kVectorFloats * sizeof(float);
}

int64_t Flags(bool accumulate, bool relu) {
  return int64_t{accumulate} * kTileAccumulate + int64_t{relu} * kTileRelu;
}

// One block of the output over the whole inner dimension.
void RunBlock(const TileKernels& kernels, const Plan& plan, int64_t row, int64_t column,
              const SlotScratch& scratch) {
  const GemmProblem& p = plan.p;
  const int64_t rows = std::min(plan.block_rows, p.m - row);
  const int64_t columns = std::min(plan.block_columns, p.n - column);
  const int64_t output_stride = RoundUp(columns, kVectorFloats);
  const float* a_rows[kMostBlockRows];
  float* c_rows[kMostBlockRows];
  for (int64_t r = 0; r < rows; ++r) {
    c_rows[r] =
        plan.transposed ? scratch.output + r * output_stride : p.c + (row + r) * p.ldc + column;
  }
  static constexpr int64_t kSegment = 0;
  float padded_bias[kMaxPanelWidth];
  int64_t k0 = 0;
  do {
    const int64_t depth = std::min(plan.block_depth, p.k - k0);
    const bool first = k0 == 0, last = k0 + depth == p.k;
    TileArgs args = {};
    args.a_step = PrepareRows(kernels, p, row, rows, k0, depth, columns, scratch.a, a_rows);
    args.segments_begin = &kSegment;
    args.segments_end = &kSegment + (depth > 0);
    args.segment_length = depth;
    args.flags =
        Flags(!first || (p.accumulate && !plan.transposed), last && p.relu && !plan.transposed);
    for (int64_t j = 0; j < columns;) {
      const int64_t width = NextPanelWidth(kernels, columns - j);
      const int64_t valid = std::min(width, columns - j);
      const float* b = p.b + k0 * p.b_row_stride + (column + j) * p.b_col_stride;
      if (p.b_col_stride == 1 && valid == width && rows < kMinRowsToPackB) {
        args.b = b;
        args.b_step = p.b_row_stride * sizeof(float);
      } else {
        kernels.pack_panel(b, p.b_row_stride, p.b_col_stride, depth, valid, width, scratch.panel);
        args.b = scratch.panel;
        args.b_step = width * sizeof(float);
      }
      args.c_offset = j * sizeof(float);
      if (plan.transposed) {
        SetPanelEdge(&args, width, width, nullptr, nullptr);
      } else {
        SetPanelEdge(&args, valid, width,
                     first && p.bias != nullptr ? p.bias + column + j : nullptr, padded_bias);
      }
      RunTiles(kernels, width, rows, a_rows, c_rows, &args);
      j += width;
    }
    k0 += depth;
  } while (k0 < p.k);
  if (plan.transposed) {
    // Row r of the scratch output is column row + r of C.
    const float* source = scratch.output;
    kernels.store_transposed(source, output_stride, rows, columns,
                             p.bias == nullptr ? nullptr : p.bias + row,
                             Flags(p.accumulate, p.relu), p.c + column * p.ldc + row, p.ldc);
  }
}

// Either operand may be the one that is packed so.
int64_t PanelFloats(int64_t m, int64_t n, int64_t k) {
  return AlignFloats(BlockDepth(k) *
                     std::min(RoundUp(std::max(m, n), kVectorFloats), kMaxPanelWidth));
}
int64_t StripFloats(int64_t rows, int64_t k) {
  return AlignFloats(RoundUp(std::min(rows, kMaxBlockRows), kVectorFloats) * BlockDepth(k));
}
int64_t OutputFloats(int64_t rows, int64_t columns) {
  return AlignFloats(std::min(rows, kMaxBlockRows) *
                     RoundUp(std::min(columns, kMaxTransposedColumns), kVectorFloats));
}
int64_t SlotFloats(int64_t m, int64_t n, int64_t k) {
  return PanelFloats(m, n, k) + std::max(StripFloats(m, k), StripFloats(n, k) + OutputFloats(n, m));
}

// Of a problem whose strides are known. What is packed hangs on the plan.
struct SlotParts {
  int64_t panel, a, output;

  SlotParts(const TileKernels& kernels, const GemmProblem& of) {
    GemmProblem p = of;
    const bool transposed = ShouldTranspose(of);
    if (transposed) p = Transposed(of);
    panel = PanelFloats(p.m, p.n, p.k);
    a = ShouldPackRows(kernels, p, p.n) ? StripFloats(p.m, p.k) : 0;
    output = transposed ? OutputFloats(p.m, p.n) : 0;
  }
  int64_t floats() const { return panel + a + output; }
};

void Check(const GemmProblem& p) {
  if (p.m < 0 || p.n < 0 || p.k < 0 || p.ldc < p.n) {
    ThrowInvalidArgument(absl::StrCat("Gemm: found m=", p.m, " n=", p.n, " k=", p.k, " ldc=", p.ldc,
                                      ", expected sizes >= 0 and ldc >= n"));
  }
  if (p.m > 0 && p.n > 0 && (p.c == nullptr || (p.k > 0 && (p.a == nullptr || p.b == nullptr)))) {
    ThrowInvalidArgument(absl::StrCat("Gemm: a null matrix in a product of m=", p.m, " n=", p.n,
                                      " k=", p.k, ", expected pointers to A, B and C"));
  }
}

// A product with one row or one column, bound by reading the matrix once.
struct MatrixVector {
  const float* matrix;
  int64_t outputs, output_stride, inner_stride;  // of the matrix
  const float* x;
  int64_t x_stride;
  int64_t c_stride, bias_stride;

  explicit MatrixVector(const GemmProblem& p) {
    if (p.m == 1) {
      *this = {p.b, p.n, p.b_col_stride, p.b_row_stride, p.a, p.a_col_stride, 1, 1};
    } else {
      *this = {p.a, p.m, p.a_row_stride, p.a_col_stride, p.b, p.b_row_stride, p.ldc, 0};
    }
  }
  MatrixVector(const float* matrix, int64_t outputs, int64_t output_stride, int64_t inner_stride,
               const float* x, int64_t x_stride, int64_t c_stride, int64_t bias_stride)
      : matrix(matrix),
        outputs(outputs),
        output_stride(output_stride),
        inner_stride(inner_stride),
        x(x),
        x_stride(x_stride),
        c_stride(c_stride),
        bias_stride(bias_stride) {}

  bool UsesDots() const { return inner_stride == 1 && x_stride == 1; }
  bool Supported() const { return UsesDots() || (output_stride == 1 && c_stride == 1); }
};

constexpr int64_t kMatrixVectorOutputs = 512;  // per task

void RunMatrixVector(const TileKernels& kernels, const GemmProblem& p, const MatrixVector& v,
                     int64_t first, int64_t count) {
  const float* matrix = v.matrix + first * v.output_stride;
  float* c = p.c + first * v.c_stride;
  float sums[kMatrixVectorOutputs] = {};
  if (v.UsesDots()) {
    kernels.dot_rows(matrix, v.output_stride, count, v.x, p.k, sums);
  } else {
    kernels.combine_rows(matrix, v.inner_stride, count, v.x, v.x_stride, p.k, sums);
  }
  for (int64_t i = 0; i < count; ++i) {
    float sum = sums[i];
    if (p.accumulate) sum += c[i * v.c_stride];
    if (p.bias != nullptr) sum += p.bias[(first + i) * v.bias_stride];
    if (p.relu && sum < 0.0f) sum = 0.0f;
    c[i * v.c_stride] = sum;
  }
}

void RunTask(const TileKernels& kernels, const Plan& plan, const SlotParts& parts, int64_t index,
             float* scratch) {
  SlotScratch memory;
  memory.panel = scratch;
  memory.a = memory.panel + parts.panel;
  memory.output = memory.a + parts.a;
  RunBlock(kernels, plan, index / plan.column_blocks * plan.block_rows,
           index % plan.column_blocks * plan.block_columns, memory);
}

// Out of line: only these tasks have a frame of that size.
[[gnu::noinline]] void RunTaskOnStack(const TileKernels& kernels, const Plan& plan,
                                      const SlotParts& parts, int64_t index) {
  alignas(kScratchAlignment) float scratch[kMaxStackFloats];
  RunTask(kernels, plan, parts, index, scratch);
}

}  // namespace

size_t GemmScratchBytes(int64_t m, int64_t n, int64_t k, int threads) {
  if (m <= 0 || n <= 0 || k < 0) return 0;
  const int64_t slot_floats = SlotFloats(m, n, k);
  if (slot_floats <= kMaxStackFloats) return 0;
  return static_cast<size_t>(slot_floats) * sizeof(float) * std::max(threads, 1);
}

size_t GemmScratchBytes(const GemmProblem& p, int threads) {
  if (p.m <= 0 || p.n <= 0 || p.k < 0) return 0;
  const int64_t slot_floats = SlotParts(SelectedTileKernels(), p).floats();
  if (slot_floats <= kMaxStackFloats) return 0;
  return static_cast<size_t>(slot_floats) * sizeof(float) * std::max(threads, 1);
}

void Gemm(const GemmProblem& problem, void* scratch, ThreadPool* pool) {
  Check(problem);
  if (problem.m == 0 || problem.n == 0) return;
  const TileKernels& kernels = SelectedTileKernels();
  if (problem.m * problem.n * problem.k < kMinParallelProducts) pool = nullptr;
  if (problem.m == 1 || problem.n == 1) {
    const MatrixVector v(problem);
    if (v.Supported()) {
      ParallelTasks(pool, CeilDiv(v.outputs, kMatrixVectorOutputs), [&](int64_t index, int) {
        const int64_t first = index * kMatrixVectorOutputs;
        RunMatrixVector(kernels, problem, v, first,
                        std::min(kMatrixVectorOutputs, v.outputs - first));
      });
      return;
    }
  }
  const Plan plan = MakePlan(kernels, problem, PoolThreads(pool));
  const SlotParts parts(kernels, problem);
  const int64_t slot_floats = parts.floats();
  ParallelTasks(pool, plan.row_blocks * plan.column_blocks, [&](int64_t index, int slot) {
    if (slot_floats <= kMaxStackFloats) {
      RunTaskOnStack(kernels, plan, parts, index);
    } else {
      RunTask(kernels, plan, parts, index, static_cast<float*>(scratch) + slot * slot_floats);
    }
  });
}

}  // namespace tidepool::cpu
