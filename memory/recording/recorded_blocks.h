// The blocks of a record: which allocation goes with which release, and how much was alive at once.
//
// Threads: values. Cost: a hash of what is alive; 12 bytes a block, 4 an event.
#ifndef TIDEPOOL_MEMORY_RECORDING_RECORDED_BLOCKS_H_
#define TIDEPOOL_MEMORY_RECORDING_RECORDED_BLOCKS_H_

#include <cstdint>
#include <vector>

#include "tidepool/memory/recording/record.h"

namespace tidepool {

struct RecordedBlock {
  static constexpr uint32_t kNever = UINT32_MAX;
  uint32_t made = kNever;   // index of the event in Record::events
  uint32_t freed = kNever;  // likewise; kNever: alive when recording ended
  // Its key was given again without a release, which is missing: it ends at that event, `freed`.
  bool end_is_guessed = false;
};

struct RecordedBlocks {
  std::vector<RecordedBlock> blocks;  // by `made`
  // By event: the block that it makes or releases, kNever for others.
  std::vector<uint32_t> block_of;
  uint64_t live_bound = 0;  // the most bytes that were alive at once, those from before among them
  uint32_t live_bound_at = 0;  // index of the event that made it so; 0 without events
  uint64_t requested = 0;      // bytes of all allocations
  uint64_t from_before = 0;    // bytes alive when recording began
  uint64_t never_freed = 0;    // blocks
  uint64_t never_freed_bytes = 0;
  uint64_t unknown_frees = 0;  // of blocks from before, or whose allocation is missing
};

// Throws kResourceExhausted for more than 2^32 - 2 events.
RecordedBlocks MatchBlocks(const Record& record);

// Bytes that were alive after each event.
std::vector<uint64_t> LiveBytes(const Record& record, const RecordedBlocks& blocks);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_RECORDING_RECORDED_BLOCKS_H_
