#include "tidepool/memory/workspace/pool_memory.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/callbacks.h"
#include "tidepool/memory/accounting/memory_events.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/fork_handlers.h"
#include "tidepool/memory/resource/pages_resource.h"
#include "tidepool/memory/resource/pool.h"

namespace tidepool {
namespace {

// So many cycles are one use of blocks (resource/pool.h). Chunks of the system that nobody used in
// the last 4 uses go; in up to the last 128 where they were wanted again soon (retention.h).
constexpr uint64_t kCyclesOfBlocks = 8;
constexpr int kLeastKeptBlocks = 4;
constexpr int kMostKeptBlocks = 128;
// So many are one use of ranges. What was not reached in the last use and the one before may go;
// in up to 16 uses and 16 before where it was wanted again soon.
constexpr uint64_t kCyclesOfRanges = 256;
constexpr int kLeastKeptRanges = 1;
constexpr int kMostKeptRanges = 16;
// Half of it goes with each use, the rest at once where it is no more than this.
constexpr size_t kLastStep = size_t{8} << 20;
// What a span may take beyond the bytes asked for: the readable tail, in pages of the largest kind.
constexpr size_t kRounding = size_t{4} << 20;
// What is held beyond twice what was open at once is worth holes where it is so much.
constexpr size_t kWorthHoles = size_t{8} << 20;

PagesOptions OptionsOf(const WorkspaceConfig& config, MemoryOwner& owner) {
  PagesOptions options;
  options.large_pages = config.huge_pages;
  options.prefault = false;
  options.owner = &owner;
  return options;
}

}  // namespace

PoolMemory::PoolMemory(const std::string& id, const WorkspaceConfig& config, size_t alignment,
                       DeviceProvider& provider, MemoryOwner& owner)
    : unit_(alignment),
      options_(OptionsOf(config, owner)),
      provider_(provider),
      keeps_blocks_(kLeastKeptBlocks, kMostKeptBlocks),
      keeps_ranges_(kLeastKeptRanges, kMostKeptRanges),
      account_(provider.device(), &owner) {
  MemoryResource& pages = chunks_.Add<PagesResource>(options_, provider);
  auto& taken = chunks_.Add<UnlockedChunks>(pages, mutex_, config.temp_block_size, alignment);
  taken_chunks_ = static_cast<UnlockedChunks*>(&taken);
  MemoryResource& chunks = chunks_.Add<Chunks>(taken, *this);
  pool_ = &chunks_.Add<Pool>(chunks, config.temp_block_size, alignment);
  MemoryTracker::Global().Register(&account_);
  try {
    reclaimer_ = Reclaimer::Global().Register(
        absl::StrCat("workspace pool ", id), [this](ReclaimDepth depth) { return Reclaim(depth); });
  } catch (...) {
    MemoryTracker::Global().Unregister(&account_);
    throw;
  }
}

PoolMemory::~PoolMemory() {
  reclaimer_.Reset();
  if (Lock lock = LockUnlessLeftLocked()) TrimAll(lock);
  MemoryTracker::Global().Unregister(&account_);
}

// ---- ranges -----------------------------------------------------------------------------------

PoolMemory::Range PoolMemory::Take(size_t bytes) {
  if (bytes > MemoryResource::kMostBytes) {
    ThrowOutOfMemory({provider_.device(), account_.owner(), INT64_MAX, "a range"},
                     "the size of memory",
                     absl::StrCat("workspace pool: a range of ", bytes, " bytes cannot exist"),
                     MemoryTracker::Global().Snapshot().ToString());
  }
  const size_t rounded = (bytes + unit_ - 1) & ~(unit_ - 1);
  Lock lock(mutex_);
  Range range = TakeFromAny(rounded);
  if (!range.is_taken()) range = Grow(lock, rounded);
  ++ranges_;
  range_bytes_ += rounded;
  CountOpen(range_bytes_);
  return range;
}

// Bytes of ranges at once.
void PoolMemory::CountOpen(size_t bytes) noexcept {
  if (bytes > most_range_bytes_) most_range_bytes_ = bytes;
  most_open_ = std::max(most_open_, bytes);
  most_in_use_ = std::max(most_in_use_, bytes + chunk_range_bytes_);
}

PoolMemory::Range PoolMemory::TakeFromAny(size_t bytes) {
  for (uint32_t i = 0; i < spans_.size(); ++i) {
    spans_[i]->ranges.Reserve();
    if (const Range range = TakeFrom(i, bytes); range.is_taken()) return range;
  }
  return {};
}

PoolMemory::Range PoolMemory::TakeFrom(uint32_t i, size_t bytes) noexcept {
  Span& span = *spans_[i];
  size_t offset = 0;
  if (span.moves) return {};
  const FreeRanges::Range range = span.ranges.Take(bytes, &offset);
  if (range == FreeRanges::Range::kNone) return {};
  span.reached = std::max(span.reached, offset + bytes);
  return {span.base + offset, bytes, i, range};
}

// Others take and give ranges whenever the lock is given up, so it is looked again each time.
PoolMemory::Range PoolMemory::Grow(Lock& lock, size_t bytes) {
  const bool may_wait = !internal::InCallback();
  // What cycles were learned from is not held beside the ranges that serve them from then on.
  if (const Range range = TakeFromBlocks(bytes); range.is_taken()) return range;
  grew_ = true;
  for (bool trimmed = false;;) {
    try {
      if (const Range range = GrowInHoles(lock, bytes); range.is_taken()) return range;
      // It may have given the lock up: a span that has room by now must not be resized to less.
      if (const Range range = TakeFromAny(bytes); range.is_taken()) return range;
      Span* grows = nullptr;
      for (const auto& span : spans_) {
        const size_t end = span->ranges.top() + bytes;
        const bool has_room = span->ranges.top() == 0 || end + kRounding <= span->reserved_bytes;
        if (!has_room || (span->resizing && !may_wait)) continue;
        // Pages with a hole that could not be cut off stay where they are.
        if (!span->resizing && span->hole_end > 0 && end + kRounding > span->reserved_bytes)
          continue;
        grows = span.get();
        break;
      }
      if (grows == nullptr) {
        PagesOptions options = options_;
        options.fits = true;
        auto added = std::make_unique<Span>(options, provider_, unit_);
        added->ranges.Begin(0, 0);
        grows = added.get();
        spans_.push_back(std::move(added));
      }
      if (grows->resizing) {
        ++waiting_;
        resized_.wait(lock);
        --waiting_;
      } else {
        grows->ranges.Merge();
        const size_t end = grows->ranges.top() + bytes;
        if (end > grows->ranges.end()) {
          grows->moves = end + kRounding > grows->reserved_bytes;
          Extend(lock, *grows, bytes);
        }
      }
    } catch (const OutOfMemoryError&) {
      // What is free in other places may make room.
      if (std::exchange(trimmed, true) || TrimAll(lock) == 0) throw;
    }
    if (const Range range = TakeFromAny(bytes); range.is_taken()) return range;
  }
}

void PoolMemory::Give(const Range& range) noexcept {
  Lock lock(mutex_);
  if (range.is_taken()) {
    spans_[range.span]->ranges.Give(range.range, range.bytes);
    ranges_ -= 1;
    range_bytes_ -= range.bytes;
  }
  ++given_;
  const bool ends_ranges = given_ % kCyclesOfRanges == 0;  // the lock is given up
  if (given_ % kCyclesOfBlocks == 0) EndUseOfBlocks();
  if (ends_ranges) EndUseOfRanges(lock);
}

// ---- giving back --------------------------------------------------------------------------------

// Where an eighth may go and no more, it stays: it is not worth the system's time.
void PoolMemory::EndUseOfRanges(Lock& lock) noexcept {
  const bool asked = std::exchange(grew_, false);
  size_t gave_back = 0;
  const bool counts = ++uses_counted_ >= keeps_ranges_.uses();
  if (counts) uses_counted_ = 0;
  for (size_t i = 0; i < spans_.size(); ++i) {
    Span& span = *spans_[i];
    span.ranges.Merge();
    const size_t top = span.ranges.top();
    span.kept = std::max({counts ? span.reached_before : span.kept, span.reached, top});
    if (counts) span.reached_before = std::exchange(span.reached, top);
    if (span.resizing) continue;
    const bool drops = DropHolesAtTop(span);
    const size_t end = drops ? span.ranges.top() : span.ranges.end();
    const size_t kept = std::min(span.kept, end);
    const size_t more = end - kept;
    const size_t stays = more <= kLastStep ? 0 : more / 2 & ~(unit_ - 1);
    if (drops || more > kept / 8) gave_back += Shrink(lock, span, kept + stays);
  }
  if (counts) {
    const size_t most_open = std::max(most_open_, most_open_before_);
    if (most_open < most_in_use_ - most_in_use_ / 8) most_in_use_ -= (most_in_use_ - most_open) / 2;
    most_open_before_ = std::exchange(most_open_, range_bytes_.get());
    for (size_t i = 0; i < spans_.size(); ++i) {
      if (HeldInSpans() > 2 * most_open + kWorthHoles) gave_back += MakeHoles(lock, *spans_[i]);
    }
  }
  keeps_ranges_.EndUse(asked, gave_back > 0);
  Report();
}

// Returns bytes.
size_t PoolMemory::Shrink(Lock& lock, Span& span, size_t end) noexcept {
  const size_t before = span.held_bytes;
  span.ranges.SetEnd(end);
  try {
    Resize(lock, span, end);
  } catch (...) {
    // It stays a little larger.
  }
  return before - std::min(before, span.held_bytes);
}

size_t PoolMemory::TrimAll(Lock& lock) noexcept {
  chunks_.Trim();
  size_t bytes = taken_chunks_->GiveBack();
  for (size_t i = 0; i < spans_.size(); ++i) {
    Span& span = *spans_[i];
    if (span.resizing) continue;
    span.ranges.Merge();
    DropHolesAtTop(span);
    const size_t top = span.ranges.top();
    if (top < span.ranges.end() || span.hole_end > top) bytes += Shrink(lock, span, top);
    bytes += MakeHoles(lock, span);
  }
  Report();
  return bytes;
}

size_t PoolMemory::Trim() noexcept {
  Lock lock(mutex_);
  return TrimAll(lock);
}

// In a child of fork() a thread that is not here may hold it for ever.
PoolMemory::Lock PoolMemory::LockUnlessLeftLocked() noexcept {
  if (ForksBehind() == forks_behind_) return Lock(mutex_);
  return Lock(mutex_, std::try_to_lock);
}

// Waits for nothing but the lock, which nobody holds while he waits.
int64_t PoolMemory::Reclaim(ReclaimDepth depth) noexcept {
  std::shared_ptr<const void> owner;  // goes after the lock
  Lock lock = LockUnlessLeftLocked();
  if (!lock) return 0;
  owner = owner_.lock();
  if (has_owner_ && owner == nullptr) return 0;  // it is being destroyed, which waits for this
  const bool idle = depth == ReclaimDepth::kIdle ||
                    (depth == ReclaimDepth::kPeriodic && given_ == given_at_periodic_reclaim_);
  if (depth == ReclaimDepth::kPeriodic) given_at_periodic_reclaim_ = given_;
  if (idle) return static_cast<int64_t>(TrimAll(lock));
  chunks_.Trim();
  const size_t bytes = taken_chunks_->GiveBack();
  Report();
  return static_cast<int64_t>(bytes);
}

size_t PoolMemory::HeldInSpans() const {
  size_t held = 0;
  for (const auto& span : spans_) held += span->held_bytes;
  return held;
}

size_t PoolMemory::Held() const { return HeldInSpans() + taken_chunks_->held_bytes(); }

void PoolMemory::Report() noexcept {
  reported_bytes_ = Held();
  owned_.Set(reported_bytes_);
}

PoolMemory::Usage PoolMemory::usage() const {
  Lock lock(mutex_);
  Usage usage = usage_in_passing();
  usage.held_bytes = Held();
  return usage;
}

PoolMemory::Usage PoolMemory::usage_in_passing() const noexcept {
  return {reported_bytes_, range_bytes_, most_range_bytes_, ranges_};
}

}  // namespace tidepool
