// The innermost loop of products of bf16 by AMX: a matrix of 16 rows of pairs times one of 16 columns in one instruction.
//
// An operand of the instruction is a tile register of 16 rows of 64 bytes. Rows of A are 32 neighbouring inner positions, read
// where they lie; of B a row is a pair of inner positions of 16 columns (tile_bf16.h); sums are floats. Four registers are sums
// of 32 rows and 32 columns, two are of A and two of B, so that each loaded register is multiplied twice.
//
// Threads: the registers' shape is set for a thread by an AmxScope, which gives them back: while they hold anything, the system
// saves 8 KiB more whenever the thread is interrupted.
#ifndef TIDEPOOL_BACKENDS_CPU_GEMM_TILE_BF16_AMX_H_
#define TIDEPOOL_BACKENDS_CPU_GEMM_TILE_BF16_AMX_H_

#include <stdint.h>

namespace tidepool::cpu {

constexpr int kAmxRows = 16;   // of a tile register
constexpr int kAmxDepth = 32;  // inner positions of a step
constexpr int kAmxPairs = kAmxDepth / 2;

// Sixteen rows of A: `steps` times 32 inner positions that are neighbours, and one more step read elsewhere.
struct AmxRows {
  const void* rows;
  int64_t row_bytes;  // between rows
  const void* tail;   // only where the call has a tail
  int64_t tail_row_bytes;
};

// sums[r][j] = (0 or sums[r][j]) + sum over inner positions of A[r] * B[., j], for 16 rows of each group and 16 or 32 columns.
struct AmxTileArgs {
  AmxRows groups[2];  // the second where there are more than 16 rows
  const void* b;      // packed: of each pair 32 words, pairs filled up to whole steps
  int64_t steps;
  bool has_tail;
  bool reads_sums;
  float* sums;  // rows of 32 floats one behind the other
};

struct AmxTiles {
  void (*multiply[3][3])(
      const AmxTileArgs& args);  // by groups of rows and halves of 32 columns, from [1][1]
  void (*begin)();
  void (*end)();
};

// Null where the processor has no AMX or the system does not let this process use it, which is asked for once, at the first call:
// from then on signal stacks of less than what the registers take beside a frame (12 KiB together) are refused by the system.
const AmxTiles* SelectedAmxTiles();
// Makes SelectedAmxTiles() answer null while true. Not thread-safe.
void RefuseAmxForTesting(bool refuse);
// Null when not built for this architecture; else for processes that may use AMX only.
const AmxTiles* BuiltAmxTiles();

// Tile registers of this thread while it lives.
class AmxScope {
 public:
  explicit AmxScope(const AmxTiles& tiles) : tiles_(tiles) { tiles_.begin(); }
  ~AmxScope() { tiles_.end(); }
  AmxScope(const AmxScope&) = delete;
  AmxScope& operator=(const AmxScope&) = delete;

 private:
  const AmxTiles& tiles_;
};

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_GEMM_TILE_BF16_AMX_H_
