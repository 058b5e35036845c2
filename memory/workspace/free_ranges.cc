#include "tidepool/memory/workspace/free_ranges.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <new>
#include <utility>

namespace tidepool {
namespace {

constexpr size_t kFirstRecords = 64;
// What is kept by its size is at most this part of what is used before that grows for small ones.
constexpr size_t kKeptShare = 32;

// Calls `visit` with the number of each bit, which is cleared.
template <size_t n, typename Visit>
void TakeBits(uint64_t (&words)[n], const Visit& visit) {
  for (size_t word = 0; word < n; ++word) {
    for (uint64_t bits = std::exchange(words[word], 0); bits != 0; bits &= bits - 1) {
      visit(64 * word + static_cast<size_t>(std::countr_zero(bits)));
    }
  }
}

}  // namespace

FreeRanges::Lists::Lists() {
  std::fill(std::begin(kept), std::end(kept), kNobody);
  std::fill(std::begin(free), std::end(free), kNobody);
}

void FreeRanges::Clear() noexcept {
  last_ = recycled_ = kNobody;
  fresh_ = free_ranges_ = 0;
  kept_bytes_ = 0;
  if (lists_ == nullptr) return;
  TakeBits(lists_->kept_sizes, [this](size_t units) { lists_->kept[units] = kNobody; });
  TakeBits(lists_->free_sizes, [this](size_t list) { lists_->free[list] = kNobody; });
}

void FreeRanges::Begin(size_t begin, size_t end) noexcept {
  begun_ = true;
  goes_on_ = false;
  begun_again_ = 0;
  least_kept_ = 0;
  begin_ = top_ = reached_ = begin;
  end_ = std::max(begin, end);
  Clear();
}

void FreeRanges::Trim() noexcept {
  if (begun_) return;
  Clear();
  goes_on_ = false;
  records_.reset();
  capacity_ = 0;
  lists_.reset();
}

// ---- records ----------------------------------------------------------------------------------

// So many that were never used.
void FreeRanges::AddRecords(size_t records) {
  if (lists_ == nullptr) lists_ = std::make_unique<Lists>();
  if (capacity_ - fresh_ >= records) return;
  const size_t wanted =
      std::max({kFirstRecords, fresh_ + records, capacity_ + size_t{capacity_} / 2});
  if (wanted >= kNobody / 2) throw std::bad_alloc();  // the highest bit is others'
  MappedArray<Record> grown = MakeMappedArray<Record>(wanted);
  std::copy_n(records_.get(), fresh_, grown.get());
  records_ = std::move(grown);
  capacity_ = static_cast<uint32_t>(wanted);
}

uint32_t FreeRanges::NewRecord() noexcept {
  if (recycled_ == kNobody) return fresh_++;
  return std::exchange(recycled_, records_[recycled_].next);
}

void FreeRanges::Recycle(uint32_t range) noexcept {
  records_[range].next = recycled_;
  recycled_ = range;
}

// ---- free ones by size --------------------------------------------------------------------------

// Fewer than 16 units have a list for each number.
int FreeRanges::ListOf(size_t bytes) const {
  const size_t units = bytes >> unit_bits_;
  if (units < 8) return static_cast<int>(units);
  const int power = std::bit_width(units) - 1;
  return 8 * (power - 2) + static_cast<int>(units >> (power - 3) & 7);
}

// The first one from `list` on that has any; kLists: none.
int FreeRanges::NextList(int list) const {
  size_t word = static_cast<size_t>(list) / 64;
  if (list >= kLists) return kLists;
  uint64_t bits = lists_->free_sizes[word] >> (list % 64) << (list % 64);
  while (bits == 0) {
    if (++word == std::size(lists_->free_sizes)) return kLists;
    bits = lists_->free_sizes[word];
  }
  return static_cast<int>(64 * word) + std::countr_zero(bits);
}

void FreeRanges::PutFree(uint32_t range) noexcept {
  const int list = ListOf(BytesOf(range));
  Record& record = records_[range];
  record.state = State::kFree;
  record.previous = kNobody;
  record.next = std::exchange(lists_->free[list], range);
  if (record.next != kNobody) records_[record.next].previous = range;
  lists_->free_sizes[list / 64] |= uint64_t{1} << (list % 64);
  ++free_ranges_;
}

void FreeRanges::TakeOut(uint32_t range) noexcept {
  const Record& record = records_[range];
  --free_ranges_;
  if (record.next != kNobody) records_[record.next].previous = record.previous;
  if (record.previous != kNobody) {
    records_[record.previous].next = record.next;
    return;
  }
  const int list = ListOf(BytesOf(range));
  lists_->free[list] = record.next;
  if (record.next == kNobody) lists_->free_sizes[list / 64] &= ~(uint64_t{1} << (list % 64));
}

size_t FreeRanges::largest_free() const {
  if (free_ranges_ == 0) return 0;
  size_t word = std::size(lists_->free_sizes) - 1;
  while (lists_->free_sizes[word] == 0) --word;
  const int list = static_cast<int>(64 * word) + std::bit_width(lists_->free_sizes[word]) - 1;
  size_t largest = 0;
  for (uint32_t at = lists_->free[list]; at != kNobody; at = records_[at].next) {
    largest = std::max(largest, BytesOf(at));
  }
  return largest;
}

// About the smallest that is large enough: of the first in its list, else in the next one that has
// any.
uint32_t FreeRanges::FindFree(size_t bytes) const noexcept {
  const int own = ListOf(bytes);
  uint32_t best = kNobody;
  size_t best_bytes = SIZE_MAX;
  const auto look = [&](uint32_t at, int most) {
    for (; at != kNobody && most > 0; at = records_[at].next, --most) {
      const size_t its = BytesOf(at);
      if (its < bytes || its >= best_bytes) continue;
      best = at;
      best_bytes = its;
      if (its == bytes) break;
    }
    return at;
  };
  const uint32_t rest = look(lists_->free[own], kMostLookedAt);
  if (best != kNobody) return best;
  if (const int larger = NextList(own + 1); larger < kLists) {
    look(lists_->free[larger], kMostLookedAt);
    return best;
  }
  for (uint32_t at = rest; at != kNobody && best == kNobody; at = records_[at].next) look(at, 1);
  return best;
}

// ---- taking -----------------------------------------------------------------------------------

FreeRanges::Range FreeRanges::TakeSlowly(size_t bytes, size_t* offset) noexcept {
  if (bytes > end_ - begin_) return Range::kNone;  // there are lists for what there may be
  uint32_t range = TakeFree(bytes);
  const bool is_small = bytes >> unit_bits_ <= kKeptUnits;
  if (range == kNobody && bytes > reached_ - top_ &&
      kept_bytes_ > (is_small ? std::max((top_ - begin_) / kKeptShare, least_kept_) : 0)) {
    MergeKept();
    range = TakeFree(bytes);
  }
  if (range == kNobody) range = TakeUnused(bytes);
  if (range == kNobody && kept_bytes_ > 0) {
    MergeKept();
    range = TakeFree(bytes);
    if (range == kNobody) range = TakeUnused(bytes);
  }
  if (range != kNobody) *offset = records_[range].offset;
  return Range{range};
}

// What is left lies above and keeps its record.
uint32_t FreeRanges::TakeFree(size_t bytes) noexcept {
  if (free_ranges_ == 0) return kNobody;
  const uint32_t free = FindFree(bytes);
  if (free == kNobody) return kNobody;
  const size_t its = BytesOf(free);
  if (its == bytes) {
    TakeOut(free);
    records_[free].state = State::kTaken;
    return free;
  }
  const uint32_t taken = NewRecord();
  Record& rest = records_[free];
  const bool moves = ListOf(its) != ListOf(its - bytes);
  if (moves) TakeOut(free);
  Record& record = records_[taken];
  record.offset = rest.offset;
  record.state = State::kTaken;
  record.below = rest.below;
  record.above = free;
  if (rest.below != kNobody) records_[rest.below].above = taken;
  rest.below = taken;
  rest.offset += bytes;
  if (moves) PutFree(free);
  return taken;
}

uint32_t FreeRanges::TakeUnused(size_t bytes) noexcept {
  if (bytes > end_ - top_) return kNobody;
  last_ = Append(top_, State::kTaken, last_);
  top_ += bytes;
  reached_ = std::max(reached_, top_);
  return last_;
}

void FreeRanges::TakeAt(absl::Span<Taken> wanted) noexcept {
  MergeKept();
  const auto above = std::find_if(wanted.begin(), wanted.end(),
                                  [this](const Taken& one) { return one.offset >= top_; });
  uint32_t at = last_;
  for (auto one = above; one != wanted.begin();) {
    --one;
    while (records_[at].offset > one->offset) at = records_[at].below;
    one->range = Range{TakePart(at, one->offset, one->bytes)};
  }
  for (auto one = above; one != wanted.end(); ++one) {
    const size_t gap = one->offset - top_;
    if (gap > 0) last_ = Append(top_, State::kFree, last_);
    const uint32_t free = last_;
    last_ = Append(one->offset, State::kTaken, last_);
    if (gap > 0) PutFree(free);
    one->range = Range{last_};
    top_ = one->offset + one->bytes;
    reached_ = std::max(reached_, top_);
  }
}

// Of one that is free and has it: what lies below keeps the record.
uint32_t FreeRanges::TakePart(uint32_t free, size_t offset, size_t bytes) noexcept {
  TakeOut(free);
  const size_t end = records_[free].offset + BytesOf(free);
  const uint32_t above = records_[free].above;
  uint32_t taken = free;
  if (records_[free].offset < offset) {
    taken = Append(offset, State::kTaken, free);
    PutFree(free);
  }
  Record& record = records_[taken];
  record.state = State::kTaken;
  record.above = above;
  uint32_t next = taken;
  if (offset + bytes < end) {
    next = Append(offset + bytes, State::kFree, taken);
    records_[next].above = above;
    PutFree(next);
  }
  records_[above].below = next;  // a free range is never the last one
  return taken;
}

// It is the highest one there is by now.
uint32_t FreeRanges::Append(size_t offset, State state, uint32_t below) noexcept {
  const uint32_t range = NewRecord();
  Record& record = records_[range];
  record.offset = offset;
  record.state = state;
  record.below = below;
  record.above = kNobody;
  if (below != kNobody) records_[below].above = range;
  return range;
}

// ---- giving back ------------------------------------------------------------------------------

// Merges it with its free neighbours; what ends at the top goes below the top.
void FreeRanges::MakeFree(uint32_t range) noexcept {
  const uint32_t below = records_[range].below;
  if (below != kNobody && records_[below].state == State::kFree) {
    TakeOut(below);
    const uint32_t above = records_[range].above;
    records_[below].above = above;
    if (above != kNobody) records_[above].below = below;
    if (last_ == range) last_ = below;
    Recycle(range);
    range = below;
  }
  Record& record = records_[range];
  const uint32_t above = record.above;
  if (above == kNobody) {
    top_ = record.offset;
    last_ = record.below;
    if (last_ != kNobody) records_[last_].above = kNobody;
    Recycle(range);
    return;
  }
  if (records_[above].state == State::kFree) {
    TakeOut(above);
    record.above = records_[above].above;  // a free range is never the last one
    records_[record.above].below = range;
    Recycle(above);
  }
  PutFree(range);
}

void FreeRanges::MergeKept() noexcept {
  if (kept_bytes_ == 0) return;
  TakeBits(lists_->kept_sizes, [this](size_t units) {
    for (uint32_t at = std::exchange(lists_->kept[units], kNobody); at != kNobody;) {
      const uint32_t next = records_[at].next;
      // One that is merged with a kept neighbour later is still that neighbour's own.
      MakeFree(at);
      at = next;
    }
  });
  kept_bytes_ = 0;
}

void FreeRanges::GiveBelow(absl::Span<Taken> taken) {
  AddRecords(2 * taken.size() + 2);  // and one for who has reserved it
  uint32_t lowest = last_;
  while (lowest != kNobody && records_[lowest].below != kNobody) lowest = records_[lowest].below;
  begin_ = 0;
  if (lowest == kNobody) reached_ = 0;
  size_t at = 0;
  uint32_t below = kNobody;
  uint32_t gaps = kNobody;  // one behind the other, until all neighbours are there
  const auto append_gap = [&](size_t end) {
    if (end <= at) return;
    below = Append(at, State::kFree, below);
    records_[below].next = std::exchange(gaps, below);
  };
  for (Taken& piece : taken) {
    append_gap(piece.offset);
    below = Append(piece.offset, State::kTaken, below);
    piece.range = Range{below};
    at = piece.offset + piece.bytes;
  }
  reached_ = std::max(reached_, at);
  if (lowest == kNobody) {
    last_ = below;
    top_ = at;
  } else {
    if (records_[lowest].state == State::kFree) {
      TakeOut(lowest);
      records_[lowest].offset = at;
      records_[lowest].next = std::exchange(gaps, lowest);
    } else {
      append_gap(records_[lowest].offset);
    }
    records_[lowest].below = below;
    if (below != kNobody) records_[below].above = lowest;
  }
  while (gaps != kNobody) PutFree(std::exchange(gaps, records_[gaps].next));
}

void FreeRanges::RaiseBegin(size_t begin) noexcept {
  if (begin <= begin_) return;
  begin_ = begin;
  end_ = std::max(begin, end_);
  MergeKept();
  if (top_ <= begin) {
    // Nothing that is taken lies below `begin`, so nothing is taken at all.
    const bool goes_on = goes_on_;
    const size_t least_kept = least_kept_;
    Begin(begin, end_);
    goes_on_ = goes_on;
    least_kept_ = least_kept;
    return;
  }
  uint32_t range = last_;
  while (records_[range].below != kNobody) range = records_[range].below;
  while (records_[range].offset < begin) {
    // Free, by what the caller says.
    const uint32_t above = records_[range].above;
    TakeOut(range);
    if (records_[above].offset > begin) {
      records_[range].offset = begin;
      PutFree(range);
      return;
    }
    records_[above].below = kNobody;
    Recycle(range);
    range = above;
  }
}

}  // namespace tidepool
