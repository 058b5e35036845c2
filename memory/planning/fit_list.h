// The placed buffers of a first-fit or best-fit planner, by offset.
#ifndef TIDEPOOL_MEMORY_PLANNING_FIT_LIST_H_
#define TIDEPOOL_MEMORY_PLANNING_FIT_LIST_H_

#include <cstdint>
#include <vector>

#include "tidepool/memory/planning/sections.h"

namespace tidepool {

// A sequence of blocks of up to 64 placed items, sorted by offset, each block with the range of
// time it touches. Finding a gap walks the blocks upward and compares lifetimes of a block at
// once; inserting moves at most one block's entries. O(n) memory.
class FitList {
 public:
  enum class Fit { kFirst, kBest };

  // Keeps its memory for the next use.
  void Clear();

  // The offset of the lowest (kFirst) or tightest (kBest) gap that holds `item` beside the placed
  // items it shares a section with. O(number placed), mostly far less.
  int64_t FindOffset(const SectionItem& item, Fit fit);

  // Records `item` at `offset`.
  void Insert(const SectionItem& item, int64_t offset);

  // Blocks compared and touched since construction: the planners' clock, in place of time, so
  // that their results do not depend on the machine.
  int64_t work() const { return work_; }

 private:
  static constexpr int kBlockSize = 64;
  struct Block {
    int count = 0;
    int32_t first_min = 0;
    int32_t last_max = 0;
    int32_t first[kBlockSize];
    int32_t last[kBlockSize];
    int64_t offset[kBlockSize];
    int64_t end[kBlockSize];
  };

  Block& NewBlock(size_t position);
  void UpdateRange(Block& block);

  std::vector<Block> blocks_;    // storage, never shrinks
  std::vector<int32_t> order_;   // the blocks in use, by offset
  std::vector<int64_t> lowest_;  // the lowest offset in each, parallel to order_
  int64_t work_ = 0;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PLANNING_FIT_LIST_H_
