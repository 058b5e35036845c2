#include "tidepool/memory/workspace/workspace_core.h"

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/mirroring/mirror_counters.h"
#include "tidepool/memory/resource/budgeted_resource.h"
#include "tidepool/memory/resource/guard_pages.h"
#include "tidepool/memory/resource/heap.h"
#include "tidepool/memory/resource/pages_resource.h"
#include "tidepool/memory/resource/pool.h"
#include "tidepool/memory/resource/reclaiming_resource.h"
#include "tidepool/memory/workspace/thread_state.h"

namespace tidepool {
namespace {

size_t RoundUp(size_t n, size_t unit) { return (n + unit - 1) & ~(unit - 1); }

// The core decides itself what of its pages to touch ahead; spills are rare and of unknown use.
PagesOptions OptionsOf(const WorkspaceConfig& config, MemoryOwner& owner) {
  PagesOptions options;
  options.large_pages = config.huge_pages;
  options.prefault = false;
  options.owner = &owner;
  return options;
}

DeviceProvider& MemoryOf(const std::string& id, const WorkspaceConfig& config, Device device) {
  DeviceProvider& provider = GetDeviceProvider(device, absl::StrCat("workspace [", id, "]"));
  if (device == Host() || config.policy_mirroring != MirroringPolicy::kHostOnly) return provider;
  DeviceProvider* const pinned = provider.PinnedHost();
  return pinned != nullptr ? *pinned : GetDeviceProvider(Host(), "workspace");
}

}  // namespace

WorkspaceCore::WorkspaceCore(std::string id_, WorkspaceConfig config_, Device device_)
    : id((config_.Validate(id_, device_), std::move(id_))),
      config(std::move(config_)),
      device(device_),
      memory_owner(MemoryOwner::Current().Child(absl::StrCat("workspace ", id))),
      memory_(MemoryOf(id, config, device)),
      memory_device_(memory_.device()),
      alignment_(std::max(config.alignment, memory_.traits().alignment)),
      host_readable_(memory_.traits().host_readable),
      pages_(OptionsOf(config, memory_owner), memory_),
      account_(memory_device_, &memory_owner),
      plans_(config.policy_learning == LearningPolicy::kTraining ? PlanSet::kMostPlans : 1) {
  BuildSpills();
  // The workspace's own state is on the host; from here on counting it does not fail.
  MemoryTracker::Global().Add(Host(), MemoryKind::kWorkspace, 0, &memory_owner);
  MemoryTracker::Global().Register(&account_);
  try {
    TakeInitialPages();
    reclaimer_ = Reclaimer::Global().Register(
        absl::StrCat("workspace ", id), [this](ReclaimDepth depth) { return Reclaim(depth); });
  } catch (...) {
    MemoryTracker::Global().Unregister(&account_);
    throw;
  }
}

void WorkspaceCore::BuildSpills() {
  if (guards()) {
    MemoryResource& pages = spills_.Add<GuardPages>();
    MemoryResource& budgeted = spills_.Add<BudgetedResource>(pages, &memory_owner, "guarded pages");
    spills_.Add<ReclaimingResource>(budgeted);
  } else if (config.policy_allocation == AllocationPolicy::kAlways) {
    spills_.Add<HeapResource>(memory_, MemoryKind::kUnreferenced, &memory_owner);
  } else {
    MemoryResource& pages = spills_.Add<PagesResource>(OptionsOf(config, memory_owner), memory_);
    spills_.Add<Pool>(pages, config.temp_block_size, alignment_);
  }
}

WorkspaceCore::~WorkspaceCore() {
  ForgetMirrorOwner(static_cast<const BufferOwner*>(this));
  MemoryTracker& tracker = MemoryTracker::Global();
  tracker.Unregister(&account_);
  tracker.Add(Host(), MemoryKind::kWorkspace, -state_reported_, &memory_owner);
}

// ---- cycles ---------------------------------------------------------------------------------

void WorkspaceCore::BeginCycle(const void* thread) {
  const void* expected = nullptr;
  while (!owner_.compare_exchange_strong(expected, thread, std::memory_order_acquire)) {
    const void* owner = std::exchange(expected, nullptr);
    if (owner == &kMaintenance) {  // soon over
      std::this_thread::yield();
      continue;
    }
    if (owner == &kReporting) {
      ThrowFailedPrecondition(absl::StrCat("workspace [", id, "] reports the findings of a cycle; "
                                           "a sink may not enter it"));
    }
    ThrowFailedPrecondition(absl::StrCat("workspace [", id,
                                         "] is open on another thread; a workspace serves one "
                                         "thread at a time"));
  }
  if (guards() && detector.has_first()) {
    owner_.store(nullptr, std::memory_order_release);
    ThrowFailedPrecondition(detector.TakeFirst());
  }
  DrainRemote();
  if (lacks_initial_pages_ || lacks_pages_ || file_ != nullptr) {
    try {
      PreparePages();
    } catch (...) {
      owner_.store(nullptr, std::memory_order_release);
      throw;
    }
  }
  if (search_ != nullptr && search_->ready()) AdoptBetterPlan();
  stamp_.store(stamp_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  cursor = 0;
  bytes_this_cycle = 0;
  slot_count_ = 0;
  settled_ = 0;
  misses_this_cycle_ = 0;
  // It is expected to be like the last one that had a plan.
  if (learned_ == nullptr && !plans_.empty()) FollowPlan(plans_.cycles().front().get());
  recording_ = learned_ == nullptr && learns_lifetimes() && serves_from_pages();
  record_.clear();
  record_signature_ = kNoRequests;
  pins_.clear();
  tracing_ = MemoryTracing::enabled();
  PrepareQuickRequests();
}

// Requests that follow the plan need only what Allocate does; everything else is prepared here.
void WorkspaceCore::PrepareQuickRequests() {
  quick_slots_ = 0;
  if (recording_ || tracing_ || learned_ == nullptr) return;
  const uint64_t planned = std::min(plan_->size(), slots_.size());
  if (ids_end_ - next_id_ < planned) {
    next_id_ = NextBufferIds();
    ids_end_ = next_id_ + kBufferIdsAtOnce;
  }
  quick_slots_ = static_cast<uint32_t>(std::min(planned, kBufferIdsAtOnce));
  quick_plan_ = WorkspacePlan::Quick(*plan_);
  first_id_ = next_id_;
  next_id_ += quick_slots_;
}

// Counts what Allocate left to be derived from the plan.
void WorkspaceCore::Settle() noexcept {
  if (settled_ == slot_count_) return;
  cursor = CurrentCursor();
  bytes_this_cycle = CurrentBytesThisCycle();
  stats.hits = CurrentHits();
  settled_ = slot_count_;
}

size_t WorkspaceCore::CurrentCursor() const {
  if (settled_ == slot_count_) return cursor;
  return std::max(cursor, plan_->top_of(settled_, slot_count_));
}

size_t WorkspaceCore::CurrentBytesThisCycle() const {
  if (settled_ == slot_count_) return bytes_this_cycle;
  return bytes_this_cycle + plan_->bytes_of(settled_, slot_count_);
}

void WorkspaceCore::EndCycle(bool failed) noexcept {
  DrainRemote();
  Settle();
  if (has_live()) CollectLeaks(failed);
  MemoryTracker::Global().Fold(&account_);
  stamp_.store(stamp_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  ++stats.cycles;
  if (failed) {
    ++stats.failed_cycles;
  } else if (!is_ring_slot_) {
    ++cycles_learned_from_;
    peak_cycle_bytes = std::max(peak_cycle_bytes, bytes_this_cycle);
    try {
      Learn();
      PrefaultPages(std::max(cursor, plan_->peak_bytes()));
      TrimIdleBlocks();
    } catch (const std::exception&) {
      // Without the memory to learn or to grow, the next cycle spills and tries again at its end.
    }
  }
  bytes_last_cycle = bytes_this_cycle;
  bytes_this_cycle = 0;
  cursor = 0;
  if (reclaim_requested_.load(std::memory_order_relaxed)) {
    reclaim_requested_.store(false, std::memory_order_relaxed);
    TrimPool();
  }
  if (recording_ || tracing_ || slots_.size() != slots_reported_) AccountState();
  if (leaks_.count > 0 || detector.IsNews(static_cast<int64_t>(spilled_bytes),
                                          MemoryTracker::Global().changes())) {
    DetectFaults();
  }
  spilled_bytes = 0;
  spilled_count = 0;
  owned_cycle_ = false;
  owner_.store(nullptr, std::memory_order_release);
}

// ---- requests -------------------------------------------------------------------------------

Buffer* WorkspaceCore::Allocate(size_t bytes) {
  const uint32_t slot = slot_count_;
  Buffer* const buffer = free_records_;
  if (slot >= quick_slots_ || buffer == nullptr) return AllocateSlowly(bytes);
  const WorkspacePlan::Slot* const planned = quick_plan_.TryPlace(slot, bytes, alignment_);
  if (planned == nullptr) return AllocateSlowly(bytes);
  const size_t rounded = planned->bytes;
  // As few stores as can be: they are what this path costs. Settle() counts the rest.
  free_records_ = buffer->link.next_free;
  buffer->data = base_ + planned->offset;
  Unpoison(buffer->data, rounded);
  buffer->stamp.store(stamp_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  buffer->bytes = bytes;
  buffer->id = first_id_ + slot;
  buffer->request.slot = slot;
  buffer->request.bytes = rounded;
  slots_[slot] = buffer;
  slot_count_ = slot + 1;
  account_.AddUsed(static_cast<int64_t>(rounded));
  return buffer;
}

Buffer* WorkspaceCore::AllocateSlowly(size_t bytes) {
  Settle();
  // A size that cannot exist rounds to 0, which no plan holds and AllocateOutsidePlan refuses.
  const size_t rounded = RoundUp(bytes + (bytes == 0), alignment_);
  const uint32_t slot = slot_count_;
  if (slot == slots_.size()) slots_.resize(std::max<size_t>(64, slots_.size() * 2));
  if (recording_ || tracing_) ReserveRecords();
  if (free_records_ == nullptr) AddRecords();
  void* spill = nullptr;
  size_t offset;
  std::byte* data;
  if (plan_->TryPlace(slot, rounded, &offset)) {
    data = base_ + offset;
    Unpoison(data, rounded);
    cursor = std::max(cursor, offset + rounded);
    ++stats.hits;
  } else {
    data = AllocateOutsidePlan(bytes, rounded, &spill);
  }
  Buffer* buffer = free_records_;
  free_records_ = buffer->link.next_free;
  buffer->data = data;
  buffer->stamp.store(stamp_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  buffer->bytes = bytes;
  buffer->id = NextBufferId();
  buffer->request.slot = slot;
  buffer->request.bytes = rounded;
  buffer->request.spill = spill;
  slots_[slot] = buffer;
  slot_count_ = settled_ = slot + 1;
  bytes_this_cycle += rounded;
  account_.AddUsed(static_cast<int64_t>(rounded));
  if (recording_ || tracing_) RecordRequest(rounded);
  return buffer;
}

// Before anything is changed: what follows cannot fail.
void WorkspaceCore::ReserveRecords() {
  if (recording_ && record_.size() == record_.capacity()) {
    record_.reserve(std::max<size_t>(64, record_.size() * 2));
  }
  if (tracing_ && slot_count_ >= traces_.size()) traces_.resize(slots_.size());
}

void WorkspaceCore::RecordRequest(size_t rounded) noexcept {
  const uint32_t slot = slot_count_ - 1;
  if (recording_) {
    record_.push_back({slot, 0, static_cast<int64_t>(rounded)});
    record_signature_ = ExtendSignature(record_signature_, rounded);
  }
  if (tracing_) traces_[slot].Capture();
}

std::byte* WorkspaceCore::AllocateOutsidePlan(size_t bytes, size_t rounded, void** spill) {
  if (rounded == 0) {
    throw OutOfMemoryError(absl::StrCat("workspace [", id, "]: a request of ", bytes,
                                        " bytes cannot be served"),
                           MemoryTracker::Global().Snapshot().ToString());
  }
  size_t offset = cursor;
  bool fits = false;
  bool misses = false;
  if (learned_ != nullptr) {
    // A tenant may have been released by another thread.
    DrainRemote();
    fits = plan_->TryPlace(slot_count_, rounded, &offset);
    if (!fits && !learned_->IsOutside(slot_count_, rounded)) {
      fits = PlaceOffPlan(rounded, &offset);
      misses = !fits && learned_ != nullptr && !learned_->IsOutside(slot_count_, rounded);
    }
  }
  if (learned_ == nullptr && serves_from_pages()) fits = rounded <= capacity_ - cursor;
  if (fits) {
    cursor = std::max(cursor, offset + rounded);
    ++stats.hits;
    Unpoison(base_ + offset, rounded);
    return base_ + offset;
  }
  std::byte* data = AllocateSpill(bytes, rounded, spill);
  if (misses) {
    ++stats.misses;
    ++misses_this_cycle_;
  }
  return data;
}

// Under kReallocate a cycle may not need more than max_size: the sum of its requests, or what is
// alive at once when lifetimes are learned.
void WorkspaceCore::CheckMaySpill(size_t bytes) const {
  if (config.policy_spill == SpillPolicy::kFail && config.debug_mode == DebugMode::kDisabled) {
    throw OutOfMemoryError(
        absl::StrCat("workspace [", id, "] is full: request of ", bytes, " bytes, ",
                     capacity_ - cursor, " of ", capacity_, " bytes free, policy_spill kFail"),
        MemoryTracker::Global().Snapshot().ToString());
  }
  if (config.policy_spill != SpillPolicy::kReallocate || config.max_size == 0) return;
  const size_t before =
      learns_lifetimes() ? static_cast<size_t>(account_.used_bytes()) : bytes_this_cycle;
  if (bytes <= config.max_size && before <= config.max_size - bytes) return;
  throw OutOfMemoryError(
      absl::StrCat("workspace [", id, "]: a request of ", bytes, " bytes: the cycle needs ",
                   before + bytes, learns_lifetimes() ? " bytes at once" : " bytes",
                   ", max_size is ", config.max_size, ", policy_spill kReallocate"),
      MemoryTracker::Global().Snapshot().ToString());
}

std::byte* WorkspaceCore::AllocateSpill(size_t bytes, size_t rounded, void** spill) {
  CheckMaySpill(rounded);
  const size_t owned = spills_.owned_bytes();
  const Allocation block = AllocateOrThrow(spills_, SpillBytes(bytes, rounded), alignment_);
  *spill = block.token;
  if (spills_.owned_bytes() != owned) AccountOwned();
  ++spilled_count;
  spilled_bytes += rounded;
  ++stats.spills;
  stats.spilled_bytes += rounded;
  return block.data;
}

void WorkspaceCore::AddRecords() {
  DrainRemote();
  if (free_records_ != nullptr) return;
  record_slabs_.push_back(std::make_unique<Buffer[]>(kRecordsPerSlab));  // all or nothing
  for (int i = 0; i < kRecordsPerSlab; ++i) {
    Buffer& buffer = record_slabs_.back()[i];
    buffer.stamp_cell = &stamp_;
    buffer.device = memory_device_;
    buffer.kind = MemoryKind::kAllocated;
    buffer.owner = this;
    buffer.attached = true;
    buffer.link.next_free = free_records_;
    free_records_ = &buffer;
  }
  AccountState();
}

}  // namespace tidepool
