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
  last_ = cut_ = nullptr;
  free_.Clear();
  if (kept_ranges_ > 0) std::fill(std::begin(kept_), std::end(kept_), nullptr);
  kept_ranges_ = 0;
  std::fill(std::begin(kept_sizes_), std::end(kept_sizes_), 0);
  ranges_.Restart();
  nodes_.Restart();
}

size_t FreeRanges::largest_free() const {
  return std::max(free_.Largest(), cut_ != nullptr ? cut_->bytes_ : 0);
}

size_t FreeRanges::state_bytes() const { return ranges_.state_bytes() + nodes_.state_bytes(); }

// ---- records ----------------------------------------------------------------------------------

template <typename T>
T* FreeRanges::Records<T>::Next() noexcept {
  if (recycled_ != nullptr) return std::exchange(recycled_, recycled_->next_);
  if (fresh_ == end_) {
    const Slab& slab = slabs_[next_slab_++];
    fresh_ = slab.records.get();
    end_ = fresh_ + slab.size;
  }
  return fresh_++;
}

template <typename T>
void FreeRanges::Records<T>::AddSlab() {
  const size_t size =
      slabs_.empty() ? kFirstSlab : std::min(kLargestSlab, 2 * slabs_.back().size);
  slabs_.push_back({std::make_unique<T[]>(size), size});
}

template <typename T>
void FreeRanges::Records<T>::Restart() noexcept {
  next_slab_ = 0;
  fresh_ = end_ = recycled_ = nullptr;
}

template <typename T>
void FreeRanges::Records<T>::Trim() noexcept {
  std::vector<Slab>().swap(slabs_);
  Restart();
}

template <typename T>
size_t FreeRanges::Records<T>::state_bytes() const {
  size_t bytes = slabs_.capacity() * sizeof(Slab);
  for (const Slab& slab : slabs_) bytes += slab.size * sizeof(T);
  return bytes;
}

void FreeRanges::Trim() noexcept {
  if (begun_) return;
  ranges_.Trim();
  nodes_.Trim();
  last_ = cut_ = nullptr;
}

// Without memory for its ranges a slab of nodes is one too many.
void FreeRanges::AddRecords() {
  nodes_.AddSlab();
  ranges_.AddSlab();
}

// ---- taking -----------------------------------------------------------------------------------

FreeRanges::Range* FreeRanges::Take(size_t bytes, size_t* offset) noexcept {
  const size_t units = bytes >> unit_bits_;
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
  const FitNode* const fit = free_.BestFit(bytes);
  Range* const range = fit != nullptr ? static_cast<const Node*>(fit)->range : nullptr;
  if (cut_ != nullptr && cut_->bytes_ >= bytes && (range == nullptr || cut_->bytes_ <= range->bytes_)) {
    return Cut(bytes);
  }
  if (range == nullptr) return nullptr;
  TakeOut(range);
  range->state_ = State::kTaken;
  if (range->bytes_ == bytes) return range;
  // What is left lies above. A free range is never the last one, so it has a neighbour there.
  Range* const rest = ranges_.Next();
  rest->bytes_ = range->bytes_ - bytes;
  rest->offset_ = range->offset_ + bytes;
  rest->below_ = range;
  rest->above_ = range->above_;
  rest->above_->below_ = rest;
  range->above_ = rest;
  range->bytes_ = bytes;
  PutFree(rest);
  return range;
}

FreeRanges::Range* FreeRanges::Cut(size_t bytes) noexcept {
  if (cut_->bytes_ == bytes) {
    cut_->state_ = State::kTaken;
    return std::exchange(cut_, nullptr);
  }
  Range* const range = ranges_.Next();
  range->bytes_ = bytes;
  range->offset_ = cut_->offset_;
  range->below_ = cut_->below_;
  range->above_ = cut_;
  range->state_ = State::kTaken;
  if (range->below_ != nullptr) range->below_->above_ = range;
  cut_->below_ = range;
  cut_->offset_ += bytes;
  cut_->bytes_ -= bytes;
  return range;
}

FreeRanges::Range* FreeRanges::TakeUnused(size_t bytes) noexcept {
  if (bytes > end_ - top_) return nullptr;
  Range* const range = ranges_.Next();
  range->bytes_ = bytes;
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

void FreeRanges::PutFree(Range* range) noexcept {
  range->state_ = State::kFree;
  if (cut_ == nullptr || cut_->bytes_ < range->bytes_) std::swap(cut_, range);
  if (range == nullptr) return;
  Node* const node = nodes_.Next();
  node->size = range->bytes_;
  node->range = range;
  range->node_ = node;
  free_.Insert(node);
}

void FreeRanges::TakeOut(Range* range) noexcept {
  if (range == cut_) {
    cut_ = nullptr;
    return;
  }
  free_.Remove(range->node_);
  nodes_.Recycle(range->node_);
}

void FreeRanges::Give(Range* range) noexcept {
  const size_t units = range->bytes_ >> unit_bits_;
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
    TakeOut(below);
    below->bytes_ += range->bytes_;
    below->above_ = range->above_;
    if (range->above_ != nullptr) range->above_->below_ = below;
    if (last_ == range) last_ = below;
    ranges_.Recycle(range);
    range = below;
  }
  Range* const above = range->above_;
  if (above == nullptr) {
    top_ = range->offset_;
    last_ = range->below_;
    if (last_ != nullptr) last_->above_ = nullptr;
    ranges_.Recycle(range);
    return;
  }
  if (above->state_ == State::kFree) {
    TakeOut(above);
    range->bytes_ += above->bytes_;
    range->above_ = above->above_;  // a free range is never the last one
    range->above_->below_ = range;
    ranges_.Recycle(above);
  }
  PutFree(range);
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
  Range* const range = ranges_.Next();
  range->bytes_ = bytes;
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
  size_t missing = 2 * taken.size() + 2;  // and one for who has reserved it
  try {
    for (; missing > 0; --missing) {
      Reserve();
      Range* const range = ranges_.Next();
      range->next_ = reserved;
      reserved = range;
    }
  } catch (...) {
    while (reserved != nullptr) ranges_.Recycle(std::exchange(reserved, reserved->next_));
    throw;
  }
  while (reserved != nullptr) ranges_.Recycle(std::exchange(reserved, reserved->next_));

  Range* lowest = last_;
  while (lowest != nullptr && lowest->below_ != nullptr) lowest = lowest->below_;
  begin_ = 0;
  if (lowest == nullptr) reached_ = 0;
  size_t at = 0;
  Range* below = nullptr;
  for (Taken& piece : taken) {
    if (piece.offset > at) {
      below = Append(at, piece.offset - at, State::kFree, below);
      PutFree(below);
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
    TakeOut(lowest);
    lowest->bytes_ += lowest->offset_ - at;
    lowest->offset_ = at;
    PutFree(lowest);
  } else if (at < lowest->offset_) {
    below = Append(at, lowest->offset_ - at, State::kFree, below);
    PutFree(below);
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
    TakeOut(range);
    const size_t upper = range->offset_ + range->bytes_;
    if (upper > begin) {
      range->bytes_ = upper - begin;
      range->offset_ = begin;
      PutFree(range);
      return;
    }
    above->below_ = nullptr;
    ranges_.Recycle(range);
    range = above;
  }
}

}  // namespace tidepool
