// Requests of cycles that nobody learns from, and where the quick ways of a cycle's requests begin again and end.
#include <algorithm>

#include "tidepool/memory/workspace/workspace_core.h"

namespace tidepool {
namespace {

size_t RoundUp(size_t n, size_t unit) { return (n + unit - 1) & ~(unit - 1); }

}  // namespace

// A request of a cycle that nobody learns from: it leaves nothing behind but its buffer, its range and a hash. Settle()
// counts it.
Buffer* WorkspaceCore::AllocateUnrecorded(size_t bytes) {
  Buffer* const buffer = records_.next_free();
  const size_t rounded = RoundUp(bytes + (bytes == 0), alignment_);
  if (buffer == nullptr || rounded == 0 || !ranges_.has_reserved() || next_id_ == ids_end_ ||
      !records_.returned().empty()) {
    return AllocateSlowly(bytes);
  }
  size_t offset = 0;
  const TwoEndedRanges::Range range = ranges_.Take(rounded, &offset);
  if (range == TwoEndedRanges::Range::kNone) return AllocateSlowly(bytes);
  records_.TakeOfMany(buffer);
  buffer->data = pages_.base() + offset;
  pages_.Unpoison(buffer->data, rounded);
  buffer->stamp.store(stamp_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  buffer->bytes = bytes;
  buffer->id = next_id_++;
  buffer->request.slot = slot_count_;
  buffer->request.bytes = rounded;
  buffer->request.spill = TokenOf(range);
  slot_count_ = slot_count_ + 1;
  counters.bytes_this_cycle += rounded;
  follower_.Hash(rounded);
  if (account_.AddUsedToBeListed(static_cast<int64_t>(rounded))) [[unlikely]] {
    return ListAccount(buffer);
  }
  return buffer;
}

// The cycle follows no plan from here on.
void WorkspaceCore::StopRecording() noexcept {
  if (findings_.tracing()) return;
  follower_.StopRecording();
  if (follower_.unrecorded()) slots_end_ = slot_count_;
}

// From the next request on.
void WorkspaceCore::ExpectUnrecorded() noexcept {
  unrecorded_ = ranges_.begun() && !watches_limit_;
  if (next_id_ < ids_end_) return;
  next_id_ = NextBufferIds();
  ids_end_ = next_id_ + kBufferIdsAtOnce;
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
  quick_slots_ = 0;
  quick_stamp_ = kNoQuickStamp;
}

void WorkspaceCore::WatchLimit() noexcept {
  watches_limit_ = true;
  unrecorded_ = false;
  EndQuickRequests();
}

}  // namespace tidepool
