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

}  // namespace

PoolMemory::PoolMemory(const std::string& id, const WorkspaceConfig& config, size_t alignment,
                       DeviceProvider& provider, MemoryOwner& owner)
    : unit_(alignment),
      options_(OptionsOf(config, owner)),
      provider_(provider),
      account_(provider.device(), &owner) {
  MemoryResource& pages = chunks_.Add<PagesResource>(options_, provider);
  auto& taken = chunks_.Add<UnlockedChunks>(pages, mutex_, config.temp_block_size, alignment);
  taken_chunks_ = static_cast<UnlockedChunks*>(&taken);
  chunks_.Add<Pool>(taken, config.temp_block_size, alignment);
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
  Lock lock(mutex_);
  Range range = TakeFromAny(rounded);
  if (range.range == nullptr) range = Grow(lock, rounded);
  ++usage_.ranges;
  usage_.range_bytes += rounded;
  usage_.most_range_bytes = std::max(usage_.most_range_bytes, usage_.range_bytes);
  return range;
}

PoolMemory::Range PoolMemory::TakeFromAny(size_t bytes) {
  for (uint32_t i = 0; i < spans_.size(); ++i) {
    spans_[i]->ranges.Reserve();
    if (const Range range = TakeFrom(i, bytes); range.range != nullptr) return range;
  }
  return {};
}

PoolMemory::Range PoolMemory::TakeFrom(uint32_t i, size_t bytes) noexcept {
  Span& span = *spans_[i];
  size_t offset = 0;
  FreeRanges::Range* const range = span.moves ? nullptr : span.ranges.Take(bytes, &offset);
  if (range == nullptr) return {};
  span.reached = std::max(span.reached, offset + bytes);
  return {span.base + offset, bytes, i, range};
}

// Others take and give ranges whenever the lock is given up, so it is looked again each time.
PoolMemory::Range PoolMemory::Grow(Lock& lock, size_t bytes) {
  const bool may_wait = MayWaitForMemory();
  for (bool trimmed = false;;) {
    try {
      Span* grows = nullptr;
      for (const auto& span : spans_) {
        const size_t end = span->ranges.top() + bytes;
        const bool has_room = span->ranges.top() == 0 || end + kRounding <= span->reserved_bytes;
        if (!has_room || (span->resizing && !may_wait)) continue;
        grows = span.get();
        break;
      }
      if (grows == nullptr) {
        auto added = std::make_unique<Span>(options_, provider_, unit_);
        added->ranges.Begin(0, 0);
        grows = added.get();
        spans_.push_back(std::move(added));
      }
      if (grows->resizing) {
        ++waiting_;
        resized_.wait(lock);
        --waiting_;
      } else {
        const size_t end = grows->ranges.top() + bytes;
        grows->moves = end + kRounding > grows->reserved_bytes;
        Resize(lock, *grows, end);
        grows->ranges.SetEnd(end);
      }
    } catch (const OutOfMemoryError&) {
      // What is free in other places may make room.
      if (std::exchange(trimmed, true) || TrimAll(lock) == 0) throw;
    }
    if (const Range range = TakeFromAny(bytes); range.range != nullptr) return range;
  }
}

// Nobody else resizes it meanwhile.
void PoolMemory::Resize(Lock& lock, Span& span, size_t bytes) {
  span.resizing = true;
  const auto end = [&] {
    lock.lock();
    span.resizing = span.moves = false;
    span.base = span.pages.base();
    span.reserved_bytes = span.pages.reserved_bytes();
    span.held_bytes = span.pages.committed_bytes();
    Report();
    if (waiting_ > 0) resized_.notify_all();
  };
  lock.unlock();
  try {
    span.pages.Resize(bytes);
  } catch (...) {
    end();
    throw;
  }
  end();
}

void PoolMemory::Give(const Range& range) noexcept {
  Lock lock(mutex_);
  spans_[range.span]->ranges.Give(range.range);
  --usage_.ranges;
  usage_.range_bytes -= range.bytes;
  if (++given_ % kWindow == 0) EndWindow(lock);
}

// ---- giving back --------------------------------------------------------------------------------

void PoolMemory::EndWindow(Lock& lock) noexcept {
  for (size_t i = 0; i < spans_.size(); ++i) {
    Span& span = *spans_[i];
    span.ranges.Merge();
    const size_t kept = std::max({span.reached, span.reached_before, span.ranges.top()});
    span.reached_before = span.reached;
    span.reached = span.ranges.top();
    if (!span.resizing && kept + kept / 4 < span.ranges.end()) Shrink(lock, span, kept);
  }
  chunks_.TrimIdle(kWindowsKept);
  taken_chunks_->GiveBack();
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
  size_t bytes = chunks_.Trim();
  for (size_t i = 0; i < spans_.size(); ++i) {
    Span& span = *spans_[i];
    if (span.resizing) continue;
    span.ranges.Merge();
    if (span.ranges.top() < span.ranges.end()) bytes += Shrink(lock, span, span.ranges.top());
  }
  taken_chunks_->GiveBack();
  Report();
  return bytes;
}

size_t PoolMemory::Trim() noexcept {
  Lock lock(mutex_);
  return TrimAll(lock);
}

// Waits for nothing but the lock, which nobody holds while he waits.
int64_t PoolMemory::Reclaim(ReclaimDepth depth) noexcept {
  Lock lock(mutex_);
  const bool idle = depth == ReclaimDepth::kIdle ||
                    (depth == ReclaimDepth::kPeriodic && given_ == given_at_periodic_reclaim_);
  if (depth == ReclaimDepth::kPeriodic) given_at_periodic_reclaim_ = given_;
  if (idle) return static_cast<int64_t>(TrimAll(lock));
  const size_t bytes = chunks_.Trim();
  taken_chunks_->GiveBack();
  Report();
  return static_cast<int64_t>(bytes);
}

size_t PoolMemory::Held() const {
  size_t held = taken_chunks_->held_bytes();
  for (const auto& span : spans_) held += span->held_bytes;
  return held;
}

void PoolMemory::Report() noexcept { owned_.Set(Held()); }

PoolMemory::Usage PoolMemory::usage() const {
  Lock lock(mutex_);
  Usage usage = usage_;
  usage.held_bytes = Held();
  return usage;
}

// ---- blocks -------------------------------------------------------------------------------------

Allocation PoolMemory::Blocks::Allocate(size_t bytes, size_t alignment) {
  Lock lock(memory_.mutex_);
  for (;;) {
    const Allocation block = memory_.chunks_.Allocate(bytes, alignment);
    if (memory_.taken_chunks_->WasBusy(block)) {
      memory_.taken_chunks_->AwaitOther();
      continue;
    }
    memory_.taken_chunks_->GiveBack();  // what has made room
    memory_.Report();
    return block;
  }
}

void PoolMemory::Blocks::Release(void* token, size_t bytes, size_t alignment) noexcept {
  Lock lock(memory_.mutex_);
  memory_.chunks_.Release(token, bytes, alignment);
}

}  // namespace tidepool
