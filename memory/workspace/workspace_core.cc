// How cycles begin and end.
#include "tidepool/memory/workspace/workspace_core.h"

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/callbacks.h"
#include "tidepool/memory/accounting/memory_listener.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/mirroring/mirror_counters.h"
#include "tidepool/memory/provider/addresses_only.h"
#include "tidepool/memory/provider/device_loss.h"
#include "tidepool/memory/workspace/pool_state.h"
#include "tidepool/memory/workspace/thread_state.h"

namespace tidepool {
namespace {

// A budget's error names the workspace among owners.
void TellWhosePages(const std::string& id, OutOfMemoryError& error) {
  if (error.message().starts_with("memory budget: ")) return;
  error.AddContext(absl::StrCat("workspace [", id, "]: pages"));
}

// Of a cycle that was traced, before what is alive is dropped.
void TellOfCycle(MemoryListener& listener, RecordedCycle cycle, RequestView view) noexcept {
  try {
    std::vector<uint32_t> released_after;
    released_after.reserve(view.slots.size());
    for (const RequestSlot& slot : view.slots) {
      const bool dropped = slot.is_live() && slot.buffer()->closed.load(
                                                 std::memory_order_relaxed) != Buffer::kNotClosed;
      released_after.push_back(dropped          ? view.count()
                               : slot.is_live() ? RecordedCycle::kAlive
                                                : slot.released_after());
    }
    cycle.released_after = released_after;
    listener.Ended(cycle);
  } catch (const std::exception&) {
    // The recording has no such cycle.
  }
}

}  // namespace

DeviceProvider& WorkspaceCore::MemoryOf(const std::string& id, const WorkspaceConfig& config,
                                        Device device) {
  DeviceProvider& provider = GetDeviceProvider(device, absl::StrCat("workspace [", id, "]"));
  if (device == Host() || config.policy_mirroring != MirroringPolicy::kHostOnly)
    return MemoryOrAddresses(provider);
  DeviceProvider* const pinned = provider.PinnedHost();
  return MemoryOrAddresses(pinned != nullptr ? *pinned : GetDeviceProvider(Host(), "workspace"));
}

WorkspaceCore::WorkspaceCore(std::string id_, WorkspaceConfig config_, Device device_,
                             std::shared_ptr<PoolState> pool)
    : id((config_.Validate(id_, device_), std::move(id_))),
      config(std::move(config_)),
      device(device_),
      owner_lease(MemoryOwner::Current(), absl::StrCat("workspace ", id)),
      memory_owner(*owner_lease),
      pool_(std::move(pool)),
      memory_(MemoryOf(id, config, device)),
      memory_device_(memory_.device()),
      alignment_(std::max(config.alignment, memory_.traits().alignment)),
      records_(this, &stamp_, memory_device_),
      account_(memory_device_, &memory_owner),
      pages_(id, config, alignment_, memory_, memory_owner, owned_, counters),
      spills_(config, alignment_, memory_, memory_owner, owned_,
              pool_ != nullptr ? &pool_->memory.blocks() : nullptr),
      learner_(config, alignment_),
      follower_(config, counters) {
  // The workspace's own state is on the host; from here on counting it does not fail.
  learner_.AllowUnrecorded();
  learner_.ExpectOrder();
  MemoryTracker::Global().Add(Host(), MemoryKind::kWorkspace, 0, &memory_owner);
  MemoryTracker::Global().Register(&account_);
  try {
    pages_.Prepare(0);
    learner_.SetInitialBytes(pages_.initial_bytes());
    reclaimer_ = Reclaimer::Global().Register(
        absl::StrCat("workspace ", id), [this](ReclaimDepth depth) { return Reclaim(depth); });
  } catch (OutOfMemoryError& error) {
    MemoryTracker::Global().Unregister(&account_);
    TellWhosePages(this->id, error);
    throw;
  } catch (...) {
    MemoryTracker::Global().Unregister(&account_);
    throw;
  }
}

WorkspaceCore::~WorkspaceCore() {
  ForgetMirrorOwner(static_cast<const BufferOwner*>(this));
  MemoryTracker& tracker = MemoryTracker::Global();
  tracker.Unregister(&account_);
  tracker.Add(Host(), MemoryKind::kWorkspace, -state_reported_, &memory_owner);
}

void WorkspaceCore::BeginCycle(const void* thread) {
  if (gate_.TryEnter(thread) != CycleGate::Entry::kEntered) EnterSlowly(thread);
  try {
    Open();
  } catch (...) {
    gate_.Leave();
    if (abandoned_) Abandon();  // in a callback
    throw;
  }
}

// It was not closed a moment ago: waits until it was maintained, or throws.
[[gnu::cold]] void WorkspaceCore::EnterSlowly(const void* thread) {
  const bool may_wait = !internal::InCallback();
  switch (may_wait ? gate_.Enter(thread) : gate_.TryEnter(thread)) {
    case CycleGate::Entry::kEntered:
      return;
    case CycleGate::Entry::kOpenElsewhere:
      ThrowFailedPrecondition(absl::StrCat("workspace [", id,
                                           "] is open on another thread; a workspace serves one "
                                           "thread at a time"));
    case CycleGate::Entry::kReportingHere:
      ThrowFailedPrecondition(absl::StrCat("workspace [", id,
                                           "] reports the findings of a cycle; "
                                           "a sink may not enter it"));
    case CycleGate::Entry::kMaintained:
      ThrowFailedPrecondition(
          absl::StrCat("workspace [", id, "]: a callback may not wait until the ",
                       "workspace was trimmed, changed or reclaimed, which it is being"));
  }
}

// The guard has found something in an earlier cycle. Another slot of a ring may have told of it by now.
[[gnu::cold]] void WorkspaceCore::RefuseAfterFinding() {
  const std::string first = findings_.detector().first().Take();
  if (!first.empty()) ThrowFailedPrecondition(first);
}

// Inside the gate. Nothing is changed by what throws.
void WorkspaceCore::Open() {
  if (config.debug_mode == DebugMode::kGuard && findings_.detector().first().has())
    RefuseAfterFinding();
  if (memory_device_ != Host() && IsLost(memory_device_))
    ThrowLost(memory_device_, absl::StrCat("workspace [", id, "]"));
  DrainReturned();
  if (search_.ready()) AdoptBetterPlan();
  if (pages_.needs_preparing()) PreparePages();
  if (memory_device_ != Host()) queues_.Begin();
  stamp_.store(stamp_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  counters.cursor = 0;
  counters.bytes_this_cycle = 0;
  slot_count_ = 0;
  settled_ = 0;
  misses_ = 0;
  most_spilled_bytes_alive_ = spilled_bytes_alive_ = most_alive_at_spills_ = 0;
  findings_.BeginCycle();
  serves_blocks_ = true;
  watches_limit_ = false;
  const bool awaits_pages =
      learner_.plans().loaded_peak_bytes() > pages_.capacity() && !loaded_refused_;
  if (pool_ != nullptr || awaits_pages) return OpenUndecided();
  BeginFollowing();
}

// What was learned may be more than there is now, under a limit that came later or beside others: then the cycle
// has no pages, and is served as the first one was. Where the last cycle needed less, that much is what counts.
void WorkspaceCore::PreparePages() {
  try {
    pages_.Prepare(std::max<size_t>(learner_.plans().peak_bytes(), counters.bytes_last_cycle));
  } catch (OutOfMemoryError& error) {
    if (is_ring_slot_ || !pages_.may_do_without()) {
      TellWhosePages(id, error);
      throw;
    }
    learner_.Trim(counters.bytes_last_cycle);
    FollowLearned();
  }
  learner_.SetInitialBytes(pages_.initial_bytes());
}

void WorkspaceCore::BeginFollowing() {
  if (!follower_.BeginCycle(pages_.capacity()) || findings_.tracing() ||
      quick_slots_ != follower_.placed().size() || ids_end_ - next_id_ < quick_slots_) {
    PrepareQuickRequests();
  }
  first_id_ = next_id_;
  next_id_ += id_slots_ = quick_slots_;
  quick_stamp_ = quick_slots_ > 0 ? stamp_.load(std::memory_order_relaxed) : kNoQuickStamp;
}

// Requests that follow the plan need only what Allocate does; everything else is prepared here.
void WorkspaceCore::PrepareQuickRequests() {
  quick_slots_ = free_slots_ = 0;
  // A trace goes by slots.
  slots_end_ = follower_.unrecorded() && !findings_.tracing() ? 0 : UINT32_MAX;
  if (findings_.tracing()) return findings_.TellBegin(memory_owner, generation());
  if (follower_.plan() == nullptr) {
    if (!uses_ranges_ || limits_live_) return;
    if (!ranges_.begun()) BeginRanges();  // else what went back to the system is none of them
    return ExpectInRanges();
  }
  const uint64_t planned = std::min(follower_.placed().size(), slots_.size());
  if (ids_end_ - next_id_ < planned) {
    next_id_ = NextBufferIds();
    ids_end_ = next_id_ + kBufferIdsAtOnce;
  }
  quick_slots_ = static_cast<uint32_t>(std::min(planned, kBufferIdsAtOnce));
  quick_ = PlanFollower::Quick(follower_.placed());
}

void WorkspaceCore::EndCycle(bool failed) noexcept {
  FinishCycle(failed);
  LeaveCycle();
}

void WorkspaceCore::FinishCycle(bool failed) noexcept {
  DrainReturned();
  if (undecided_ && pool_ == nullptr) {  // it requested nothing
    undecided_ = false;
    BeginFollowing();
  }
  Settle();
  // Callbacks of what follows are outside of the cycle, so that nothing is left that is not counted.
  serves_blocks_ = false;
  if (block_memory() != nullptr) EndBlocks(*block_memory(), failed);
  if (findings_.tracing()) [[unlikely]] {
    if (MemoryListener* const listener = MemoryListener::Current(MemoryListener::kProfile)) {
      TellOfCycle(*listener,
                  {number(),
                   generation(),
                   id,
                   &memory_owner,
                   memory_device_,
                   {},
                   failed,
                   owned_cycle_,
                   pages_.capacity(),
                   counters.block_bytes},
                  made());
    }
  }
  if (has_live()) DropLive(failed);
  MemoryTracker::Global().Fold(&account_);
  stamp_.store(stamp_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  quick_stamp_ = kNoQuickStamp;
  ++counters.cycles;
  if (failed) ++counters.failed_cycles;
  if (memory_device_ != Host()) queues_.End();
  if (pages_.has_holes()) {
    spills_.Trim();
    pages_.FillHoles();
  }
  if (pool_ != nullptr) {
    EndPooled(failed);
  } else if (failed) {
    LearnFromFailed();
  } else if (!is_ring_slot_) {
    LearnFromCycle();
    spills_.EndCycle();
  }
  if (refused_request_.is_noted()) refused_request_.Clear();
  ranges_.End();
  counters.bytes_last_cycle = counters.bytes_this_cycle;
  counters.bytes_this_cycle = 0;
  counters.cursor = 0;
  const bool asked = reclaim_requested_.load(std::memory_order_relaxed);
  if (asked) {
    reclaim_requested_.store(false, std::memory_order_relaxed);
    spills_.Trim();
  }
  if (learner_.is_ahead()) GiveAhead(asked);
  if (!follower_.recorder().requests().empty() || findings_.tracing() ||
      slots_.size() != slots_reported_ || learner_.version() != plans_reported_) {
    AccountState();
    if (findings_.tracing()) findings_.TellEnd(memory_owner, generation());
  }
}

// The last thing in a cycle, under no lock: sinks are told.
void WorkspaceCore::LeaveCycle() noexcept {
  // The cycles of a pool's workspace are of many kinds: that one spills more than the last says nothing.
  const auto spilled =
      pool_ != nullptr ? 0 : static_cast<int64_t>(counters.cycle_spilled_bytes.get());
  if (findings_.HasNews(spilled, MemoryTracker::Global().changes())) {
    // A sink that enters this workspace gets an error.
    gate_.Report(CurrentThreadToken());
    findings_.Report(generation(), {spilled, owned_.bytes(), current_thread_state.workspaces, 0},
                     memory_device_);
  }
  counters.cycle_spilled_bytes = 0;
  counters.cycle_spills = 0;
  owned_cycle_ = false;
  gate_.Leave();
}

void WorkspaceCore::DropLive(bool failed) noexcept {
  if (owned_cycle_ && serves_from_pages() && counters.cycle_spills == 0 && !findings_.tracing() &&
      !PoisonsBlocks()) {
    return DropAllUnseen();
  }
  uint64_t leaked = 0;
  for (uint32_t slot = 0; slot < slotted(); ++slot) {
    if (slots_[slot].is_live()) leaked += DropBuffer(slots_[slot].buffer(), failed);
  }
  // All others that are alive have a token, and nothing else has one.
  if (slot_count_ > slots_end_) {
    records_.ForEach([&](Buffer* buffer) {
      if (buffer->request.spill != nullptr) leaked += DropBuffer(buffer, failed);
    });
  }
  if (leaked > 0) MemoryTracker::Global().CountLeakedArrays(static_cast<int64_t>(leaked));
}

// Returns how many leaked by it.
uint64_t WorkspaceCore::DropBuffer(Buffer* buffer, bool failed) noexcept {
  // The record stays with its handles, which find it stale; only the memory is taken back.
  GiveBack(buffer);
  findings_.Outlives(*buffer);
  if (owned_cycle_ || buffer->closed != Buffer::kNotClosed)
    return 0;  // closed by the cycle's owner, on another thread
  ++counters.leaked_arrays;
  // What the failed cycle's exception takes along is no mistake: counted, not reported.
  if (!failed) findings_.Leaks(*buffer);
  return 1;
}

// Of a cycle whose owner closes what is left, none of it outside the pages: no record is looked at, but of requests
// that no plan placed, whose tokens go.
void WorkspaceCore::DropAllUnseen() noexcept {
  const uint32_t count = slot_count_;
  const bool has_tokens = ranges_.begun();
  ranges_.Lose();
  PlanFollower& placed = follower_.placed();
  RequestSlot* const slots = slots_.data();
  const uint32_t end = slotted();
  for (uint32_t slot = 0; slot < end; ++slot) {
    if (!slots[slot].is_live()) continue;
    if (has_tokens) slots[slot].buffer()->request.spill = nullptr;
    placed.Release(slot);
    slots[slot] = RequestSlot::Released(count);
  }
  if (count > slots_end_) records_.ForEach([](Buffer* buffer) { buffer->request.spill = nullptr; });
  account_.SubUsed(account_.used_bytes());
}

void WorkspaceCore::AccountState() noexcept {
  const size_t bytes = slots_.capacity() * sizeof(RequestSlot) + records_.state_bytes() +
                       learner_.state_bytes() + follower_.state_bytes() + ranges_.state_bytes() +
                       findings_.state_bytes() + refused_request_.state_bytes();
  slots_reported_ = slots_.size();
  plans_reported_ = learner_.version();
  const int64_t change = static_cast<int64_t>(bytes) - state_reported_;
  if (change == 0) return;
  MemoryTracker::Global().Add(Host(), MemoryKind::kWorkspace, change, &memory_owner);
  state_reported_ += change;
}

WorkspaceStats WorkspaceCore::Stats() const {
  WorkspaceStats stats;
  stats.cycles = counters.cycles;
  stats.plans = counters.plans;
  stats.plans_kept = counters.plans_kept;
  stats.plans_improved = counters.plans_improved;
  stats.cycles_not_planned = counters.cycles_not_planned;
  stats.plans_given_up = counters.plans_given_up;
  stats.plan_switches = counters.plan_switches;
  stats.size_bytes = counters.size;
  stats.planned_peak_bytes = counters.planned_peak_bytes;
  stats.live_lower_bound_bytes = counters.live_lower_bound_bytes;
  stats.requested_bytes = counters.requested_bytes;
  stats.planned_requests = counters.planned_requests;
  // What another thread derived from the requests made by now could fall, or jump.
  stats.hits = CurrentHits();
  stats.misses = counters.misses;
  stats.spills = counters.spills;
  stats.spilled_bytes = counters.spilled_bytes;
  stats.leaked_arrays = counters.leaked_arrays;
  stats.leaked_blocks = counters.leaked_blocks;
  stats.block_bytes = counters.block_bytes;
  stats.failed_cycles = counters.failed_cycles;
  stats.findings = findings_.detector().findings();
  stats.host_fallbacks = counters.host_fallbacks;
  stats.relocations = counters.relocations;
  const MirrorCounters mirrors = MirrorCountersOf(static_cast<const BufferOwner*>(this));
  stats.mirror_copies_to_host = mirrors.copies_to_host;
  stats.mirror_bytes_to_host = mirrors.bytes_to_host;
  stats.mirror_copies_to_device = mirrors.copies_to_device;
  stats.mirror_bytes_to_device = mirrors.bytes_to_device;
  return stats;
}

}  // namespace tidepool
