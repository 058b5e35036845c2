#include "tidepool/memory/workspace/two_ended_ranges.h"

namespace tidepool {

void TwoEndedRanges::Begin(size_t begin, size_t end) noexcept {
  low_.Begin(begin, end);
  limit_ = low_.end();
  most_high_ = SIZE_MAX;
  high_.End();
}

void TwoEndedRanges::BeginAgain(size_t begin, size_t end) noexcept {
  low_.BeginAgain(begin, end);
  limit_ = low_.end();
  most_high_ = SIZE_MAX;
  high_.End();
}

void TwoEndedRanges::Trim() noexcept {
  low_.Trim();
  high_.Trim();
}

void TwoEndedRanges::GiveBelow(absl::Span<Taken> taken) {
  const bool nothing = low_.top() == low_.begin();
  low_.GiveBelow(taken);
  if (!high_.begun()) return;
  reached_ = std::max(nothing ? 0 : reached_, low_.top() + high_.top());
}

// What is taken at the high end lies above, so that after merging all of it does.
void TwoEndedRanges::RaiseBegin(size_t begin) noexcept {
  if (begin <= low_.begin()) return;
  if (!high_.begun()) return low_.RaiseBegin(begin);
  high_.Merge();
  MeetHigh();
  low_.RaiseBegin(begin);
  reached_ = std::max(reached_, begin + high_.top());
}

void TwoEndedRanges::Merge() noexcept {
  low_.Merge();
  if (!high_.begun()) return;
  high_.Merge();
  MeetHigh();
}

// Also where the high end might have grown to.
void TwoEndedRanges::SetEnd(size_t end) noexcept {
  low_.SetEnd(end);
  most_high_ = high_.begun() ? high_.top() : 0;
  if (high_.begun()) reached_ = std::min(reached_, end + high_.top());
}

// What was given from the high end may be given from the low one.
void TwoEndedRanges::MeetHigh() noexcept {
  if (most_high_ == SIZE_MAX) low_.SetEnd(limit_ - high_.top());
}

FreeRanges::Range TwoEndedRanges::TakeHigh(size_t bytes, size_t most, size_t* offset) noexcept {
  high_.SetEnd(std::max(high_.top(), std::min({most, most_high_, limit_ - low_.top()})));
  const Range range = high_.Take(bytes, offset);
  if (range == Range::kNone) return range;
  *offset = limit_ - *offset - bytes;
  return Range{static_cast<uint32_t>(range) | kHigh};
}

FreeRanges::Range TwoEndedRanges::TakeSlowly(size_t bytes, size_t* offset) noexcept {
  const size_t lies = low_.top() - low_.begin();
  if (!high_.begun()) {
    if (bytes > lies / kSmallShare || most_high_ == 0) return low_.Take(bytes, offset);
    high_.Begin(0, 0);
    reached_ = low_.reached();
  }
  Range range = Range::kNone;
  if (bytes <= lies / kSmallShare) {
    // Half of it is kept by sizes that do not come any more.
    if (high_.kept_bytes() > high_.top() / 2) high_.Merge();
    if (high_.HasKept(bytes) || high_.top() + bytes <= lies / kHighShare) {
      range = TakeHigh(bytes, lies / kHighShare, offset);
    }
  }
  if (range == Range::kNone) {
    MeetHigh();
    range = low_.Take(bytes, offset);
  }
  if (range == Range::kNone && high_.top() > 0) {
    high_.Merge();
    MeetHigh();
    range = low_.Take(bytes, offset);
    if (range == Range::kNone) range = TakeHigh(bytes, SIZE_MAX, offset);
  }
  reached_ = std::max(reached_, low_.top() + high_.top());
  return range;
}

}  // namespace tidepool
