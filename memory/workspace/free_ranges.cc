#include "tidepool/memory/workspace/free_ranges.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

namespace tidepool {
namespace {

constexpr size_t kFirstSlab = 64;
constexpr size_t kLargestSlab = 4096;

}  // namespace

void FreeRanges::Begin(size_t begin, size_t end) noexcept {
  begun_ = true;
  begin_ = top_ = reached_ = begin;
  end_ = std::max(begin, end);
  last_ = nullptr;
  free_.Clear();
  if (kept_ranges_ > 0) std::fill(std::begin(kept_), std::end(kept_), nullptr);
  kept_ranges_ = 0;
  std::fill(std::begin(kept_sizes_), std::end(kept_sizes_), 0);
  recycled_ = nullptr;
  if (!slabs_.empty()) UseRecords(0);
}

size_t FreeRanges::state_bytes() const {
  size_t bytes = slabs_.capacity() * sizeof(Slab);
  for (const Slab& slab : slabs_) bytes += slab.size * sizeof(Range);
  return bytes;
}

// ---- records ----------------------------------------------------------------------------------

void FreeRanges::UseRecords(size_t slab) noexcept {
  fresh_ = slabs_[slab].ranges.get();
  fresh_end_ = fresh_ + slabs_[slab].size;
  next_slab_ = slab + 1;
}

void FreeRanges::Trim() noexcept {
  if (begun_) return;
  std::vector<Slab>().swap(slabs_);
  next_slab_ = 0;
  fresh_ = fresh_end_ = recycled_ = last_ = nullptr;
}

void FreeRanges::AddRecords() {
  if (next_slab_ == slabs_.size()) {
    const size_t size =
        slabs_.empty() ? kFirstSlab : std::min(kLargestSlab, 2 * slabs_.back().size);
    slabs_.push_back({std::make_unique<Range[]>(size), size});
  }
  UseRecords(next_slab_);
}

FreeRanges::Range* FreeRanges::NewRange() noexcept {
  if (recycled_ != nullptr) return std::exchange(recycled_, recycled_->next_);
  return fresh_++;
}

void FreeRanges::Recycle(Range* range) noexcept {
  range->next_ = recycled_;
  recycled_ = range;
}

// ---- taking -----------------------------------------------------------------------------------

FreeRanges::Range* FreeRanges::Take(size_t bytes, size_t* offset) noexcept {
  const size_t units = bytes / unit_;
  Range* range = nullptr;
  if (units <= kKeptUnits && kept_[units] != nullptr) {
    range = kept_[units];
    kept_[units] = range->next_;
    --kept_ranges_;
    range->state_ = State::kTaken;
  } else {
    range = TakeFree(bytes);
    if (range == nullptr && kept_ranges_ > 0 && bytes > reached_ - top_) {
      MergeKept();
      range = TakeFree(bytes);
    }
    if (range == nullptr) range = TakeUnused(bytes);
    if (range == nullptr) return nullptr;
  }
  *offset = range->offset_;
  return range;
}

FreeRanges::Range* FreeRanges::TakeFree(size_t bytes) noexcept {
  auto* const range = static_cast<Range*>(free_.BestFit(bytes));
  if (range == nullptr) return nullptr;
  free_.Remove(range);
  range->state_ = State::kTaken;
  if (range->size == bytes) return range;
  // What is left lies above. A free range is never the last one, so it has a neighbour there.
  Range* const rest = NewRange();
  rest->size = range->size - bytes;
  rest->offset_ = range->offset_ + bytes;
  rest->below_ = range;
  rest->above_ = range->above_;
  rest->above_->below_ = rest;
  range->above_ = rest;
  range->size = bytes;
  rest->state_ = State::kFree;
  free_.Insert(rest);
  return range;
}

FreeRanges::Range* FreeRanges::TakeUnused(size_t bytes) noexcept {
  if (bytes > end_ - top_) return nullptr;
  Range* const range = NewRange();
  range->size = bytes;
  range->offset_ = top_;
  range->below_ = last_;
  range->above_ = nullptr;
  range->state_ = State::kTaken;
  if (last_ != nullptr) last_->above_ = range;
  last_ = range;
  top_ += bytes;
  reached_ = std::max(reached_, top_);
  return range;
}

// ---- giving back ------------------------------------------------------------------------------

void FreeRanges::Give(Range* range) noexcept {
  const size_t units = range->size / unit_;
  if (units > kKeptUnits || range == last_) return MakeFree(range);
  range->state_ = State::kKept;
  range->next_ = kept_[units];
  kept_[units] = range;
  kept_sizes_[units / 64] |= uint64_t{1} << (units % 64);
  ++kept_ranges_;
}

// Merges it with its free neighbours; what ends at the top goes below the top.
void FreeRanges::MakeFree(Range* range) noexcept {
  Range* const below = range->below_;
  if (below != nullptr && below->state_ == State::kFree) {
    free_.Remove(below);
    below->size += range->size;
    below->above_ = range->above_;
    if (range->above_ != nullptr) range->above_->below_ = below;
    if (last_ == range) last_ = below;
    Recycle(range);
    range = below;
  }
  Range* const above = range->above_;
  if (above == nullptr) {
    top_ = range->offset_;
    last_ = range->below_;
    if (last_ != nullptr) last_->above_ = nullptr;
    Recycle(range);
    return;
  }
  if (above->state_ == State::kFree) {
    free_.Remove(above);
    range->size += above->size;
    range->above_ = above->above_;  // a free range is never the last one
    range->above_->below_ = range;
    Recycle(above);
  }
  range->state_ = State::kFree;
  free_.Insert(range);
}

void FreeRanges::MergeKept() noexcept {
  for (size_t word = 0; word < std::size(kept_sizes_); ++word) {
    for (uint64_t sizes = std::exchange(kept_sizes_[word], 0); sizes != 0; sizes &= sizes - 1) {
      Range*& first = kept_[64 * word + static_cast<size_t>(std::countr_zero(sizes))];
      while (first != nullptr) {
        Range* const range = first;
        first = range->next_;
        // One that is merged with a kept neighbour later is still that neighbour's own.
        MakeFree(range);
      }
    }
  }
  kept_ranges_ = 0;
}

FreeRanges::Range* FreeRanges::Append(size_t offset, size_t bytes, State state,
                                      Range* below) noexcept {
  Range* const range = NewRange();
  range->size = bytes;
  range->offset_ = offset;
  range->state_ = state;
  range->below_ = below;
  range->above_ = nullptr;
  if (below != nullptr) below->above_ = range;
  return range;
}

void FreeRanges::GiveBelow(absl::Span<Taken> taken) {
  // All records first, because there may be no memory for them.
  Range* reserved = nullptr;
  size_t missing = 2 * taken.size() + 1;
  try {
    for (; missing > 0; --missing) {
      Reserve();
      Range* const range = NewRange();
      range->next_ = reserved;
      reserved = range;
    }
  } catch (...) {
    while (reserved != nullptr) Recycle(std::exchange(reserved, reserved->next_));
    throw;
  }
  while (reserved != nullptr) Recycle(std::exchange(reserved, reserved->next_));

  Range* lowest = last_;
  while (lowest != nullptr && lowest->below_ != nullptr) lowest = lowest->below_;
  begin_ = 0;
  if (lowest == nullptr) reached_ = 0;
  size_t at = 0;
  Range* below = nullptr;
  for (Taken& piece : taken) {
    if (piece.offset > at) {
      below = Append(at, piece.offset - at, State::kFree, below);
      free_.Insert(below);
    }
    below = piece.range = Append(piece.offset, piece.bytes, State::kTaken, below);
    at = piece.offset + piece.bytes;
  }
  reached_ = std::max(reached_, at);
  if (lowest == nullptr) {
    last_ = below;
    top_ = at;
    return;
  }
  if (lowest->state_ == State::kFree) {
    free_.Remove(lowest);
    lowest->size += lowest->offset_ - at;
    lowest->offset_ = at;
    free_.Insert(lowest);
  } else if (at < lowest->offset_) {
    below = Append(at, lowest->offset_ - at, State::kFree, below);
    free_.Insert(below);
  }
  lowest->below_ = below;
  if (below != nullptr) below->above_ = lowest;
}

void FreeRanges::RaiseBegin(size_t begin) noexcept {
  if (begin <= begin_) return;
  begin_ = begin;
  end_ = std::max(begin, end_);
  MergeKept();
  if (top_ <= begin) {
    // Nothing that is taken lies below `begin`, so nothing is taken at all.
    Begin(begin, end_);
    return;
  }
  Range* range = last_;
  while (range->below_ != nullptr) range = range->below_;
  while (range->offset_ < begin) {
    // Free, by what the caller says.
    Range* const above = range->above_;
    free_.Remove(range);
    const size_t upper = range->offset_ + range->size;
    if (upper > begin) {
      range->size = upper - begin;
      range->offset_ = begin;
      free_.Insert(range);
      return;
    }
    above->below_ = nullptr;
    Recycle(range);
    range = above;
  }
}

}  // namespace tidepool
