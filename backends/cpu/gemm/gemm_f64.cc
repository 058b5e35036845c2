#include "tidepool/backends/cpu/gemm/gemm_f64.h"

#include <algorithm>

#include "tidepool/backends/cpu/gemm/parallel_tasks.h"
#include "tidepool/backends/cpu/gemm/tile_block.h"
#include "tidepool/backends/cpu/instruction_set.h"

namespace tidepool::cpu {
namespace {

// Rows packed at once, for the second-level cache.
constexpr int64_t kBlockRows = 120;
// The largest part of C of one task; B is packed once for it, and A.
constexpr int64_t kTaskRows = 960, kTaskColumns = 528;
constexpr int64_t kMinParallelProducts = 64 * 64 * 64;
// Multiples of those of every tile.
constexpr int64_t kMostTileRows = 8, kMostTileColumns = 24, kMostDepth = 256;

const TileF64& Tile() {
#if defined(__x86_64__)
  if (BestInstructionSet() >= InstructionSet::kAvx512) return kAvx512TileF64;
  if (BestInstructionSet() >= InstructionSet::kAvx2) return kAvx2TileF64;
#endif
  return kPortableTileF64;
}

// kWidth vectors side by side: known widths keep the inner loop in registers.
template <int kWidth>
void PackPanel(const double* from, int64_t vector_stride, int64_t depth_stride, int64_t depth,
               double* to) {
  for (int64_t k = 0; k < depth; ++k) {
    for (int i = 0; i < kWidth; ++i)
      to[k * kWidth + i] = from[i * vector_stride + k * depth_stride];
  }
}

// Panels [depth][width] of `count` vectors, the last filled up with zeros.
void Pack(const TileF64& tile, const double* from, int64_t vector_stride, int64_t depth_stride,
          int64_t count, int64_t depth, int64_t width, double* to) {
  if (tile.pack != nullptr && (vector_stride == 1 || depth_stride == 1))
    return tile.pack(from, vector_stride, depth_stride, count, depth, width, to);
  for (int64_t first = 0; first < count; first += width) {
    const int64_t valid = std::min(width, count - first);
    const double* panel = from + first * vector_stride;
    if (valid == width && vector_stride == 1) {
      for (int64_t k = 0; k < depth; ++k) {
        std::copy_n(panel + k * depth_stride, width, to + k * width);
      }
    } else if (valid == width && width == 4) {
      PackPanel<4>(panel, vector_stride, depth_stride, depth, to);
    } else if (valid == width && width == 8) {
      PackPanel<8>(panel, vector_stride, depth_stride, depth, to);
    } else if (valid == width && width == 12) {
      PackPanel<12>(panel, vector_stride, depth_stride, depth, to);
    } else {
      for (int64_t k = 0; k < depth; ++k) {
        for (int64_t i = 0; i < width; ++i) {
          to[k * width + i] = i < valid ? panel[i * vector_stride + k * depth_stride] : 0.0;
        }
      }
    }
    to += depth * width;
  }
}

// How a tile joins C.
struct Join {
  bool add, relu;
  const double* bias;
};

void Store(const double* tile, int64_t tile_columns, int64_t rows, int64_t columns,
           const Join& join, double* c, int64_t ldc) {
  for (int64_t i = 0; i < rows; ++i) {
    double* __restrict__ to = c + i * ldc;
    const double* __restrict__ from = tile + i * tile_columns;
    if (join.add) {
      for (int64_t j = 0; j < columns; ++j) to[j] += from[j];
    } else {
      for (int64_t j = 0; j < columns; ++j) to[j] = from[j];
    }
    if (join.bias != nullptr) {
      for (int64_t j = 0; j < columns; ++j) to[j] += join.bias[j];
    }
    if (join.relu) {
      for (int64_t j = 0; j < columns; ++j) to[j] = to[j] < 0.0 ? 0.0 : to[j];
    }
  }
}

struct Scratch {
  double* a;
  double* b;
};

int64_t RowFloats(int64_t m, int64_t k) {
  return RoundUp(std::min(m, kBlockRows), kMostTileRows) * std::min(k, kMostDepth);
}
int64_t ColumnFloats(int64_t n, int64_t k) {
  return RoundUp(std::min(n, kTaskColumns), kMostTileColumns) * std::min(k, kMostDepth);
}

struct TaskSize {
  int64_t rows, columns;

  TaskSize(const GemmF64Problem& p, int threads)
      : rows(EvenPiece(p.m, kTaskRows, kBlockRows)),
        columns(EvenPiece(p.n, kTaskColumns, kMostTileColumns)) {
    const auto tasks = [&] { return CeilDiv(p.m, rows) * CeilDiv(p.n, columns); };
    while (threads > 1 && tasks() < 4 * threads) {
      if (columns > 2 * kMostTileColumns && columns >= rows) {
        columns = RoundUp(columns / 2, kMostTileColumns);
      } else if (rows > 2 * kMostTileColumns) {
        rows = RoundUp(rows / 2, kMostTileColumns);
      } else {
        break;
      }
    }
  }
};

// A tile that is cut off, or to which something is to be done beside adding.
void MultiplyApart(const TileF64& tile, const double* a, const double* b, int64_t depth,
                   int64_t width, int64_t rows, int64_t columns, const Join& join, double* c,
                   int64_t ldc) {
  double sums[kMostTileRows * kMostTileColumns];
  tile.multiply(a, b, depth, width, sums, width, false);
  Store(sums, width, rows, columns, join, c, ldc);
}

void RunTask(const TileF64& tile, const GemmF64Problem& p, const TaskSize& size, int64_t row,
             int64_t column, const Scratch& scratch) {
  const int64_t rows_end = std::min(p.m, row + size.rows);
  const int64_t columns = std::min(size.columns, p.n - column);
  const int64_t whole = columns / tile.columns * tile.columns;
  const int64_t last_width = RoundUp(columns - whole, tile.narrowest);
  int64_t k0 = 0;
  do {  // once without inner positions, for the bias
    const int64_t depth = std::min(tile.depth, p.k - k0);
    const bool first = k0 == 0, last = k0 + depth == p.k;
    const double* const b = p.b + k0 * p.b_row_stride + column * p.b_col_stride;
    Pack(tile, b, p.b_col_stride, p.b_row_stride, whole, depth, tile.columns, scratch.b);
    Pack(tile, b + whole * p.b_col_stride, p.b_col_stride, p.b_row_stride, columns - whole, depth,
         last_width, scratch.b + whole * depth);
    for (int64_t block = row; block < rows_end; block += kBlockRows) {
      const int64_t rows = std::min(kBlockRows, rows_end - block);
      Pack(tile, p.a + block * p.a_row_stride + k0 * p.a_col_stride, p.a_row_stride, p.a_col_stride,
           rows, depth, tile.rows, scratch.a);
      for (int64_t j = 0; j < columns; j += tile.columns) {
        const int64_t width = j < whole ? tile.columns : last_width;
        const int64_t valid = std::min<int64_t>(width, columns - j);
        const Join join{!first || p.accumulate, last && p.relu,
                        first && p.bias != nullptr ? p.bias + column + j : nullptr};
        const bool is_plain = valid == width && !join.relu && join.bias == nullptr;
        for (int64_t i = 0; i < rows; i += tile.rows) {
          double* const c = p.c + (block + i) * p.ldc + column + j;
          if (is_plain && rows - i >= tile.rows) {
            tile.multiply(scratch.a + i * depth, scratch.b + j * depth, depth, width, c, p.ldc,
                          join.add);
          } else {
            MultiplyApart(tile, scratch.a + i * depth, scratch.b + j * depth, depth, width,
                          std::min<int64_t>(tile.rows, rows - i), valid, join, c, p.ldc);
          }
        }
      }
    }
    k0 += depth;
  } while (k0 < p.k);
}

}  // namespace

size_t GemmF64ScratchBytes(int64_t m, int64_t n, int64_t k, int threads) {
  if (m <= 0 || n <= 0 || k <= 0) return 0;
  return static_cast<size_t>(RowFloats(m, k) + ColumnFloats(n, k)) * sizeof(double) *
         std::max(threads, 1);
}

void GemmF64(const GemmF64Problem& p, void* scratch, ThreadPool* pool) {
  if (p.m == 0 || p.n == 0) return;
  const TileF64& tile = Tile();
  if (p.m * p.n * p.k < kMinParallelProducts) pool = nullptr;
  const TaskSize size(p, PoolThreads(pool));
  const int64_t row_tasks = CeilDiv(p.m, size.rows);
  const int64_t column_tasks = CeilDiv(p.n, size.columns);
  const int64_t slot = RowFloats(p.m, p.k) + ColumnFloats(p.n, p.k);
  ParallelTasks(pool, row_tasks * column_tasks, [&](int64_t index, int thread) {
    Scratch memory;
    memory.a = static_cast<double*>(scratch) + thread * slot;
    memory.b = memory.a + RowFloats(p.m, p.k);
    RunTask(tile, p, size, index / column_tasks * size.rows, index % column_tasks * size.columns,
            memory);
  });
}

}  // namespace tidepool::cpu
