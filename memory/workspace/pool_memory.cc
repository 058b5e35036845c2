#include "tidepool/memory/workspace/pool_memory.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_events.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/resource/pages_resource.h"
#include "tidepool/memory/resource/pool.h"

namespace tidepool {
namespace {

// So many ranges come back before it is looked at how far spans were reached.
constexpr uint64_t kWindow = 4096;
// What a span may take beyond the bytes asked for: the readable tail, in pages of the largest kind.
constexpr size_t kRounding = size_t{4} << 20;
// Blocks are for cycles that are new; those that were not used in so many windows go.
constexpr int kWindowsKept = 2;

PagesOptions OptionsOf(const WorkspaceConfig& config, MemoryOwner& owner) {
  PagesOptions options;
  options.large_pages = config.huge_pages;
  options.prefault = false;
  options.owner = &owner;
  return options;
}

const void* ThisThread() {
  thread_local char here;
  return &here;
}

}  // namespace

PoolMemory::Guard::Guard(const PoolMemory& memory)
    : memory_(memory),
      is_inner_(memory.inside_.load(std::memory_order_relaxed) == ThisThread()) {
  if (is_inner_) return;
  memory_.mutex_.lock();
  memory_.inside_.store(ThisThread(), std::memory_order_relaxed);
}

PoolMemory::Guard::~Guard() {
  if (is_inner_) return;
  memory_.inside_.store(nullptr, std::memory_order_relaxed);
  memory_.mutex_.unlock();
}

PoolMemory::PoolMemory(const std::string& id, const WorkspaceConfig& config, size_t alignment,
                       DeviceProvider& provider, MemoryOwner& owner)
    : unit_(alignment),
      options_(OptionsOf(config, owner)),
      provider_(provider),
      account_(provider.device(), &owner) {
  MemoryResource& pages = chunks_.Add<PagesResource>(options_, provider);
  chunks_.Add<Pool>(pages, config.temp_block_size, alignment);
  MemoryTracker::Global().Register(&account_);
  try {
    reclaimer_ = Reclaimer::Global().Register(absl::StrCat("workspace pool ", id),
                                              [this](ReclaimDepth depth) { return Reclaim(depth); });
  } catch (...) {
    MemoryTracker::Global().Unregister(&account_);
    throw;
  }
}

PoolMemory::~PoolMemory() {
  reclaimer_.Reset();
  Trim();
  MemoryTracker::Global().Unregister(&account_);
}

// ---- ranges -----------------------------------------------------------------------------------

PoolMemory::Range PoolMemory::Take(size_t bytes) {
  if (bytes > MemoryResource::kMostBytes) {
    ThrowOutOfMemory({provider_.device(), account_.owner(), INT64_MAX, "a range"}, "the size of memory",
                     absl::StrCat("workspace pool: a range of ", bytes, " bytes cannot exist"),
                     MemoryTracker::Global().Snapshot().ToString());
  }
  const size_t rounded = (bytes + unit_ - 1) & ~(unit_ - 1);
  const Guard guard(*this);
  Range range;
  for (uint32_t i = 0; i < spans_.size() && range.range == nullptr; ++i) {
    spans_[i]->ranges.Reserve();
    range = TakeFrom(i, rounded);
  }
  if (range.range == nullptr) range = Grow(rounded);
  ++ranges_;
  range_bytes_ += rounded;
  if (range_bytes_ > most_range_bytes_) most_range_bytes_ = range_bytes_;
  return range;
}

PoolMemory::Range PoolMemory::TakeFrom(uint32_t i, size_t bytes) noexcept {
  Span& span = *spans_[i];
  size_t offset = 0;
  FreeRanges::Range* const range = span.ranges.Take(bytes, &offset);
  if (range == nullptr) return {};
  span.reached = std::max(span.reached, offset + bytes);
  return {span.pages.base() + offset, bytes, i, range};
}

PoolMemory::Range PoolMemory::Grow(size_t bytes) {
  for (bool trimmed = false;;) {
    try {
      for (uint32_t i = 0; i < spans_.size(); ++i) {
        Span& span = *spans_[i];
        const size_t end = span.ranges.top() + bytes;
        const bool in_place = span.pages.base() == nullptr || span.ranges.top() == 0 ||
                              end + kRounding <= span.pages.reserved_bytes();
        if (!in_place) continue;
        span.pages.Resize(end);
        span.ranges.SetEnd(end);
        Report();
        return TakeFrom(i, bytes);
      }
      auto added = std::make_unique<Span>(options_, provider_, unit_);
      added->ranges.Begin(0, 0);
      added->ranges.Reserve();
      spans_.push_back(std::move(added));
    } catch (const OutOfMemoryError&) {
      // What is free in other places may make room.
      if (std::exchange(trimmed, true) || TrimLocked() == 0) throw;
    }
  }
}

void PoolMemory::Give(const Range& range) noexcept {
  const Guard guard(*this);
  spans_[range.span]->ranges.Give(range.range);
  ranges_ -= 1;
  range_bytes_ -= range.bytes;
  if (++given_ % kWindow == 0 && !guard.is_inner()) EndWindow();
}

// ---- giving back --------------------------------------------------------------------------------

void PoolMemory::EndWindow() noexcept {
  for (const auto& span : spans_) {
    span->ranges.Merge();
    const size_t kept =
        std::max({span->reached, span->reached_before, span->ranges.top()});
    if (kept + kept / 4 < span->ranges.end()) Shrink(*span, kept);
    span->reached_before = span->reached;
    span->reached = span->ranges.top();
  }
  chunks_.TrimIdle(kWindowsKept);
  Report();
}

void PoolMemory::Shrink(Span& span, size_t end) noexcept {
  span.ranges.SetEnd(end);
  try {
    span.pages.Resize(end);
  } catch (...) {
    // It stays a little larger.
  }
}

size_t PoolMemory::TrimLocked() noexcept {
  const size_t before = Held();
  for (const auto& span : spans_) {
    span->ranges.Merge();
    if (span->ranges.top() < span->ranges.end()) Shrink(*span, span->ranges.top());
  }
  chunks_.Trim();
  Report();
  return before - std::min(before, Held());
}

size_t PoolMemory::Trim() noexcept {
  const Guard guard(*this);
  return guard.is_inner() ? 0 : TrimLocked();
}

// Never waits: whoever has the lock may itself be waiting for the Reclaimer.
int64_t PoolMemory::Reclaim(ReclaimDepth depth) noexcept {
  if (inside_.load(std::memory_order_relaxed) == ThisThread() || !mutex_.try_lock()) {
    return 0;
  }
  const bool idle = depth == ReclaimDepth::kIdle ||
                    (depth == ReclaimDepth::kPeriodic && given_ == given_at_periodic_reclaim_);
  if (depth == ReclaimDepth::kPeriodic) given_at_periodic_reclaim_ = given_;
  const size_t before = Held();
  chunks_.Trim();
  if (idle) TrimLocked();
  Report();
  const size_t bytes = before - std::min(before, Held());
  mutex_.unlock();
  return static_cast<int64_t>(bytes);
}

size_t PoolMemory::Held() const {
  size_t held = chunks_.owned_bytes();
  for (const auto& span : spans_) held += span->pages.committed_bytes();
  return held;
}

void PoolMemory::Report() noexcept {
  reported_bytes_ = Held();
  owned_.Set(reported_bytes_);
}

PoolMemory::Usage PoolMemory::usage() const {
  const Guard guard(*this);
  Usage usage = usage_in_passing();
  usage.held_bytes = Held();
  return usage;
}

PoolMemory::Usage PoolMemory::usage_in_passing() const noexcept {
  return {reported_bytes_, range_bytes_, most_range_bytes_, ranges_};
}

// ---- blocks -------------------------------------------------------------------------------------

Allocation PoolMemory::Blocks::Allocate(size_t bytes, size_t alignment) {
  const Guard guard(memory_);
  const Allocation block = memory_.chunks_.Allocate(bytes, alignment);
  memory_.Report();
  return block;
}

void PoolMemory::Blocks::Release(void* token, size_t bytes, size_t alignment) noexcept {
  const Guard guard(memory_);
  memory_.chunks_.Release(token, bytes, alignment);
}

}  // namespace tidepool
