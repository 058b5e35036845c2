#include "tidepool/memory/planning/fit_list.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

namespace tidepool {

void FitList::Clear() {
  order_.clear();
  lowest_.clear();
}

FitList::Block& FitList::NewBlock(size_t position) {
  // Blocks in use always are the first ones of the storage.
  const size_t index = order_.size();
  if (index == blocks_.size()) blocks_.emplace_back();
  blocks_[index].count = 0;
  order_.insert(order_.begin() + position, static_cast<int32_t>(index));
  lowest_.insert(lowest_.begin() + position, 0);
  return blocks_[index];
}

void FitList::UpdateRange(Block& block) {
  block.first_min = *std::min_element(block.first, block.first + block.count);
  block.last_max = *std::max_element(block.last, block.last + block.count);
}

int64_t FitList::FindOffset(const SectionItem& item, Fit fit) {
  int64_t floor = 0;  // The end of all conflicting items so far.
  int64_t best_gap = std::numeric_limits<int64_t>::max();
  int64_t best_offset = -1;
  for (const int32_t index : order_) {
    const Block& block = blocks_[index];
    ++work_;
    if (block.last_max <= item.first || block.first_min >= item.last) continue;
    // Unused tail entries may be compared too: their bits are not looked at.
    uint8_t conflicts[kBlockSize];
    for (int i = 0; i < kBlockSize; ++i) {
      conflicts[i] = (block.first[i] < item.last) & (block.last[i] > item.first);
    }
    for (int base = 0; base < block.count; base += 8) {
      uint64_t word;
      std::memcpy(&word, conflicts + base, sizeof(word));
      while (word != 0) {
        const int i = base + std::countr_zero(word) / 8;
        word &= word - 1;
        if (i >= block.count) break;
        const int64_t gap = block.offset[i] - floor;
        if (gap >= item.size) {
          if (fit == Fit::kFirst) return floor;
          if (gap < best_gap) {
            best_gap = gap;
            best_offset = floor;
          }
        }
        floor = std::max(floor, block.end[i]);
      }
    }
  }
  return best_offset >= 0 ? best_offset : floor;
}

void FitList::Insert(const SectionItem& item, int64_t offset) {
  ++work_;
  if (order_.empty()) NewBlock(0);
  // The last block that starts at or below the offset.
  const auto after = std::upper_bound(lowest_.begin(), lowest_.end(), offset);
  size_t position = after == lowest_.begin() ? 0 : static_cast<size_t>(after - lowest_.begin()) - 1;
  if (blocks_[order_[position]].count == kBlockSize) {
    constexpr int kHalf = kBlockSize / 2;
    Block& upper = NewBlock(position + 1);
    Block& lower = blocks_[order_[position]];
    std::copy(lower.first + kHalf, lower.first + kBlockSize, upper.first);
    std::copy(lower.last + kHalf, lower.last + kBlockSize, upper.last);
    std::copy(lower.offset + kHalf, lower.offset + kBlockSize, upper.offset);
    std::copy(lower.end + kHalf, lower.end + kBlockSize, upper.end);
    lower.count = kHalf;
    upper.count = kBlockSize - kHalf;
    UpdateRange(lower);
    UpdateRange(upper);
    lowest_[position + 1] = upper.offset[0];
    if (offset >= upper.offset[0]) ++position;
  }
  Block& block = blocks_[order_[position]];
  const int at = static_cast<int>(
      std::upper_bound(block.offset, block.offset + block.count, offset) - block.offset);
  std::copy_backward(block.first + at, block.first + block.count, block.first + block.count + 1);
  std::copy_backward(block.last + at, block.last + block.count, block.last + block.count + 1);
  std::copy_backward(block.offset + at, block.offset + block.count, block.offset + block.count + 1);
  std::copy_backward(block.end + at, block.end + block.count, block.end + block.count + 1);
  block.first[at] = item.first;
  block.last[at] = item.last;
  block.offset[at] = offset;
  block.end[at] = offset + item.size;
  block.first_min = block.count == 0 ? item.first : std::min(block.first_min, item.first);
  block.last_max = block.count == 0 ? item.last : std::max(block.last_max, item.last);
  ++block.count;
  lowest_[position] = block.offset[0];
}

}  // namespace tidepool
