// How buffers come back to a workspace, from any thread and at any time; how a workspace ends.
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/resource/heap.h"
#include "tidepool/memory/workspace/thread_state.h"
#include "tidepool/memory/workspace/workspace_core.h"

namespace tidepool {
namespace {

constexpr uint64_t kDestroyedStamp = UINT64_MAX - 1;

// Marks the remote list of a core whose Workspace is gone.
Buffer* const kAbandoned = reinterpret_cast<Buffer*>(uintptr_t{1});

}  // namespace

void WorkspaceCore::ReleaseBytes(Buffer* buffer) noexcept {
  if (buffer->request.spill == nullptr) return Poison(buffer->data, buffer->request.bytes);
  if (guard_ != nullptr) {
    guard_->Release(buffer->data, buffer->bytes);
    AccountOwned();
  } else if (config.policy_allocation == AllocationPolicy::kAlways) {
    HeapRelease(buffer->request.spill, buffer->request.bytes, MemoryKind::kUnreferenced, memory_,
                &memory_owner);
  } else {
    pool_.Release(static_cast<Pool::Block*>(buffer->request.spill));
  }
  buffer->request.spill = nullptr;
}

void WorkspaceCore::GiveBack(Buffer* buffer) noexcept {
  const uint32_t slot = buffer->request.slot;
  slots_[slot] = nullptr;
  plan_->Release(slot);
  if (recording_) record_[slot].upper = slot_count_;
  ReleaseBytes(buffer);
  account_.SubUsed(static_cast<int64_t>(buffer->request.bytes));
}

// On another thread, or after the cycle, the bytes are taken back when the cycle ends, if they
// were not already.
void WorkspaceCore::Close(Buffer* buffer) noexcept {
  if (is_open_on(CurrentThreadToken())) {
    if (IsOut(buffer)) GiveBack(buffer);
  } else if (is_ring_slot_) {
    CloseLeased(buffer);
  }
}

void WorkspaceCore::ReleaseOnOwner(Buffer* buffer) noexcept {
  if (buffer->stamp.load(std::memory_order_relaxed) == stamp_.load(std::memory_order_relaxed)) GiveBack(buffer);
  if (buffer->closed && IsOut(buffer)) GiveBack(buffer);  // closed on another thread
  if (has_leaked_traces_.load(std::memory_order_relaxed)) ForgetTrace(*buffer);
  buffer->closed.store(false, std::memory_order_relaxed);
  buffer->link.next_free = free_records_;
  free_records_ = buffer;
}

int64_t WorkspaceCore::CountRecordsOut() const {
  int64_t count = kRecordsPerSlab * static_cast<int64_t>(record_slabs_.size());
  for (const Buffer* free = free_records_; free != nullptr; free = free->link.next_free) --count;
  return count;
}

void WorkspaceCore::DrainRemote() noexcept {
  if (remote_.load(std::memory_order_relaxed) == nullptr) return;
  Buffer* buffer = remote_.exchange(nullptr, std::memory_order_acquire);
  while (buffer != nullptr) {
    Buffer* next = buffer->link.next_free;
    ReleaseOnOwner(buffer);
    buffer = next;
  }
}

void WorkspaceCore::Abandon() noexcept {
  reclaimer_.Reset();  // waits until no thread reclaims here
  if (is_open()) {
    abandoned_ = true;  // the last scope comes back here
    return;
  }
  stamp_.store(kDestroyedStamp, std::memory_order_release);
  // After the exchange below other threads count down orphans_ instead of pushing; until it
  // succeeds, drain what they push.
  for (;;) {
    DrainRemote();
    orphans_.store(CountRecordsOut() + 1, std::memory_order_relaxed);
    Buffer* expected = nullptr;
    if (remote_.compare_exchange_strong(expected, kAbandoned, std::memory_order_acq_rel)) break;
  }
  // Pages go now; only the records wait for their handles.
  ForgetPlans();
  pool_.Trim();
  ResizePages(0);
  if (orphans_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

void WorkspaceCore::Release(Buffer* buffer) noexcept {
  // The owner's address is a thread's own; while it is set only that thread can match it.
  if (owner_.load(std::memory_order_relaxed) == CurrentThreadToken()) {
    // Only plans place requests in a cycle that has quick ones.
    if (quick_slots_ == 0 || buffer->request.spill != nullptr ||
        buffer->stamp.load(std::memory_order_relaxed) != stamp_.load(std::memory_order_relaxed)) {
      return ReleaseOnOwner(buffer);
    }
    slots_[buffer->request.slot] = nullptr;
    quick_plan_.Release(buffer->request.slot);
    Poison(buffer->data, buffer->request.bytes);
    account_.SubUsed(static_cast<int64_t>(buffer->request.bytes));
    buffer->link.next_free = free_records_;
    free_records_ = buffer;
    return;
  }
  ReleaseSlowly(buffer);
}

// Not on the thread that has it open.
void WorkspaceCore::ReleaseSlowly(Buffer* buffer) noexcept {
  if (is_ring_slot_ && ReleaseLeased(buffer)) return;
  // Acquire: who sees kAbandoned must see orphans_ as well.
  Buffer* head = remote_.load(std::memory_order_acquire);
  do {
    if (head == kAbandoned) {
      if (orphans_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
      return;
    }
    buffer->link.next_free = head;
  } while (!remote_.compare_exchange_weak(head, buffer, std::memory_order_release,
                                          std::memory_order_acquire));
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
