#include "tidepool/memory/provider/pages.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_events.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/provider_calls.h"

namespace tidepool {
namespace {

constexpr size_t kMostBytes = SIZE_MAX / 4;
constexpr size_t kFits = 64;

size_t RoundUp(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

[[noreturn]] void ThrowRefused(const MemoryRequest& request, const std::string& who,
                               std::string what) {
  ThrowOutOfMemory(request, who, std::move(what), MemoryTracker::Global().Snapshot().ToString());
}

}  // namespace

Pages::~Pages() { ReleaseAll(); }

MemoryRequest Pages::RequestOf(size_t bytes) const {
  return {provider_->device(), options_.owner,
          static_cast<int64_t>(std::min<size_t>(bytes, INT64_MAX)), "pages"};
}

void Pages::ReleaseAll() noexcept {
  if (base_ == nullptr) return;
  provider_->Unreserve(base_, reserved_);
  if (committed_ > 0) MemoryTracker::Global().CountSystemRelease();
  base_ = nullptr;
  reserved_ = committed_ = prefaulted_ = 0;
  holes_.clear();
  hole_bytes_ = 0;
  charge_.ShrinkTo(0);
}

void Pages::Swap(Pages& other) {
  std::swap(base_, other.base_);
  std::swap(reserved_, other.reserved_);
  std::swap(committed_, other.committed_);
  std::swap(prefaulted_, other.prefaulted_);
  holes_.swap(other.holes_);
  std::swap(hole_bytes_, other.hole_bytes_);
  charge_.Swap(other.charge_);
}

bool Pages::IsLarge(size_t bytes) const {
  const size_t large = provider_->traits().large_granularity;
  return options_.large_pages && large > 0 && bytes >= large;
}

size_t Pages::Unit(size_t bytes) const {
  const MemoryTraits traits = provider_->traits();
  const bool large =
      IsLarge(bytes) && (!options_.fits || bytes / kFits >= traits.large_granularity);
  return large ? traits.large_granularity : traits.granularity;
}

// Of large pages as many as hold the bytes. A tail that begins where they end has a small one.
size_t Pages::CommittedFor(size_t bytes) const {
  const size_t large_end = RoundUp(bytes, Unit(bytes));
  if (bytes + kReadableTailBytes <= large_end) return large_end;
  return RoundUp(bytes + kReadableTailBytes, provider_->traits().granularity);
}

bool Pages::Reserve(size_t bytes) {
  base_ = ReserveAligned(*provider_, bytes);
  if (base_ == nullptr) return false;
  reserved_ = bytes;
  return true;
}

void Pages::Relocate(size_t bytes, size_t wanted, PagesMove move) {
  Pages larger(options_, *provider_);
  const MemoryTraits traits = provider_->traits();
  const size_t unit = std::max(traits.granularity, traits.large_granularity);
  const size_t preferred = options_.reserve_bytes ? options_.reserve_bytes : traits.reserve_bytes;
  if (!larger.Reserve(RoundUp(std::max(preferred, wanted), unit)) &&
      !larger.Reserve(RoundUp(wanted, unit))) {
    provider_->ThrowIfLost("pages");
    ThrowRefused(
        RequestOf(wanted), ProviderName(*provider_),
        absl::StrCat(ProviderName(*provider_), " refused an address range of ", wanted, " bytes"));
  }
  const bool moves = base_ != nullptr;
  if (move == PagesMove::kGivesFirst && committed_ > 0) {
    GiveFirst(larger, bytes, wanted);
  } else {
    larger.Resize(bytes);
  }
  Swap(larger);
  if (moves) ++relocations_;
}

// The budget is asked for the difference, before anything goes.
void Pages::GiveFirst(Pages& larger, size_t bytes, size_t wanted) {
  const size_t before = committed_;
  charge_.GrowTo(static_cast<int64_t>(wanted), "pages");
  if (!provider_->Decommit(base_, before)) {
    charge_.ShrinkTo(static_cast<int64_t>(before));
    provider_->ThrowIfLost("pages");
    ThrowRefused(
        RequestOf(wanted), ProviderName(*provider_),
        absl::StrCat(ProviderName(*provider_), " refused to take ", before, " bytes back"));
  }
  MemoryTracker::Global().CountSystemRelease();
  committed_ = prefaulted_ = 0;
  larger.charge_.Swap(charge_);
  try {
    larger.Resize(bytes);
  } catch (const Error&) {
    try {
      Extend(before, IsLarge(before - kReadableTailBytes));
    } catch (const Error&) {
      ReleaseAll();
    }
    throw;
  }
}

// Commits up to `wanted` bytes, which are reserved.
void Pages::Extend(size_t wanted, bool large_pages) {
  // Large pages begin at a boundary of theirs; what is committed before it stays as it is.
  Commit(committed_, wanted - committed_, large_pages);
  committed_ = wanted;
}

void Pages::Commit(size_t offset, size_t bytes, bool large_pages) {
  const size_t held = committed_bytes();
  charge_.GrowTo(static_cast<int64_t>(held + bytes), "pages");
  const auto lacking = [&] {
    return provider_->Commit(base_ + offset, bytes, large_pages) ? 0 : static_cast<int64_t>(bytes);
  };
  int64_t missing = lacking();
  if (missing > 0) {
    try {
      provider_->ThrowIfLost("pages");
    } catch (...) {
      charge_.ShrinkTo(static_cast<int64_t>(held));
      throw;
    }
  }
  Reclaimer::Global().RetryWhileReclaiming(
      missing, [&] { return missing = lacking(); }, RequestOf(bytes));
  if (missing > 0) {
    charge_.ShrinkTo(static_cast<int64_t>(held));
    ThrowRefused(RequestOf(bytes), ProviderName(*provider_),
                 absl::StrCat(ProviderName(*provider_), " refused ", bytes, " bytes more (", held,
                              " bytes are committed)"));
  }
  MemoryTracker::Global().CountSystemAllocation();
}

// What is above, from its end on and as far as it is not refused.
void Pages::CutTo(size_t wanted) noexcept {
  const size_t before = committed_;
  while (committed_ > wanted) {
    const size_t end = std::max(wanted, hole_end());
    if (end < committed_ && !provider_->Decommit(base_ + end, committed_ - end)) {
      // It may be in the middle of a large page, which stays as a whole.
      const size_t whole = RoundUp(end, Unit(committed_));
      if (whole > end && whole < committed_ &&
          provider_->Decommit(base_ + whole, committed_ - whole)) {
        committed_ = whole;
      }
      break;
    }
    committed_ = end;
    if (end == wanted) break;
    committed_ = holes_.back().begin;
    hole_bytes_ -= end - committed_;
    holes_.pop_back();
  }
  if (committed_ == before) return;
  charge_.ShrinkTo(static_cast<int64_t>(committed_bytes()));
  prefaulted_ = std::min(prefaulted_, committed_);
  MemoryTracker::Global().CountSystemRelease();
}

void Pages::Resize(size_t bytes, PagesMove move) {
  if (bytes == 0) return ReleaseAll();
  if (bytes > kMostBytes) {
    ThrowRefused(RequestOf(bytes), ProviderName(*provider_),
                 absl::StrCat("a range of ", bytes, " bytes cannot exist"));
  }
  const size_t wanted = CommittedFor(bytes);
  if (wanted == committed_) return;
  // What was committed in smaller units may not be a multiple of the large one: it stays.
  if (wanted < committed_) return CutTo(wanted);
  if (wanted > reserved_) return Relocate(bytes, wanted, move);
  Extend(wanted, IsLarge(bytes));
  if (options_.prefault) Prefault(bytes);
}

// ---- holes ------------------------------------------------------------------------------------

Pages::Hole Pages::HoleWithin(size_t offset, size_t bytes, size_t unit) const {
  return {RoundUp(offset + kReadableTailBytes, unit),
          std::min(offset + bytes, committed_) / unit * unit};
}

bool Pages::MakeHole(size_t offset, size_t bytes, bool splits) noexcept {
  const size_t unit = splits ? provider_->traits().granularity : Unit(committed_);
  const Hole wanted = HoleWithin(offset, bytes, unit);
  bool any = false;
  for (size_t at = wanted.begin; at < wanted.end;) {
    const auto next =
        std::find_if(holes_.begin(), holes_.end(), [&](const Hole& hole) { return hole.end > at; });
    if (next != holes_.end() && next->begin <= at) {
      at = next->end;
      continue;
    }
    const size_t end = next == holes_.end() ? wanted.end : std::min(wanted.end, next->begin);
    if (!MakePart({at, end})) break;
    any = true;
    at = end;
  }
  if (any) charge_.ShrinkTo(static_cast<int64_t>(committed_bytes()));
  return any;
}

// No part of it is in a hole; one with those beside it.
bool Pages::MakePart(Hole part) noexcept {
  try {
    holes_.reserve(holes_.size() + 1);
  } catch (const std::bad_alloc&) {
    return false;
  }
  if (!provider_->Decommit(base_ + part.begin, part.end - part.begin)) return false;
  hole_bytes_ += part.end - part.begin;
  MemoryTracker::Global().CountSystemRelease();
  const auto above = std::find_if(holes_.begin(), holes_.end(),
                                  [&](const Hole& hole) { return hole.begin >= part.end; });
  const bool joins_above = above != holes_.end() && above->begin == part.end;
  if (above != holes_.begin() && (above - 1)->end == part.begin) {
    (above - 1)->end = joins_above ? above->end : part.end;
    if (joins_above) holes_.erase(above);
  } else if (joins_above) {
    above->begin = part.begin;
  } else {
    holes_.insert(above, part);
  }
  return true;
}

bool Pages::ReserveHole(size_t bytes) {
  const MemoryTraits traits = provider_->traits();
  const size_t wanted = CommittedFor(bytes);
  holes_.reserve(1);
  if (!Reserve(RoundUp(wanted, std::max(traits.granularity, traits.large_granularity)))) {
    provider_->ThrowIfLost("pages");
    return false;
  }
  committed_ = hole_bytes_ = wanted;
  holes_.push_back({0, wanted});
  return true;
}

// With the readable tail.
Pages::Hole Pages::PagesOf(size_t offset, size_t bytes) const {
  const size_t unit = provider_->traits().granularity;
  return {offset / unit * unit, RoundUp(offset + bytes + kReadableTailBytes, unit)};
}

size_t Pages::HoleBytesIn(size_t offset, size_t bytes) const {
  // Holes are whole pages, so it takes none of the provider's to see that they are apart.
  const size_t end = offset + bytes + kReadableTailBytes;
  const auto first = std::partition_point(
      holes_.begin(), holes_.end(), [offset](const Hole& hole) { return hole.end <= offset; });
  if (first == holes_.end() || first->begin >= end) return 0;
  const Hole wanted = PagesOf(offset, bytes);
  size_t found = 0;
  for (auto hole = first; hole != holes_.end() && hole->begin < wanted.end; ++hole) {
    found += std::min(hole->end, wanted.end) - std::max(hole->begin, wanted.begin);
  }
  return found;
}

void Pages::FillHole(size_t offset, size_t bytes) {
  const Hole wanted = PagesOf(offset, bytes);
  for (size_t i = 0; i < holes_.size();) {
    const size_t holes = holes_.size();
    const Hole part = {std::max(holes_[i].begin, wanted.begin),
                       std::min(holes_[i].end, wanted.end)};
    if (part.begin < part.end) FillPart(i, part);
    if (holes_.size() >= holes) ++i;
  }
}

// Of the hole of that number.
void Pages::FillPart(size_t number, Hole part) {
  holes_.reserve(holes_.size() + 1);
  const size_t bytes = part.end - part.begin;
  // As what is around it is, so that it is one with that again.
  Commit(part.begin, bytes, IsLarge(committed_));
  hole_bytes_ -= bytes;
  Hole& hole = holes_[number];
  const Hole above = {part.end, hole.end};
  hole.end = part.begin;
  const bool empty = hole.begin == hole.end;
  const auto at = holes_.begin() + static_cast<std::ptrdiff_t>(number);
  if (above.begin == above.end) {
    if (empty) holes_.erase(at);
  } else if (empty) {
    hole = above;
  } else {
    holes_.insert(at + 1, above);
  }
}

void Pages::Prefault(size_t bytes) noexcept {
  if (bytes <= prefaulted_ && bytes + kReadableTailBytes <= prefaulted_) return;
  const size_t unit = Unit(committed_);
  const size_t end = std::min(committed_, RoundUp(bytes + kReadableTailBytes, unit));
  if (end <= prefaulted_) return;
  provider_->Prefault(base_ + prefaulted_, end - prefaulted_);
  prefaulted_ = end;
}

}  // namespace tidepool
