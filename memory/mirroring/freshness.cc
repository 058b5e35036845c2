#include "tidepool/memory/mirroring/freshness.h"

#include <algorithm>

namespace tidepool {
namespace {

void Append(std::vector<FreshnessMap::Range>& ranges, size_t begin, size_t end, Freshness state) {
  if (begin >= end) return;
  if (!ranges.empty() && ranges.back().state == state && ranges.back().end == begin) {
    ranges.back().end = end;
  } else {
    ranges.push_back({begin, end, state});
  }
}

// What is on both sides, or nowhere, may be taken to be on one of them only.
bool MayJoin(Freshness state) { return state == Freshness::kBoth || state == Freshness::kNobody; }

}  // namespace

FreshnessMap::FreshnessMap(size_t bytes, Freshness state) {
  ranges_.reserve(kMostRanges + 3);
  next_.reserve(kMostRanges + 3);
  Append(ranges_, 0, bytes, state);
}

bool FreshnessMap::IsFreshOn(bool host, size_t begin, size_t end) const {
  const Freshness stale = host ? Freshness::kDevice : Freshness::kHost;
  for (const Range& range : ranges_) {
    if (range.begin < end && begin < range.end && range.state == stale) return false;
  }
  return true;
}

std::vector<FreshnessMap::Range> FreshnessMap::CopiesFor(MirrorEvent event, size_t begin,
                                                         size_t end) const {
  std::vector<Range> copies;
  for (const Range& range : ranges_) {
    if (range.end <= begin || range.begin >= end) continue;
    if (StepOf(range.state, event).copy == MirrorCopy::kNone) continue;
    Append(copies, std::max(begin, range.begin), std::min(end, range.end), range.state);
  }
  return copies;
}

void FreshnessMap::Apply(MirrorEvent event, size_t begin, size_t end) {
  next_.clear();
  for (const Range& range : ranges_) {
    const size_t from = std::clamp(begin, range.begin, range.end);
    const size_t to = std::clamp(end, from, range.end);
    Append(next_, range.begin, from, range.state);
    Append(next_, from, to, StepOf(range.state, event).next);
    Append(next_, to, range.end, range.state);
  }
  ranges_.swap(next_);
  while (is_crowded() && JoinSome()) {
  }
}

void FreshnessMap::MakeDeviceNewer() {
  next_.clear();
  for (const Range& range : ranges_) {
    Append(next_, range.begin, range.end,
           range.state == Freshness::kHost ? Freshness::kHost : Freshness::kDevice);
  }
  ranges_.swap(next_);
}

// The shortest range that may, with a neighbour.
bool FreshnessMap::JoinSome() {
  size_t shortest = ranges_.size();
  for (size_t i = 0; i < ranges_.size(); ++i) {
    if (!MayJoin(ranges_[i].state)) continue;
    if (shortest == ranges_.size() ||
        ranges_[i].end - ranges_[i].begin < ranges_[shortest].end - ranges_[shortest].begin) {
      shortest = i;
    }
  }
  if (shortest == ranges_.size()) return false;
  // Never one that was written into one that was not.
  const auto state_beside = [&](size_t i) {
    return i < ranges_.size() ? ranges_[i].state : Freshness::kNobody;
  };
  Freshness state = state_beside(shortest - 1);
  if (state == Freshness::kNobody) state = state_beside(shortest + 1);
  if (state == Freshness::kNobody) state = Freshness::kDevice;
  ranges_[shortest].state = state;
  next_.clear();
  for (const Range& range : ranges_) Append(next_, range.begin, range.end, range.state);
  ranges_.swap(next_);
  return true;
}

}  // namespace tidepool
