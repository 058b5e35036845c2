// Requests for which all is at hand, by a plan or from the free ranges, and where these ways begin and end.
#include <algorithm>

#include "tidepool/memory/workspace/workspace_core.h"

namespace tidepool {
namespace {

size_t RoundUp(size_t n, size_t unit) { return (n + unit - 1) & ~(unit - 1); }

}  // namespace

// As few stores as can be, those to one cache line after each other: they are what this path costs. Settle() counts the rest.
inline Buffer* WorkspaceCore::Served(Buffer* buffer, uint32_t slot, const PlanLayout::Slot& planned,
                                     size_t bytes) {
  const size_t rounded = planned.bytes;
  buffer->id = first_id_ + slot;
  buffer->data = pages_.base() + planned.offset;
  pages_.Unpoison(buffer->data, rounded);
  buffer->stamp.store(stamp_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  buffer->bytes = bytes;
  buffer->request.slot = slot;
  buffer->request.bytes = rounded;
  slots_[slot] = RequestSlot(buffer);
  records_.Take(buffer);
  slot_count_ = slot + 1;
  // The rare call is the last thing, so that it needs no stack here.
  if (account_.AddUsedToBeListed(static_cast<int64_t>(rounded))) [[unlikely]] {
    return ListAccount(buffer);
  }
  return buffer;
}

Buffer* WorkspaceCore::Allocate(size_t bytes) {
  const uint32_t slot = slot_count_;
  Buffer* const buffer = records_.next_free();
  if (slot >= quick_slots_ || buffer == nullptr) return AllocateInRanges(bytes);
  const PlanLayout::Slot* const planned = quick_.TryPlace(slot, bytes, alignment_);
  if (planned == nullptr) return AllocateAmongMany(bytes);
  return Served(buffer, slot, *planned, bytes);
}

// Where more than two have lain. Apart, so that Allocate needs few registers.
[[gnu::noinline]] Buffer* WorkspaceCore::AllocateAmongMany(size_t bytes) {
  const uint32_t slot = slot_count_;
  const PlanLayout::Slot* const planned = quick_.TryPlaceAmongMany(slot, bytes, alignment_);
  if (planned == nullptr) return AllocateSlowly(bytes);
  return Served(records_.next_free(), slot, *planned, bytes);
}

// What nobody learns from leaves nothing behind but its buffer, its range and a hash.
inline Buffer* WorkspaceCore::Served(Buffer* buffer, TwoEndedRanges::Range range, size_t at,
                                     size_t bytes, size_t rounded) {
  const uint32_t slot = slot_count_;
  records_.TakeOfMany(buffer);
  buffer->data = pages_.base() + at;
  pages_.Unpoison(buffer->data, rounded);
  buffer->stamp.store(stamp_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  buffer->bytes = bytes;
  buffer->id = next_id_++;
  buffer->request.slot = slot;
  buffer->request.bytes = rounded;
  buffer->request.spill = TokenOf(range);
  slot_count_ = slot + 1;
  counters.bytes_this_cycle += rounded;
  if (slot < slots_end_) {
    slots_[slot] = RequestSlot(buffer);
    follower_.MadeWithoutPlan(slot, rounded);
  } else {
    follower_.Hash(rounded);
  }
  if (account_.AddUsedToBeListed(static_cast<int64_t>(rounded))) [[unlikely]] {
    return ListAccount(buffer);
  }
  return buffer;
}

// A request of a cycle that follows no plan: most are of a size that was released before.
Buffer* WorkspaceCore::AllocateInRanges(size_t bytes) {
  Buffer* const buffer = records_.next_free();
  if (slot_count_ >= free_slots_ || buffer == nullptr) return AllocateSlowly(bytes);
  const size_t rounded = RoundUp(bytes + (bytes == 0), alignment_);
  size_t offset;
  const TwoEndedRanges::Range range = ranges_.TakeKept(rounded, &offset);
  if (range == TwoEndedRanges::Range::kNone) return AllocateInAnyRange(bytes);
  return Served(buffer, range, offset, bytes, rounded);
}

[[gnu::noinline]] Buffer* WorkspaceCore::AllocateInAnyRange(size_t bytes) {
  const size_t rounded = RoundUp(bytes + (bytes == 0), alignment_);
  // What other threads have released is free before more is taken.
  if (rounded == 0 || !ranges_.has_reserved() || !records_.returned().empty()) {
    return AllocateSlowly(bytes);
  }
  size_t offset = 0;
  const TwoEndedRanges::Range range = ranges_.Take(rounded, &offset);
  if (range == TwoEndedRanges::Range::kNone) return AllocateSlowly(bytes);
  return Served(records_.next_free(), range, offset, bytes, rounded);
}

Buffer* WorkspaceCore::ListAccount(Buffer* made) noexcept {
  account_.List();
  return made;
}

// The cycle follows no plan from here on.
void WorkspaceCore::StopRecording() noexcept {
  if (findings_.tracing()) return;
  follower_.StopRecording();
  if (follower_.unrecorded()) slots_end_ = slot_count_;
}

// The cycle follows no plan. The next requests may be quick, before the first for which there is no memory or no number.
void WorkspaceCore::ExpectInRanges() noexcept {
  if (!ranges_.begun() || !ranges_.has_reserved() || watches_limit_ || findings_.tracing()) return;
  if (next_id_ == ids_end_) {
    next_id_ = NextBufferIds();
    ids_end_ = next_id_ + kBufferIdsAtOnce;
  }
  uint64_t end = std::min<uint64_t>(slot_count_ + (ids_end_ - next_id_), UINT32_MAX);
  if (slot_count_ < slots_end_) {
    end = std::min<uint64_t>({end, slots_.size(), follower_.reserved()});
  }
  free_slots_ = static_cast<uint32_t>(end);
}

// The cycle has a plan, and the request that was made now was not quick. The next ones may be.
void WorkspaceCore::ExpectQuick() noexcept {
  uint64_t planned =
      std::min<uint64_t>({follower_.placed().size(), slots_.size(), kBufferIdsAtOnce});
  if (slot_count_ >= planned || watches_limit_ || findings_.tracing()) return;
  planned = std::min<uint64_t>(planned, follower_.ReserveForPlan(slot_count_));
  if (slot_count_ >= planned) return;
  if (id_slots_ < planned) {
    if (ids_end_ - next_id_ < planned) {
      next_id_ = NextBufferIds();
      ids_end_ = next_id_ + kBufferIdsAtOnce;
    }
    first_id_ = next_id_;
    next_id_ += id_slots_ = planned;
  }
  quick_slots_ = static_cast<uint32_t>(planned);
  quick_ = PlanFollower::Quick(follower_.placed());
  quick_stamp_ = stamp_.load(std::memory_order_relaxed);
}

void WorkspaceCore::EndQuickRequests() noexcept {
  quick_slots_ = free_slots_ = 0;
  quick_stamp_ = kNoQuickStamp;
}

void WorkspaceCore::WatchLimit() noexcept {
  watches_limit_ = true;
  EndQuickRequests();
}

}  // namespace tidepool
