#include "tidepool/backends/cpu/gemm/gemm_bf16_amx.h"

#if defined(__linux__) && defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <algorithm>

#include "tidepool/backends/cpu/gemm/bf16_sums.h"
#include "tidepool/backends/cpu/gemm/parallel_tasks.h"
#include "tidepool/backends/cpu/gemm/tile_block.h"
#include "tidepool/backends/cpu/instruction_set.h"

namespace tidepool::cpu {
namespace {

constexpr int64_t kPanel = kBf16PanelColumns;
constexpr int64_t kGroup = kAmxRows, kStrip = 2 * kGroup;
// Inner positions worked on at once: a panel of B takes 32 KiB of the first-level cache.
constexpr int64_t kMaxDepth = 512;
// Of a task: A's rows, the panels of B and sums that wait for more inner positions are read from the second-level cache, which has 2
// MiB where there is AMX. Without such sums there is room for more columns.
constexpr int64_t kMaxRows = 512, kMaxColumns = 512, kMaxColumnsWithSums = 256;
// Columns of B packed at once, so that what is read of a row of B is more than a line of the cache.
constexpr int64_t kPackedColumns = 256;
// Rows of A so far apart compete for the same places of the first-level cache. They are copied, as those are whose parts lie across
// lines, where that is paid by so many columns.
constexpr int64_t kConflictingBytes = 4096, kLineBytes = 64, kMinColumnsToCopy = 64;

int64_t DepthOf(int64_t k) { return EvenPiece(k, kMaxDepth, kAmxDepth); }
int64_t Steps(int64_t depth) { return CeilDiv(depth, kAmxDepth); }
// Between packed rows: an odd number of lines of the cache.
int64_t RowStride(int64_t depth) { return (Steps(depth) / 2 * 2 + 1) * kAmxDepth; }
int64_t PanelWords(int64_t depth) { return Steps(depth) * kAmxPairs * kPanel; }

// Should C^T = B^T A^T be computed, whose B is A^T? Packing an operand along its inner positions costs a third of a cycle for each
// element, turning sums a quarter for each of C.
bool ShouldTurn(const GemmBf16Problem& p) {
  return p.b_row_stride == 1 && p.a_col_stride == 1 && !p.accumulate &&
         p.n * p.k * CeilDiv(p.m, kMaxRows) > p.m * (p.k * CeilDiv(p.n, kMaxRows) + p.n);
}

struct Plan {
  GemmBf16Problem
      p;  // what is multiplied; where it is turned, C, its strides and bias are those of the call
  bool is_turned;
  int64_t depth, rows, columns;  // of a block
  int64_t row_blocks, column_blocks;

  Plan(const GemmBf16Problem& problem, int threads) : p(problem), is_turned(ShouldTurn(problem)) {
    if (is_turned) {
      std::swap(p.m, p.n);
      std::swap(p.a, p.b);
      p.a_row_stride = problem.b_col_stride, p.a_col_stride = problem.b_row_stride;
      p.b_row_stride = problem.a_col_stride, p.b_col_stride = problem.a_row_stride;
    }
    depth = DepthOf(p.k);
    rows = EvenPiece(p.m, kMaxRows, kStrip);
    columns = EvenPiece(p.n, depth < p.k ? kMaxColumnsWithSums : kMaxColumns, kPanel);
    const auto tasks = [&] { return CeilDiv(p.m, rows) * CeilDiv(p.n, columns); };
    while (threads > 1 && tasks() < 4 * threads) {
      if (columns > 2 * kPanel && columns >= rows / 2) {
        columns = RoundUp(columns / 2, kPanel);
      } else if (rows > 2 * kStrip) {
        rows = RoundUp(rows / 2, kStrip);
      } else {
        break;
      }
    }
    row_blocks = CeilDiv(p.m, rows);
    column_blocks = CeilDiv(p.n, columns);
  }
};

// Bytes of a thread's scratch.
int64_t PanelBytes(int64_t n, int64_t k) {
  return CeilDiv(std::min(n, kPackedColumns), kPanel) * PanelWords(DepthOf(k)) * 4;
}
int64_t RowBytes(int64_t m, int64_t k) {
  return RoundUp(std::min(m, kMaxRows), kStrip) * RowStride(DepthOf(k)) * 2;
}
int64_t SumBytes(int64_t m, int64_t n, int64_t k) {
  if (k <= kMaxDepth) return 0;
  return RoundUp(std::min(m, kMaxRows), kStrip) *
         RoundUp(std::min(n, kMaxColumnsWithSums), kPanel) * 4;
}

struct SlotScratch {
  uint32_t* panels;
  uint16_t* rows;
  float* sums;  // [panel][row][32]

  SlotScratch(const GemmBf16Problem& p, char* memory)
      : panels(reinterpret_cast<uint32_t*>(memory)),
        rows(reinterpret_cast<uint16_t*>(memory + PanelBytes(p.n, p.k))),
        sums(reinterpret_cast<float*>(memory + PanelBytes(p.n, p.k) + RowBytes(p.m, p.k))) {}
};

// Rows `first` to `depth` of neighbours, and zeros up to `filled`.
void CopyRows(const uint16_t* from, int64_t from_stride, int64_t rows, int64_t first, int64_t depth,
              int64_t filled, uint16_t* to, int64_t to_stride) {
  for (int64_t i = 0; i < kGroup; ++i, from += from_stride, to += to_stride) {
    uint16_t* end = to + first;
    if (i < rows) end = std::copy(from + first, from + depth, end);
    std::fill(end, to + filled, uint16_t{0});
  }
}

// Where the groups of 16 rows [row, row + rows) of A lie from inner position k0 on. Copies those that do not lie as the
// instruction reads them: whole groups of neighbouring inner positions do, but for what is left of the last step.
void PrepareRows(const Bf16Tiles& tiles, const GemmBf16Problem& p, int64_t row, int64_t rows,
                 int64_t columns, int64_t k0, int64_t depth, uint16_t* packed, AmxRows* groups) {
  const uint16_t* const a = p.a + row * p.a_row_stride + k0 * p.a_col_stride;
  const int64_t whole = depth / kAmxDepth * kAmxDepth, filled = Steps(depth) * kAmxDepth;
  const int64_t stride = RowStride(depth), bytes = p.a_row_stride * 2;
  const bool is_slow = bytes % kConflictingBytes == 0 || bytes % kLineBytes != 0 ||
                       reinterpret_cast<uintptr_t>(a) % kLineBytes != 0;
  const bool reads_in_place = !is_slow || columns < kMinColumnsToCopy;
  for (int64_t r = 0; r < rows; r += kGroup) {
    const uint16_t* const from = a + r * p.a_row_stride;
    uint16_t* const to = packed + r * stride;
    AmxRows& group = groups[r / kGroup];
    group = {to, stride * 2, to + whole, stride * 2};
    if (p.a_col_stride != 1) {
      if (r % kStrip == 0)
        tiles.turn_rows(from, p.a_col_stride, depth, std::min(kStrip, rows - r), to, stride);
      continue;
    }
    const int64_t valid = std::min(kGroup, rows - r);
    int64_t first = 0;
    if (reads_in_place && valid == kGroup) {
      group.rows = from, group.row_bytes = bytes;
      first = whole;
    }
    if (first < filled) CopyRows(from, p.a_row_stride, valid, first, depth, filled, to, stride);
  }
}

// Panels of B, filled up to whole steps.
void PreparePanels(const Bf16Tiles& tiles, const GemmBf16Problem& p, int64_t column,
                   int64_t columns, int64_t k0, int64_t depth, uint32_t* panels) {
  const uint16_t* const b = p.b + k0 * p.b_row_stride + column * p.b_col_stride;
  const int64_t words = PanelWords(depth);
  if (p.b_col_stride == 1) tiles.pack_across(b, p.b_row_stride, depth, columns, words, panels);
  for (int64_t j = 0; j < columns; j += kPanel, panels += words) {
    if (p.b_col_stride != 1) {
      tiles.pack_along(b + j * p.b_col_stride, p.b_col_stride, depth, std::min(kPanel, columns - j),
                       panels);
    }
    std::fill(panels + CeilDiv(depth, 2) * kPanel, panels + words, uint32_t{0});
  }
}

// Rounds the sums of a part of C into it.
void Finish(const Bf16Tiles& tiles, const GemmBf16Problem& p, const Bf16Block& block,
            const float* sums) {
  Bf16TileArgs args = {};
  args.z = p.c + block.row * p.ldc + block.column;
  args.z_stride = p.ldc;
  args.columns = static_cast<int>(block.columns);
  args.relu = p.relu;
  float bias[kPanel] = {};
  if (p.bias != nullptr) {
    for (int64_t i = 0; i < block.columns; ++i) bias[i] = Bf16Widened(p.bias[block.column + i]);
    args.bias = bias;
  }
  if (tiles.finish(sums, block.rows, p.accumulate, args)) return;
  for (int64_t r = 0; r < block.rows; r += kGroup) {
    uint16_t results[kGroup * kPanel];
    const int64_t rows = std::min(kGroup, block.rows - r);
    args.z = results, args.z_stride = kPanel, args.keeps_nan = true;
    tiles.finish(sums + r * kPanel, rows, false, args);
    StoreBf16WithNan(p, {block.row + r, rows, block.column, block.columns}, results);
  }
}

// One block of the output over the whole inner dimension.
void RunBlock(const AmxTiles& amx, const Bf16Tiles& tiles, const GemmBf16Problem& call,
              const Plan& plan, int64_t row, int64_t column, const SlotScratch& scratch) {
  const GemmBf16Problem& p = plan.p;
  const int64_t rows = std::min(plan.rows, p.m - row),
                columns = std::min(plan.columns, p.n - column);
  const int64_t sum_rows = RoundUp(rows, kStrip);
  AmxRows groups[kMaxRows / kGroup + 1];
  alignas(64) float strip_sums[kStrip * kPanel];
  const bool keeps_sums = plan.depth < p.k;
  int64_t k0 = 0;
  do {
    const int64_t depth = std::min(plan.depth, p.k - k0);
    const bool last = k0 + depth == p.k;
    PrepareRows(tiles, p, row, rows, columns, k0, depth, scratch.rows, groups);
    AmxTileArgs args = {};
    args.steps = depth / kAmxDepth;
    args.has_tail = depth % kAmxDepth != 0;
    args.reads_sums = p.accumulate || k0 > 0;
    for (int64_t j = 0; j < columns; j += kPanel) {
      const int64_t valid = std::min(kPanel, columns - j);
      if (j % kPackedColumns == 0) {
        PreparePanels(tiles, p, column + j, std::min(kPackedColumns, columns - j), k0, depth,
                      scratch.panels);
      }
      args.b = scratch.panels + j % kPackedColumns / kPanel * PanelWords(depth);
      for (int64_t r = 0; r < rows; r += kStrip) {
        const int64_t strip = std::min(kStrip, rows - r);
        args.groups[0] = groups[r / kGroup], args.groups[1] = groups[r / kGroup + 1];
        args.sums = keeps_sums ? scratch.sums + j * sum_rows + r * kPanel : strip_sums;
        if (p.accumulate && k0 == 0)
          ReadBf16Sums(p, {row + r, strip, column + j, valid}, kStrip, args.sums);
        amx.multiply[CeilDiv(strip, kGroup)][CeilDiv(valid, 16)](args);
        if (!last) continue;
        if (plan.is_turned) {
          tiles.turn_sums(args.sums);
          Finish(tiles, call, {column + j, valid, row + r, strip}, args.sums);
        } else {
          Finish(tiles, call, {row + r, strip, column + j, valid}, args.sums);
        }
      }
    }
    k0 += depth;
  } while (k0 < p.k);
}

// Asks the system for the registers' memory of this process's threads.
bool MayUseAmx() {
#if defined(__linux__) && defined(__x86_64__)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

bool g_is_refused = false;

}  // namespace

const AmxTiles* SelectedAmxTiles() {
  static const AmxTiles* const tiles =
      BestInstructionSet() >= InstructionSet::kAmxBf16 && MayUseAmx() ? BuiltAmxTiles() : nullptr;
  return g_is_refused ? nullptr : tiles;
}

void RefuseAmxForTesting(bool refuse) { g_is_refused = refuse; }

size_t AmxScratchBytes(int64_t m, int64_t n, int64_t k) {
  const auto bytes = [&](int64_t rows, int64_t columns) {
    return PanelBytes(columns, k) + RowBytes(rows, k) + SumBytes(rows, columns, k);
  };
  return static_cast<size_t>(std::max(bytes(m, n), bytes(n, m)));
}

void GemmBf16ByAmx(const AmxTiles& amx, const Bf16Tiles& tiles, const GemmBf16Problem& p,
                   void* scratch, ThreadPool* pool) {
  const Plan plan(p, PoolThreads(pool));
  const int64_t slot_bytes = static_cast<int64_t>(AmxScratchBytes(p.m, p.n, p.k));
  ParallelTasks(pool, plan.row_blocks * plan.column_blocks, [&](int64_t index, int slot) {
    const SlotScratch memory(plan.p, static_cast<char*>(scratch) + slot * slot_bytes);
    const AmxScope scope(amx);
    RunBlock(amx, tiles, p, plan, index / plan.column_blocks * plan.rows,
             index % plan.column_blocks * plan.columns, memory);
  });
}

}  // namespace tidepool::cpu
