// The cycles of a record: those its program marked (workspaces do), or what comes again and again
// among a thread's allocations.
//
// A period is looked for in each thread's sizes: the shortest distance at which they repeat, for three
// times at least and most of the thread's allocations, a tenth of them other ones. A cycle begins where
// the fewest blocks are alive that the other side of it made.
//
// Threads: values. Cost: by period, some passes over a thread's allocations for each distance that is
// worth trying, 96 at most: the most common ones between the same sizes, and the same runs of them.
#ifndef TIDEPOOL_MEMORY_RECORDING_RECORDED_CYCLES_H_
#define TIDEPOOL_MEMORY_RECORDING_RECORDED_CYCLES_H_

#include <cstdint>
#include <vector>

#include "tidepool/memory/recording/record.h"
#include "tidepool/memory/recording/recorded_blocks.h"

namespace tidepool {

struct RecordedCycle {
  uint32_t thread = 0;
  uint32_t name = 0;            // index into Record::names; 0 of one that was found by its period
  uint32_t begin = 0, end = 0;  // indices into Record::events: those of its thread from `begin` to
                                // before `end` are its own
};

struct RecordedCycles {
  std::vector<RecordedCycle> cycles;  // by `begin`; of one thread one after the other or nested
  // By block (RecordedBlocks): the innermost cycle that made it and in which it was released, kNone
  // for those made outside of cycles and those that outlive theirs.
  static constexpr uint32_t kNone = UINT32_MAX;
  std::vector<uint32_t> cycle_of;
  std::vector<uint32_t> made_in;  // those that outlive it too
  bool by_marks = false;
  uint32_t period = 0;     // allocations; of the thread with the most cycles, where not by marks
  uint64_t in_cycles = 0;  // blocks of cycle_of
  uint64_t outliving = 0;  // blocks that a cycle made and that outlive it
  uint64_t elsewhere = 0;  // marked cycles that are left out: they end on another thread, or never
};

RecordedCycles FindCycles(const Record& record, const RecordedBlocks& blocks);

// The same sizes again: what FindCycles looks for. `period` 0: nothing repeats.
struct Repetition {
  uint32_t period = 0;
  uint32_t begin = 0, end = 0;  // of `sizes`; a multiple of the period
};
Repetition FindRepetition(const std::vector<uint64_t>& sizes);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_RECORDING_RECORDED_CYCLES_H_
