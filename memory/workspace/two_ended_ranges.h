// The free ranges of a workspace's pages (free_ranges.h), small ones apart from large ones.
//
// A small block that stays where a large one was leaves a gap that the next large one may not fit:
// streams of large requests that are ever different, with small ones in between that stay, held
// nearly twice what was alive and asked the system in each cycle. So what is small beside all that
// lies there (a 64th) comes from the end of the pages downwards, as long as that takes no more than
// a quarter, once 3 MiB lie there. Small ones beyond that, and those that a range of their very
// size was kept for, lie between the others. Each end serves the other's requests before one is
// refused.
//
// Interface, threads and cost are those of FreeRanges, whose way for what was released in the same
// size is as it is there.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_TWO_ENDED_RANGES_H_
#define TIDEPOOL_MEMORY_WORKSPACE_TWO_ENDED_RANGES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "tidepool/memory/workspace/free_ranges.h"

namespace tidepool {

class TwoEndedRanges {
 public:
  using Range = FreeRanges::Range;
  using Taken = FreeRanges::Taken;

  explicit TwoEndedRanges(size_t unit) : low_(unit), high_(unit) {}

  void Begin(size_t begin, size_t end) noexcept;
  void BeginAgain(size_t begin, size_t end) noexcept;
  void Trim() noexcept;
  void End() noexcept {
    if (high_.begun()) low_.Lose();
    low_.End();
    high_.End();
  }
  void Lose() noexcept { low_.Lose(); }
  bool begun() const { return low_.begun(); }
  void GiveBelow(absl::Span<Taken> taken);
  void RaiseBegin(size_t begin) noexcept;

  bool has_reserved() const { return low_.has_reserved() && high_.has_reserved(); }
  void Reserve() {
    low_.Reserve();
    high_.Reserve();
  }
  Range Take(size_t bytes, size_t* offset) noexcept {
    const bool low = !high_.begun() && low_.top() - low_.begin() < kLeast;
    return low || low_.HasKept(bytes) ? low_.Take(bytes, offset) : TakeSlowly(bytes, offset);
  }
  // As FreeRanges'; what is kept at the low end comes first in any case.
  Range TakeKept(size_t bytes, size_t* offset) noexcept { return low_.TakeKept(bytes, offset); }
  void Give(Range range, size_t bytes) noexcept {
    const auto number = static_cast<uint32_t>(range);
    if ((number & kHigh) == 0) return low_.Give(range, bytes);
    high_.Give(Range{number & ~kHigh}, bytes);
  }

  void Merge() noexcept;
  void SetEnd(size_t end) noexcept;

  size_t begin() const { return low_.begin(); }
  // Nothing is taken between these two; after Merge(), right below and right above something is.
  size_t top() const { return low_.top(); }
  size_t end() const { return low_.end(); }
  size_t largest_free() const {
    return std::max(low_.largest_free(), high_.begun() ? high_.largest_free() : 0);
  }
  // Pages up to here would have had room for all that was taken since Begin().
  size_t reached() const { return high_.begun() ? reached_ : low_.reached(); }
  size_t state_bytes() const { return low_.state_bytes() + high_.state_bytes(); }

 private:
  static constexpr uint32_t kHigh = uint32_t{1} << 31;
  // Gaps between less are not worth it.
  static constexpr size_t kLeast = size_t{3} << 20;
  // Parts of what lies at the low end: a small request, and all of the high end.
  static constexpr size_t kSmallShare = 64;
  static constexpr size_t kHighShare = 4;

  Range TakeSlowly(size_t bytes, size_t* offset) noexcept;
  Range TakeHigh(size_t bytes, size_t most, size_t* offset) noexcept;
  void MeetHigh() noexcept;

  FreeRanges low_;
  FreeRanges high_;  // from limit_ downwards; begun when something small comes
  size_t limit_ = 0;
  size_t most_high_ = 0;  // that may come from there
  size_t reached_ = 0;
};

// A range as the word of a buffer that tells what serves its request (request_slot.h).
inline void* TokenOf(TwoEndedRanges::Range range) {
  return reinterpret_cast<void*>(uintptr_t{static_cast<uint32_t>(range)} << 1 | 1);
}
inline TwoEndedRanges::Range RangeOf(const void* token) {
  return TwoEndedRanges::Range{static_cast<uint32_t>(reinterpret_cast<uintptr_t>(token) >> 1)};
}

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_TWO_ENDED_RANGES_H_
