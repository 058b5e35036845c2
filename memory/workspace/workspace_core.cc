#include "tidepool/memory/workspace/workspace_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/resource/heap.h"
#include "tidepool/memory/workspace/thread_state.h"

namespace tidepool {
namespace {

constexpr int kRecordsPerSlab = 64;
// A plan that could not be followed in this many cycles running is made anew.
constexpr int kMissingCyclesBeforeLearning = 2;
constexpr uint64_t kDestroyedStamp = UINT64_MAX - 1;

// Marks the remote list of a core whose Workspace is gone.
Buffer* const kAbandoned = reinterpret_cast<Buffer*>(uintptr_t{1});

size_t RoundUp(size_t n, size_t unit) { return (n + unit - 1) & ~(unit - 1); }

HostPagesOptions PagesOptions(const WorkspaceConfig& config) {
  HostPagesOptions options;
  options.huge_pages = config.huge_pages;
  options.prefault = config.prefault;
  return options;
}

HostPagesOptions SpillOptions(const WorkspaceConfig& config) {
  HostPagesOptions options = PagesOptions(config);
  options.prefault = false;  // spills are rare and of unknown use
  return options;
}

}  // namespace

WorkspaceCore::WorkspaceCore(std::string id_, WorkspaceConfig config_, Device device_)
    : id((config_.Validate(id_), std::move(id_))),
      config(std::move(config_)),
      device(device_),
      pages_(PagesOptions(config)),
      pool_(config.temp_block_size, config.alignment, SpillOptions(config)),
      account_(device) {
  if (device != Host()) {
    ThrowUnimplemented(absl::StrCat("workspace [", id, "]: no memory provider is linked for ",
                                    DeviceName(device)));
  }
  if (config.initial_size > 0 && config.debug_mode != DebugMode::kBypassEverything) {
    size_t wanted = config.initial_size;
    if (config.policy_allocation == AllocationPolicy::kOverallocate) {
      wanted += config.overallocation_limit.ExtraFor(wanted);
    }
    if (config.max_size > 0) wanted = std::min(wanted, config.max_size);
    pages_.Resize(RoundUp(wanted, config.alignment));
    size = wanted;
    capacity_ = RoundUp(wanted, config.alignment);
  }
  MemoryTracker::Global().Register(&account_);
  AccountOwned();
}

WorkspaceCore::~WorkspaceCore() {
  MemoryTracker& tracker = MemoryTracker::Global();
  tracker.Unregister(&account_);
  tracker.Add(device, MemoryKind::kWorkspace,
              -static_cast<int64_t>(record_slabs_.size() * kRecordsPerSlab * sizeof(Buffer)));
}

// ---- cycles ---------------------------------------------------------------------------------

void WorkspaceCore::BeginCycle(const void* thread) {
  const void* expected = nullptr;
  if (!owner_.compare_exchange_strong(expected, thread, std::memory_order_acquire)) {
    ThrowFailedPrecondition(absl::StrCat("workspace [", id,
                                         "] is open on another thread; a workspace serves one "
                                         "thread at a time"));
  }
  DrainRemote();
  stamp_.store(stamp_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  cursor = 0;
  bytes_this_cycle = 0;
  slot_count_ = 0;
  misses_this_cycle_ = 0;
  tick_ = 0;
  recording_ = learns_lifetimes() && config.debug_mode == DebugMode::kDisabled &&
               (plan_.empty() || missing_cycles_ >= kMissingCyclesBeforeLearning);
  record_.clear();
}

void WorkspaceCore::EndCycle(bool failed) noexcept {
  DrainRemote();
  if (live_count_ > 0) CollectLeaks();
  MemoryTracker::Global().Fold(&account_);
  stamp_.store(stamp_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  ++stats.cycles;
  if (failed) {
    ++stats.failed_cycles;
  } else {
    peak_cycle_bytes = std::max(peak_cycle_bytes, bytes_this_cycle);
    missing_cycles_ = misses_this_cycle_ > 0 ? missing_cycles_ + 1 : 0;
    const bool spilled = spilled_count > 0;
    try {
      Learn();
      // Kept blocks stay while cycles spill; the first cycle that fits gives them back.
      if (!spilled && pool_.owned_bytes() > 0 && pool_.block_count() == 0) {
        pool_.Trim();
        AccountOwned();
      }
    } catch (const Error&) {
      // Growing failed: the next cycle spills again and tries again at its end.
    }
  }
  bytes_last_cycle = bytes_this_cycle;
  bytes_this_cycle = 0;
  cursor = 0;
  spilled_bytes = 0;
  spilled_count = 0;
  owner_.store(nullptr, std::memory_order_release);
}

void WorkspaceCore::CollectLeaks() noexcept {
  for (uint32_t slot = 0; slot < slot_count_; ++slot) {
    Buffer* buffer = slots_[slot];
    if (buffer == nullptr) continue;
    // The record stays with its handles, which find it stale; only the memory is taken back.
    ReleaseSpill(buffer);
    account_.SubUsed(static_cast<int64_t>(buffer->slot_bytes));
    plan_.Release(slot);
    if (recording_) record_[slot].upper = tick_ + 1;
    slots_[slot] = nullptr;
    ++stats.leaked_arrays;
  }
  live_count_ = 0;
}

// ---- requests -------------------------------------------------------------------------------

Buffer* WorkspaceCore::Allocate(size_t bytes) {
  const size_t rounded = RoundUp(std::max<size_t>(bytes, 1), config.alignment);
  const uint32_t slot = slot_count_;
  if (slot == slots_.size()) slots_.resize(std::max<size_t>(64, slots_.size() * 2));
  if (recording_ && record_.size() == record_.capacity()) {
    record_.reserve(std::max<size_t>(64, record_.size() * 2));
  }
  Buffer* buffer = NewRecord();
  void* spill = nullptr;
  size_t offset;
  const bool planned = !plan_.empty();
  if (planned && plan_.TryPlace(slot, rounded, &offset)) {
    buffer->data = pages_.base() + offset;
    cursor = std::max(cursor, offset + rounded);
    ++stats.hits;
  } else {
    try {
      buffer->data = AllocateOutsidePlan(rounded, planned, &spill);
    } catch (...) {
      buffer->next = free_records_;
      free_records_ = buffer;
      --records_out_;
      throw;
    }
  }
  buffer->closed = false;
  buffer->references.store(1, std::memory_order_relaxed);
  buffer->version.store(0, std::memory_order_relaxed);
  buffer->stamp = stamp_.load(std::memory_order_relaxed);
  buffer->bytes = bytes;
  buffer->id = NextBufferId();
  buffer->slot = slot;
  buffer->slot_bytes = rounded;
  buffer->spill = spill;
  slots_[slot] = buffer;
  slot_count_ = slot + 1;
  ++live_count_;
  bytes_this_cycle += rounded;
  account_.AddUsed(static_cast<int64_t>(rounded));
  if (recording_) {
    record_.push_back({++tick_, 0, static_cast<int64_t>(rounded)});
  }
  return buffer;
}

std::byte* WorkspaceCore::AllocateOutsidePlan(size_t bytes, bool planned, void** spill) {
  if (planned) {
    // A tenant may have been released by another thread.
    DrainRemote();
    size_t offset;
    if (plan_.TryPlace(slot_count_, bytes, &offset)) {
      cursor = std::max(cursor, offset + bytes);
      ++stats.hits;
      return pages_.base() + offset;
    }
    std::byte* data = AllocateSpill(bytes, spill);
    ++stats.misses;
    ++misses_this_cycle_;
    return data;
  }
  if (cursor + bytes <= capacity_ && config.debug_mode != DebugMode::kSpillEverything &&
      config.policy_allocation != AllocationPolicy::kAlways) {
    std::byte* data = pages_.base() + cursor;
    cursor += bytes;
    ++stats.hits;
    return data;
  }
  return AllocateSpill(bytes, spill);
}

std::byte* WorkspaceCore::AllocateSpill(size_t bytes, void** spill) {
  if (config.policy_spill == SpillPolicy::kFail &&
      config.debug_mode == DebugMode::kDisabled) {
    throw OutOfMemoryError(
        absl::StrCat("workspace [", id, "] is full: request of ", bytes, " bytes, ",
                     capacity_ - std::min(cursor, capacity_), " of ", capacity_,
                     " bytes free, policy_spill kFail"),
        MemoryTracker::Global().Snapshot().ToString());
  }
  if (config.policy_spill == SpillPolicy::kReallocate && config.max_size > 0 && plan_.empty() &&
      bytes_this_cycle + bytes > config.max_size) {
    throw OutOfMemoryError(
        absl::StrCat("workspace [", id, "]: the cycle needs ", bytes_this_cycle + bytes,
                     " bytes, max_size is ", config.max_size, ", policy_spill kReallocate"),
        MemoryTracker::Global().Snapshot().ToString());
  }
  std::byte* data;
  if (config.policy_allocation == AllocationPolicy::kAlways) {
    data = static_cast<std::byte*>(HeapAllocate(bytes, config.alignment, MemoryKind::kUnreferenced));
    *spill = data;
  } else {
    const size_t owned = pool_.owned_bytes();
    Pool::Block* block = pool_.Allocate(bytes);
    data = block->data;
    *spill = block;
    if (pool_.owned_bytes() != owned) AccountOwned();
  }
  ++spilled_count;
  spilled_bytes += bytes;
  ++stats.spills;
  stats.spilled_bytes += bytes;
  return data;
}

void WorkspaceCore::ReleaseSpill(Buffer* buffer) noexcept {
  if (buffer->spill == nullptr) return;
  if (config.policy_allocation == AllocationPolicy::kAlways) {
    HeapRelease(buffer->spill, buffer->slot_bytes, MemoryKind::kUnreferenced);
  } else {
    pool_.Release(static_cast<Pool::Block*>(buffer->spill));
  }
  buffer->spill = nullptr;
}

// ---- releases -------------------------------------------------------------------------------

void WorkspaceCore::GiveBack(Buffer* buffer) noexcept {
  const uint32_t slot = buffer->slot;
  slots_[slot] = nullptr;
  --live_count_;
  plan_.Release(slot);
  if (recording_) record_[slot].upper = ++tick_;
  ReleaseSpill(buffer);
  account_.SubUsed(static_cast<int64_t>(buffer->slot_bytes));
}

// On another thread, or after the cycle, the bytes are taken back when the cycle ends, if they
// were not already.
void WorkspaceCore::Close(Buffer* buffer) noexcept {
  if (is_open_on(CurrentThreadToken()) && buffer->IsAlive()) GiveBack(buffer);
}

void WorkspaceCore::ReleaseOnOwner(Buffer* buffer) noexcept {
  if (buffer->stamp == stamp_.load(std::memory_order_relaxed)) GiveBack(buffer);
  if (buffer->closed && buffer->slot < slot_count_ && slots_[buffer->slot] == buffer) {
    GiveBack(buffer);  // closed on another thread
  }
  buffer->next = free_records_;
  free_records_ = buffer;
  --records_out_;
}

void WorkspaceCore::DrainRemote() noexcept {
  if (remote_.load(std::memory_order_relaxed) == nullptr) return;
  Buffer* buffer = remote_.exchange(nullptr, std::memory_order_acquire);
  while (buffer != nullptr) {
    Buffer* next = buffer->next;
    ReleaseOnOwner(buffer);
    buffer = next;
  }
}

Buffer* WorkspaceCore::NewRecord() {
  if (free_records_ == nullptr) AddRecords();
  Buffer* buffer = free_records_;
  free_records_ = buffer->next;
  ++records_out_;
  return buffer;
}

void WorkspaceCore::AddRecords() {
  DrainRemote();
  if (free_records_ != nullptr) return;
  record_slabs_.push_back(std::make_unique<Buffer[]>(kRecordsPerSlab));
  for (int i = 0; i < kRecordsPerSlab; ++i) {
    Buffer& buffer = record_slabs_.back()[i];
    buffer.stamp_cell = &stamp_;
    buffer.device = device;
    buffer.kind = MemoryKind::kAllocated;
    buffer.owner = this;
    buffer.attached = true;
    buffer.next = free_records_;
    free_records_ = &buffer;
  }
  MemoryTracker::Global().Add(device, MemoryKind::kWorkspace,
                              static_cast<int64_t>(kRecordsPerSlab * sizeof(Buffer)));
}

void WorkspaceCore::Abandon() noexcept {
  if (is_open()) {
    abandoned_ = true;  // the last scope comes back here
    return;
  }
  stamp_.store(kDestroyedStamp, std::memory_order_release);
  // After the exchange below other threads count down orphans_ instead of pushing; until it
  // succeeds, drain what they push.
  for (;;) {
    DrainRemote();
    orphans_.store(records_out_ + 1, std::memory_order_relaxed);
    Buffer* expected = nullptr;
    if (remote_.compare_exchange_strong(expected, kAbandoned, std::memory_order_acq_rel)) break;
  }
  // Pages go now; only the records wait for their handles.
  pool_.Trim();
  pages_.Resize(0);
  capacity_ = size = 0;
  AccountOwned();
  if (orphans_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

void WorkspaceCore::Release(Buffer* buffer) noexcept {
  // The owner's address is a thread's own; while it is set only that thread can match it.
  if (const void* owner = owner_.load(std::memory_order_relaxed);
      owner != nullptr && owner == CurrentThreadToken()) {
    ReleaseOnOwner(buffer);
    return;
  }
  Buffer* head = remote_.load(std::memory_order_relaxed);
  do {
    if (head == kAbandoned) {
      if (orphans_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
      return;
    }
    buffer->next = head;
  } while (!remote_.compare_exchange_weak(head, buffer, std::memory_order_release,
                                          std::memory_order_relaxed));
}

std::string WorkspaceCore::DescribeStale(uint64_t stamp) const {
  const uint64_t now = stamp_.load(std::memory_order_relaxed);
  const uint64_t made = (stamp + 1) / 2;
  if (now == stamp) return "";
  if (now == kDestroyedStamp) {
    return absl::StrCat("leaked workspace pointer from workspace [", id, "] (made in generation ",
                        made, "; the workspace was destroyed)");
  }
  if (now % 2 == 0) {
    return absl::StrCat("leaked workspace pointer from workspace [", id, "] (made in generation ",
                        made, "; the workspace is closed after generation ", now / 2, ")");
  }
  return absl::StrCat("outdated workspace pointer from workspace [", id, "] (made in generation ",
                      made, "; the workspace is in generation ", (now + 1) / 2, ")");
}

}  // namespace tidepool
