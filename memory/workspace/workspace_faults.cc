// What a workspace finds wrong when a cycle ends, and the bytes of its own state. Apart from the release
// path, which the compiler should inline as a whole.
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/workspace/thread_state.h"
#include "tidepool/memory/workspace/workspace_core.h"

namespace tidepool {

const char WorkspaceCore::kReporting = 0;

// What the failed cycle's exception takes along is no mistake: counted, not reported.
// Of a cycle whose owner closes what is left, none of it outside the pages: no record is looked at.
void WorkspaceCore::DropAll() noexcept {
  for (uint32_t slot = 0; slot < slot_count_; ++slot) {
    if (slots_[slot] == nullptr) continue;
    plan_->Release(slot);
    if (recording_) record_[slot].upper = slot_count_;
    slots_[slot] = nullptr;
  }
  account_.SubUsed(account_.used_bytes());
}

void WorkspaceCore::CollectLeaks(bool failed) noexcept {
  if (owned_cycle_ && serves_from_pages() && spilled_count == 0 && !tracing_ && !PoisonsBlocks()) {
    return DropAll();
  }
  leaks_.generation = generation();
  const uint64_t leaked_before = stats.leaked_arrays;
  for (uint32_t slot = 0; slot < slot_count_; ++slot) {
    Buffer* buffer = slots_[slot];
    if (buffer == nullptr) continue;
    // The record stays with its handles, which find it stale; only the memory is taken back.
    ReleaseBytes(buffer);
    account_.SubUsed(static_cast<int64_t>(buffer->request.bytes));
    plan_->Release(slot);
    if (recording_) record_[slot].upper = slot_count_;
    slots_[slot] = nullptr;
    if (tracing_) KeepTrace(*buffer);
    if (owned_cycle_ || buffer->closed) continue;  // closed by the cycle's owner, on another thread
    ++stats.leaked_arrays;
    // A batch that drops its lease before its arrays is no mistake either.
    if (!failed && !is_ring_slot_) NoteLeak(*buffer);
  }
  const uint64_t leaked = stats.leaked_arrays - leaked_before;
  if (leaked > 0) MemoryTracker::Global().CountLeakedArrays(static_cast<int64_t>(leaked));
}

void WorkspaceCore::KeepTrace(const Buffer& buffer) noexcept {
  if (buffer.request.slot >= traces_.size()) return;
  try {
    std::lock_guard<std::mutex> lock(traces_mutex_);
    leaked_traces_[buffer.id] = traces_[buffer.request.slot];
    has_leaked_traces_.store(true, std::memory_order_relaxed);
  } catch (const std::exception&) {
    // An error that uses it will not say where it was made.
  }
}

void WorkspaceCore::ForgetTrace(const Buffer& buffer) noexcept {
  std::lock_guard<std::mutex> lock(traces_mutex_);
  leaked_traces_.erase(buffer.id);
  has_leaked_traces_.store(!leaked_traces_.empty(), std::memory_order_relaxed);
}

std::string WorkspaceCore::DescribeOrigin(const Buffer& buffer) const {
  if (!has_leaked_traces_.load(std::memory_order_relaxed)) return "";
  std::lock_guard<std::mutex> lock(traces_mutex_);
  const auto found = leaked_traces_.find(buffer.id);
  if (found == leaked_traces_.end()) return "";
  return absl::StrCat("made for ", found->second.Owner(), " at ", found->second.Site());
}

void WorkspaceCore::NoteLeak(const Buffer& buffer) noexcept {
  ++leaks_.count;
  leaks_.bytes += static_cast<int64_t>(buffer.request.bytes);
  if (leaks_.arrays.size() >= LeakReport::kMostArrays) return;
  try {
    LeakedArray leaked{buffer.request.slot, buffer.bytes, "", ""};
    if (tracing_ && buffer.request.slot < traces_.size()) {
      leaked.owner = traces_[buffer.request.slot].Owner();
      leaked.site = traces_[buffer.request.slot].Site();
    }
    leaks_.arrays.push_back(std::move(leaked));
  } catch (const std::exception&) {
    // Counted all the same.
  }
}

// The last thing in a cycle. A sink that enters this workspace gets an error.
void WorkspaceCore::DetectFaults() noexcept {
  owner_.store(&kReporting, std::memory_order_relaxed);
  if (leaks_.count > 0) {
    LeakReport report;
    std::swap(report, leaks_);
    try {
      report.workspace = id;
    } catch (const std::exception&) {
    }
    detector.OnLeaks(report);
  }
  MemoryTracker& tracker = MemoryTracker::Global();
  detector.OnCycleEnd(generation(),
                      {static_cast<int64_t>(spilled_bytes), owned_reported_,
                       current_thread_state.workspaces, 0},
                      tracker.changes(),
                      [&] { return tracker.CurrentBytes(memory_device_, MemoryKind::kExternal); });
}

void WorkspaceCore::AccountState() noexcept {
  size_t bytes = slots_.capacity() * sizeof(Buffer*) + record_.capacity() * sizeof(LifetimeBuffer) +
                 traces_.capacity() * sizeof(AllocationTrace) +
                 (plans_.empty() ? 0 : plans_.state_bytes());
  bytes += record_slabs_.size() * kRecordsPerSlab * sizeof(Buffer);
  slots_reported_ = slots_.size();
  const int64_t change = static_cast<int64_t>(bytes) - state_reported_;
  if (change == 0) return;
  MemoryTracker::Global().Add(Host(), MemoryKind::kWorkspace, change, &memory_owner);
  state_reported_ += change;
}

}  // namespace tidepool
