// How buffers come back to a workspace, from any thread and at any time; how a workspace ends.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/callbacks.h"
#include "tidepool/memory/workspace/pool_state.h"
#include "tidepool/memory/workspace/thread_state.h"
#include "tidepool/memory/workspace/workspace_core.h"

namespace tidepool {
namespace {

constexpr uint64_t kDestroyedStamp = UINT64_MAX - 1;

}  // namespace

void WorkspaceCore::Release(Buffer* buffer) noexcept {
  // Only the thread that has it open can match.
  if (!gate_.is_open_on(CurrentThreadToken())) return ReleaseSlowly(buffer);
  // Only plans place requests in a cycle that has quick ones.
  if (buffer->stamp.load(std::memory_order_relaxed) != quick_stamp_ ||
      buffer->request.spill != nullptr) {
    if (IsAliveInRange(buffer)) return ReleaseRange(buffer);
    return ReleaseOnOwner(buffer);
  }
  slots_[buffer->request.slot] = RequestSlot::Released(slot_count_);
  quick_.Release(buffer->request.slot);
  const auto bytes = static_cast<int64_t>(buffer->request.bytes);
  pages_.Poison(buffer->data, buffer->request.bytes);
  records_.Put(buffer);
  account_.SubUsed(bytes);  // last, so that its rare call needs no stack here
}

bool WorkspaceCore::IsAliveInRange(const Buffer* buffer) const {
  return IsRange(buffer->request.spill) &&
         buffer->stamp.load(std::memory_order_relaxed) == stamp_.load(std::memory_order_relaxed);
}

// Not on the thread that has it open.
void WorkspaceCore::ReleaseSlowly(Buffer* buffer) noexcept {
  if (is_ring_slot_ && ReleaseLeased(buffer)) return;
  if (records_.returned().Give(buffer)) delete this;
}

void WorkspaceCore::ReleaseOnOwner(Buffer* buffer) noexcept {
  const bool alive =
      buffer->stamp.load(std::memory_order_relaxed) == stamp_.load(std::memory_order_relaxed);
  if (alive && IsRange(buffer->request.spill)) return ReleaseRange(buffer);
  // One that was closed on another thread is not alive, but its bytes may still be out.
  if (alive ||
      (buffer->closed.load(std::memory_order_relaxed) != Buffer::kNotClosed && IsOut(buffer))) {
    GiveBack(buffer);
  }
  findings_.Forget(*buffer);
  buffer->closed.store(Buffer::kNotClosed, std::memory_order_relaxed);
  buffer->request.spill = nullptr;  // of a cycle that has dropped it unseen
  records_.Put(buffer);
}

// Alive, so that there is nothing of other cycles to forget.
void WorkspaceCore::ReleaseRange(Buffer* buffer) noexcept {
  const size_t bytes = buffer->request.bytes;
  const uint32_t slot = buffer->request.slot;
  if (slot < slots_end_) slots_[slot] = RequestSlot::Released(slot_count_);
  pages_.Poison(buffer->data, bytes);
  const TwoEndedRanges::Range range = RangeOf(std::exchange(buffer->request.spill, nullptr));
  records_.PutOfMany(buffer);
  account_.SubUsed(static_cast<int64_t>(bytes));
  ranges_.Give(range, bytes);
}

// On another thread, or after the cycle, the bytes are taken back when the cycle ends, if they
// were not already.
void WorkspaceCore::Close(Buffer* buffer) noexcept {
  if (is_open_on(CurrentThreadToken())) {
    if (!IsOut(buffer)) return;
    if (const uint16_t queues = buffer->queues.load(std::memory_order_relaxed); queues != 0) {
      GoesAfter(queues);
    }
    GiveBack(buffer);
  } else if (is_ring_slot_) {
    CloseLeased(buffer);
  }
}

// The memory of a slot that is leased is used again when the lease has ended, as that of a cycle is.
void WorkspaceCore::GoesAfter(uint16_t queues) noexcept {
  if (!gate_.is_leased()) ContinueQueueAfter(memory_device_, queues_.home(), queues);
}

void WorkspaceCore::GiveBack(Buffer* buffer) noexcept {
  const uint32_t slot = buffer->request.slot;
  if (slot < slots_end_) {
    slots_[slot] = RequestSlot::Released(slot_count_);
    follower_.placed().Release(slot);
  }
  ReleaseBytes(buffer);
  account_.SubUsed(static_cast<int64_t>(buffer->request.bytes));
}

void WorkspaceCore::ReleaseBytes(Buffer* buffer) noexcept {
  void* const token = std::exchange(buffer->request.spill, nullptr);
  if (token == nullptr || IsRange(token)) {
    pages_.Poison(buffer->data, buffer->request.bytes);
    if (token != nullptr) ranges_.Give(RangeOf(token), buffer->request.bytes);
    return;
  }
  if (pool_ != nullptr && memory_device_ != Host()) {
    pool_->left.Leave(buffer->data, buffer->request.bytes, queues_.used());
  }
  spilled_bytes_alive_ -= std::min(spilled_bytes_alive_, buffer->request.bytes);
  spills_.Release(token, buffer->bytes, buffer->request.bytes);
}

void WorkspaceCore::DrainReturnedSlowly() noexcept {
  Buffer* buffer = records_.returned().TakeAll();
  while (buffer != nullptr) {
    Buffer* const next = BufferRecords::Links::Next(buffer);
    ReleaseOnOwner(buffer);
    buffer = next;
  }
}

void WorkspaceCore::Abandon() noexcept {
  entry_.Remove();
  // Until no other thread reclaims here. One that does may wait for this callback.
  if (!internal::InCallback()) reclaimer_.Reset();
  if (is_open()) {
    abandoned_ = true;  // the last scope comes back here
    return;
  }
  if (gate_.CloseForGood()) Free();
}

// Closed for good.
void WorkspaceCore::Free() noexcept {
  reclaimer_.Reset();  // waits at most for a call that finds it closed
  stamp_.store(kDestroyedStamp, std::memory_order_release);
  do {
    DrainReturned();
  } while (!records_.returned().End(records_.CountOut()));
  if (CycleMemory* const blocks = spills_.TakeBeside(); blocks != nullptr) blocks->Abandon();
  // Pages go now; only the records wait for their handles.
  Forget();
  spills_.Trim();
  pages_.Destroy();
  if (records_.returned().DropOwner()) delete this;
}

std::string WorkspaceCore::DescribeOrigin(const Buffer& buffer) const {
  return findings_.DescribeOrigin(buffer);
}

std::string WorkspaceCore::DescribeStale(uint64_t stamp) const {
  const uint64_t now = stamp_.load(std::memory_order_relaxed);
  const uint64_t made = (stamp + 1) / 2;
  if (now == stamp) return "";
  if (now == kDestroyedStamp) {
    return absl::StrCat("leaked workspace pointer from workspace [", id, "] (made in generation ",
                        made, "; the workspace was destroyed)");
  }
  if (is_ring_slot_) return DescribeStaleSlot(now, made);
  if (now % 2 == 0) {
    return absl::StrCat("leaked workspace pointer from workspace [", id, "] (made in generation ",
                        made, "; the workspace is closed after generation ", now / 2, ")");
  }
  return absl::StrCat("outdated workspace pointer from workspace [", id, "] (made in generation ",
                      made, "; the workspace is in generation ", (now + 1) / 2, ")");
}

}  // namespace tidepool
