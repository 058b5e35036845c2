#include "tidepool/backends/cpu/gemm/gemm_bf16.h"

#include <algorithm>

#include "tidepool/backends/cpu/gemm/bf16_sums.h"
#include "tidepool/backends/cpu/gemm/gemm_bf16_amx.h"
#include "tidepool/backends/cpu/gemm/parallel_tasks.h"
#include "tidepool/backends/cpu/gemm/tile_bf16.h"
#include "tidepool/backends/cpu/gemm/tile_block.h"
#include "tidepool/backends/cpu/instruction_set.h"

namespace tidepool::cpu {
namespace {

// Products below which waking a second thread costs more than it saves.
constexpr int64_t kMinParallelProducts = 64 * 64 * 128;
// Inner positions worked on at once: a panel of them takes 32 KiB of the first-level cache.
constexpr int64_t kMaxDepth = 512;
constexpr int64_t kMaxRows = 264;     // of a task, a multiple of a tile's
constexpr int64_t kMaxColumns = 256;  // likewise
// Up to so many rows of A are multiplied vector by vector where B's columns are contiguous: packing B costs more.
constexpr int64_t kMostDotRows = 4;
constexpr int64_t kDotColumns = 256;  // of a task
constexpr int64_t kMostRowsOfSlowPairs = 31;

constexpr int64_t kPanel = kBf16PanelColumns;

int64_t DepthOf(int64_t k) { return EvenPiece(k, kMaxDepth, 32); }

struct Plan {
  GemmBf16Problem p;
  int64_t depth, rows, columns;  // of a block
  int64_t row_blocks, column_blocks;

  Plan(const GemmBf16Problem& problem, int threads)
      : p(problem),
        depth(DepthOf(p.k)),
        rows(EvenPiece(p.m, kMaxRows, kMaxBf16TileRows)),
        columns(EvenPiece(p.n, kMaxColumns, kPanel)) {
    const auto tasks = [&] { return CeilDiv(p.m, rows) * CeilDiv(p.n, columns); };
    while (threads > 1 && tasks() < 4 * threads) {
      if (columns > kPanel && columns >= rows / 2) {
        columns = RoundUp(columns / 2, kPanel);
      } else if (rows > 4 * kMaxBf16TileRows) {
        rows = RoundUp(rows / 2, kMaxBf16TileRows);
      } else {
        break;
      }
    }
    row_blocks = CeilDiv(p.m, rows);
    column_blocks = CeilDiv(p.n, columns);
  }
};

// Words of a thread's scratch: a panel of B, a block of A, sums between blocks of the inner dimension.
int64_t PanelWords(int64_t k) { return CeilDiv(DepthOf(k), 2) * kPanel; }
int64_t RowWords(int64_t m, int64_t k) {
  return RoundUp(std::min(m, kMaxRows), kPanel) * CeilDiv(DepthOf(k), 2);
}
int64_t SumFloats(int64_t m, int64_t n) {
  return std::min(m, kMaxRows) * RoundUp(std::min(n, kMaxColumns), kPanel);
}
int64_t SlotWords(int64_t m, int64_t n, int64_t k) {
  return AlignFloats(PanelWords(k)) + AlignFloats(RowWords(m, k)) + AlignFloats(SumFloats(m, n));
}

struct SlotScratch {
  uint32_t* panel;
  uint32_t* rows;
  float* sums;  // [panel][row][32]
};

// Pointers to the pairs of rows [row, row + rows) of A from inner position k0 on, packed where they do not lie as pairs.
// Returns the bytes between pairs.
int64_t PrepareRows(const Bf16Tiles& tiles, const GemmBf16Problem& p, int64_t row, int64_t rows,
                    int64_t k0, int64_t depth, uint32_t* packed, const void** pointers) {
  const uint16_t* a = p.a + row * p.a_row_stride + k0 * p.a_col_stride;
  // An odd last element would be paired with what lies behind the row.
  if (p.a_col_stride == 1 && depth % 2 == 0) {
    for (int64_t r = 0; r < rows; ++r) pointers[r] = a + r * p.a_row_stride;
    return sizeof(uint32_t);
  }
  const int64_t strip = CeilDiv(depth, 2) * kPanel;
  for (int64_t r = 0; r < rows; r += kPanel) {
    const int64_t valid = std::min(kPanel, rows - r);
    uint32_t* const to = packed + r / kPanel * strip;
    if (p.a_col_stride == 1) {
      tiles.pack_along(a + r * p.a_row_stride, p.a_row_stride, depth, valid, to);
    } else {
      tiles.pack_across(a + r, p.a_col_stride, depth, valid, 0, to);
    }
  }
  for (int64_t r = 0; r < rows; ++r) pointers[r] = packed + r / kPanel * strip + r % kPanel;
  return kPanel * sizeof(uint32_t);
}

// A tile with NaN.
[[gnu::noinline]] void RunTileWithNan(const Bf16Tiles& tiles, const GemmBf16Problem& p,
                                      Bf16TileArgs args, const Bf16Block& block) {
  uint16_t results[kMaxBf16TileRows * kPanel];
  args.z = results, args.z_stride = kPanel, args.keeps_nan = true;
  tiles.tile[block.rows](args);
  StoreBf16WithNan(p, block, results);
}

// One block of the output over the whole inner dimension.
void RunBlock(const Bf16Tiles& tiles, const Plan& plan, int64_t row, int64_t column,
              const SlotScratch& scratch) {
  const GemmBf16Problem& p = plan.p;
  const int64_t rows = std::min(plan.rows, p.m - row),
                columns = std::min(plan.columns, p.n - column);
  const void* a_rows[kMaxRows];
  if (p.accumulate) ReadBf16Sums(p, {row, rows, column, columns}, rows, scratch.sums);
  int64_t k0 = 0;
  do {
    const int64_t depth = std::min(plan.depth, p.k - k0);
    const bool last = k0 + depth == p.k;
    Bf16TileArgs args = {};
    args.a_step = PrepareRows(tiles, p, row, rows, k0, depth, scratch.rows, a_rows);
    args.b = scratch.panel;
    args.pairs = CeilDiv(depth, 2);
    args.reads_sums = p.accumulate || k0 > 0;
    args.relu = p.relu;
    args.z_stride = p.ldc;
    for (int64_t j = 0; j < columns; j += kPanel) {
      const int64_t valid = std::min(kPanel, columns - j);
      const uint16_t* b = p.b + k0 * p.b_row_stride + (column + j) * p.b_col_stride;
      if (p.b_col_stride == 1) {
        tiles.pack_across(b, p.b_row_stride, depth, valid, 0, scratch.panel);
      } else {
        tiles.pack_along(b, p.b_col_stride, depth, valid, scratch.panel);
      }
      float bias[kPanel] = {};
      if (last && p.bias != nullptr) {
        for (int64_t i = 0; i < valid; ++i) bias[i] = Bf16Widened(p.bias[column + j + i]);
        args.bias = bias;
      }
      args.columns = static_cast<int>(valid);
      for (int64_t r = 0; r < rows;) {
        const int64_t left = rows - r;
        // The last two tiles share what is left evenly: a tile of one or two rows is slow.
        const int64_t tile_rows = left >= 2 * kMaxBf16TileRows ? kMaxBf16TileRows
                                  : left > kMaxBf16TileRows    ? CeilDiv(left, 2)
                                                               : left;
        args.a_rows = a_rows + r;
        args.sums = scratch.sums + j * rows + r * kPanel;
        args.z = last ? p.c + (row + r) * p.ldc + column + j : nullptr;
        if (!tiles.tile[tile_rows](args))
          RunTileWithNan(tiles, p, args, {row + r, tile_rows, column + j, valid});
        r += tile_rows;
      }
    }
    k0 += depth;
  } while (k0 < p.k);
}

bool UsesDots(const GemmBf16Problem& p) {
  return p.m <= kMostDotRows && p.a_col_stride == 1 && p.b_row_stride == 1;
}

void RunDots(const Bf16Tiles& tiles, const GemmBf16Problem& p, int64_t first, int64_t count) {
  for (int64_t row = 0; row < p.m; ++row) {
    float sums[kDotColumns];
    tiles.dot_rows(p.b + first * p.b_col_stride, p.b_col_stride, count, p.a + row * p.a_row_stride,
                   p.k, sums);
    uint16_t* const c = p.c + row * p.ldc + first;
    for (int64_t i = 0; i < count; ++i) {
      float sum = sums[i];
      if (p.accumulate) sum += Bf16Widened(c[i]);
      if (p.bias != nullptr) sum += Bf16Widened(p.bias[first + i]);
      if (p.relu && sum < 0.0f) sum = 0.0f;
      c[i] = Bf16Rounded(sum != sum ? SlowBf16Sum(p, row, first + i) : sum);
    }
  }
}

}  // namespace

const Bf16Tiles* SelectedBf16Tiles() {
  return BestInstructionSet() >= InstructionSet::kAvx512Bf16 ? Avx512Bf16Tiles() : nullptr;
}

bool HasGemmBf16() { return SelectedBf16Tiles() != nullptr; }

bool IsGemmBf16Ahead(int64_t m, int64_t n, int64_t k, bool pairs_are_fast, bool has_amx) {
  return pairs_are_fast || m <= kMostRowsOfSlowPairs || (has_amx && IsForAmx(m, n, k));
}

bool IsGemmBf16Ahead(int64_t m, int64_t n, int64_t k) {
  static const bool pairs_are_fast = PairsOfBf16AreFast();
  return HasGemmBf16() && IsGemmBf16Ahead(m, n, k, pairs_are_fast, SelectedAmxTiles() != nullptr);
}

size_t GemmBf16ScratchBytes(int64_t m, int64_t n, int64_t k, int threads) {
  if (m <= 0 || n <= 0 || k < 0) return 0;
  const size_t slot = IsForAmx(m, n, k) && SelectedAmxTiles() != nullptr
                          ? AmxScratchBytes(m, n, k)
                          : static_cast<size_t>(SlotWords(m, n, k)) * sizeof(uint32_t);
  return slot * std::max(threads, 1);
}

void GemmBf16(const GemmBf16Problem& p, void* scratch, ThreadPool* pool) {
  if (p.m == 0 || p.n == 0) return;
  const Bf16Tiles& tiles = *SelectedBf16Tiles();
  if (p.m * p.n * p.k < kMinParallelProducts) pool = nullptr;
  if (UsesDots(p)) {
    ParallelTasks(pool, CeilDiv(p.n, kDotColumns), [&](int64_t index, int) {
      const int64_t first = index * kDotColumns;
      RunDots(tiles, p, first, std::min(kDotColumns, p.n - first));
    });
    return;
  }
  const AmxTiles* const amx = IsForAmx(p.m, p.n, p.k) ? SelectedAmxTiles() : nullptr;
  if (amx != nullptr) return GemmBf16ByAmx(*amx, tiles, p, scratch, pool);
  const Plan plan(p, PoolThreads(pool));
  const int64_t slot_words = SlotWords(p.m, p.n, p.k);
  ParallelTasks(pool, plan.row_blocks * plan.column_blocks, [&](int64_t index, int slot) {
    SlotScratch memory;
    memory.panel = static_cast<uint32_t*>(scratch) + slot * slot_words;
    memory.rows = memory.panel + AlignFloats(PanelWords(p.k));
    memory.sums = reinterpret_cast<float*>(memory.rows + AlignFloats(RowWords(p.m, p.k)));
    RunBlock(tiles, plan, index / plan.column_blocks * plan.rows,
             index % plan.column_blocks * plan.columns, memory);
  });
}

}  // namespace tidepool::cpu
