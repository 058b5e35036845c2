// How a pool's spans of addresses grow and have holes: addresses whose memory went back to the
// system.
#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/pool_memory.h"

namespace tidepool {
namespace {

// So much more than what was in use at once may be held before gaps go for what is taken.
constexpr size_t kGapsShare = 12;
constexpr size_t kLeastGaps = size_t{64} << 10;
// Smaller ones do not go then, nor less than this part of what was in use: each is a system call
// and a part of the system's books.
constexpr size_t kLeastGap = size_t{64} << 10;
constexpr size_t kLeastGapShare = 1024;
// And without need.
constexpr size_t kLeastHole = size_t{1} << 20;

}  // namespace

// Nobody else changes its pages meanwhile.
template <typename Change>
void PoolMemory::ChangePages(Lock& lock, Span& span, std::vector<Gap> gaps, const Change& change) {
  span.resizing = true;
  const auto end = [&] {
    lock.lock();
    span.resizing = span.moves = false;
    span.base = span.pages.base();
    span.reserved_bytes = span.pages.reserved_bytes();
    span.held_bytes = span.pages.committed_bytes();
    span.hole_end = span.pages.hole_end();
    Report();
    for (const Gap& gap : gaps) {
      if (gap.gone) {
        span.holes.push_back(gap.range);  // there is room
      } else {
        span.ranges.Give(gap.range, gap.bytes);
      }
    }
    if (waiting_ > 0) resized_.notify_all();
  };
  lock.unlock();
  for (Gap& gap : gaps) gap.gone = span.pages.MakeHole(gap.offset, gap.bytes, gap.splits);
  try {
    change();
  } catch (...) {
    end();
    throw;
  }
  end();
}

void PoolMemory::Resize(Lock& lock, Span& span, size_t bytes) {
  ChangePages(lock, span, {}, [&] { span.pages.Resize(bytes); });
}

// For `bytes` above all that is in it, where there is no room for them. Gaps go for what is taken.
void PoolMemory::Extend(Lock& lock, Span& span, size_t bytes) {
  // It is open from here on: cycles that end meanwhile are open beside it, and memory is taken for that.
  const size_t open = range_bytes_ + bytes;
  const size_t top = span.ranges.top(), end = top + bytes;
  const size_t lacks = end - span.ranges.end();
  std::vector<Gap> gaps = GapsToGive(span, lacks, bytes, /*above=*/false);
  ChangePages(lock, span, std::move(gaps), [&] {
    // Of a hole that could not be cut off when all above had to go.
    const size_t hole_end = std::min(span.pages.hole_end(), end);
    if (hole_end > top) span.pages.FillHole(top, hole_end - top);
    span.pages.Resize(end);
  });
  span.ranges.SetEnd(std::max(end, span.ranges.top()));
  CountOpen(open);
}

// Addresses of which some have no memory, which they get. None: there are none so long, or no
// memory.
PoolMemory::Range PoolMemory::GrowInHoles(Lock& lock, size_t bytes) {
  for (uint32_t i = 0; i < spans_.size(); ++i) {
    const Range range = PlaceOverHoles(i, bytes);
    if (!range.is_taken()) continue;
    Span& span = *spans_[i];
    const size_t offset = span.ranges.offset(range.range), end = offset + bytes;
    const size_t open = range_bytes_ + bytes;  // as in Extend()
    size_t lacks = 0;
    for (const Pages::Hole& hole : span.pages.holes()) {
      const size_t begin = std::max(hole.begin, offset);
      lacks += std::max(std::min(hole.end, end), begin) - begin;
    }
    try {
      ChangePages(lock, span, GapsToGive(span, lacks, bytes, /*above=*/true),
                  [&] { span.pages.FillHole(offset, bytes); });
    } catch (const OutOfMemoryError&) {
      span.holes.push_back(range.range);  // there is room
      continue;
    } catch (...) {
      span.holes.push_back(range.range);
      throw;
    }
    CountOpen(open);
    return range;
  }
  return {};
}

// Holes and free ranges beside them are one: the best fit of all of them, whose holes are to be
// filled next, with the lock held until then. Throws std::bad_alloc, nothing changed.
PoolMemory::Range PoolMemory::PlaceOverHoles(uint32_t number, size_t bytes) {
  Span& span = *spans_[number];
  if (span.holes.empty() || span.resizing || span.moves) return {};
  const std::vector<Pages::Hole>& holes = span.pages.holes();
  const size_t most = holes.size() + 1;
  std::vector<FreeRanges::Taken> lack;
  lack.reserve(most);
  span.holes.reserve(std::max(span.holes.size(), most) + 1);
  span.ranges.Reserve(2 * most + 1);
  for (const FreeRanges::Range hole : span.holes) span.ranges.Give(hole, span.ranges.bytes(hole));
  span.ranges.Merge();
  const Range range = TakeFrom(number, bytes);
  const size_t begin = range.is_taken() ? span.ranges.offset(range.range) : SIZE_MAX;
  const auto add = [&](size_t from, size_t to) {
    if (from < to) lack.push_back({from, to - from});
  };
  for (const Pages::Hole& hole : holes) {
    // As they lay in free ranges, which begin and end at multiples of the unit.
    const size_t from = (hole.begin - kReadableTailBytes) & ~(unit_ - 1);
    const size_t to = (hole.end + unit_ - 1) & ~(unit_ - 1);
    if (from >= span.ranges.end()) break;  // could not be cut off
    if (!range.is_taken() || to <= begin || from >= begin + bytes) {
      add(from, to);
    } else {
      add(from, begin);
      add(begin + bytes, to);
    }
  }
  span.ranges.TakeAt(absl::MakeSpan(lack));
  span.holes.clear();
  for (const FreeRanges::Taken& hole : lack) span.holes.push_back(hole.range);
  return range;
}

// ---- holes ------------------------------------------------------------------------------------

// Before `lacks` bytes more are held for a range of `bytes`. `above`: also of what lies above all
// that is in use.
std::vector<PoolMemory::Gap> PoolMemory::GapsToGive(Span& span, size_t lacks, size_t bytes,
                                                    bool above) noexcept {
  const size_t in_use = std::max(most_in_use_, InUse() + bytes);
  const size_t most = in_use + in_use / kGapsShare + kLeastGaps;
  const size_t held = HeldInSpans() + lacks;
  std::vector<Gap> gaps;
  if (held <= most) return gaps;
  const size_t least = std::max(kLeastGap, in_use / kLeastGapShare);
  span.ranges.Merge();
  for (size_t taken = 0; taken < held - most;) {
    const size_t unused = above ? span.ranges.end() - span.ranges.top() : 0;
    const size_t largest = std::max(span.ranges.largest_free(), unused);
    if (largest < least) break;
    const size_t wanted = std::max(least, held - most - taken);
    if (!TakeGap(span, std::min(largest, wanted), /*splits=*/true, gaps)) break;
    taken += gaps.back().bytes;
  }
  return gaps;
}

// So many bytes and a little more of a free range, of which there is one. False: there is no memory
// for its record.
bool PoolMemory::TakeGap(Span& span, size_t bytes, bool splits, std::vector<Gap>& gaps) noexcept {
  try {
    span.ranges.Reserve();
    gaps.reserve(gaps.size() + 1);
    span.holes.reserve(span.holes.size() + gaps.size() + 2);
  } catch (const std::bad_alloc&) {
    return false;
  }
  Gap gap = {};
  gap.bytes = (bytes + unit_ - 1) & ~(unit_ - 1);
  gap.range = span.ranges.Take(gap.bytes, &gap.offset);
  if (gap.range == FreeRanges::Range::kNone) return false;
  gap.splits = splits;
  gaps.push_back(gap);
  return true;
}

// What ends at the top has no memory: the span must end there before anything is taken.
bool PoolMemory::DropHolesAtTop(Span& span) noexcept {
  bool any = false;
  for (size_t i = 0; i < span.holes.size();) {
    const FreeRanges::Range hole = span.holes[i];
    const size_t hole_bytes = span.ranges.bytes(hole);
    if (span.ranges.offset(hole) + hole_bytes != span.ranges.top()) {
      ++i;
      continue;
    }
    span.holes[i] = span.holes.back();
    span.holes.pop_back();
    span.ranges.Give(hole, hole_bytes);
    any = true;
    i = 0;
  }
  return any;
}

// Returns bytes.
size_t PoolMemory::MakeHoles(Lock& lock, Span& span) noexcept {
  if (span.resizing) return 0;
  const size_t before = span.held_bytes;
  std::vector<Gap> gaps;
  span.ranges.Merge();
  while (span.ranges.largest_free() >= kLeastHole) {
    if (!TakeGap(span, span.ranges.largest_free(), /*splits=*/false, gaps)) break;
  }
  if (gaps.empty()) return 0;
  ChangePages(lock, span, std::move(gaps), [] {});
  return before - std::min(before, span.held_bytes);
}

}  // namespace tidepool
