// The state behind a Workspace; for memory/ and the array layer's allocation path only.
//
// A core puts pieces together, each with a contract of its own: the gate (who has it open), records of
// buffers, pages and their free ranges, what serves spills, the learner and the follower of its plans,
// and findings. What is here is the way of one request through them.
//
// A core outlives its Workspace while arrays still hold buffers of it: the last record that comes back
// frees an orphaned core.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_CORE_H_
#define TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_CORE_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/owner_lease.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/buffer.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/memory/workspace/buffer_records.h"
#include "tidepool/memory/workspace/config_rules.h"
#include "tidepool/memory/workspace/cycle_findings.h"
#include "tidepool/memory/workspace/cycle_follower.h"
#include "tidepool/memory/workspace/cycle_gate.h"
#include "tidepool/memory/workspace/cycle_memory.h"
#include "tidepool/memory/workspace/cycle_queues.h"
#include "tidepool/memory/workspace/lease_list.h"
#include "tidepool/memory/workspace/leased_side.h"
#include "tidepool/memory/workspace/owned_bytes.h"
#include "tidepool/memory/workspace/plan_follower.h"
#include "tidepool/memory/workspace/plan_learner.h"
#include "tidepool/memory/workspace/plan_search.h"
#include "tidepool/memory/workspace/pool_memory.h"
#include "tidepool/memory/workspace/refused_request.h"
#include "tidepool/memory/workspace/request_slot.h"
#include "tidepool/memory/workspace/thread_state.h"
#include "tidepool/memory/workspace/two_ended_ranges.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_counters.h"
#include "tidepool/memory/workspace/workspace_pages.h"
#include "tidepool/memory/workspace/workspace_ref.h"
#include "tidepool/memory/workspace/workspace_spills.h"

namespace tidepool {

struct PoolState;

class WorkspaceCore final : public BufferOwner {
 public:
  static WorkspaceCore* New(std::string id, WorkspaceConfig config, Device device) {
    return new WorkspaceCore(std::move(id), std::move(config), device);
  }
  // ---- cycles -------------------------------------------------------------------------------
  // A scope of `thread` begins: the first one begins a cycle (true), the last one to leave ends it. Throws when the
  // workspace is open on another thread. `failed`: an exception is passing.
  bool EnterFrame(const void* thread) {
    const bool begins = !gate_.is_open_on(thread);
    if (begins) BeginCycle(thread);
    ++frames_;
    return begins;
  }
  void LeaveFrame(bool failed) noexcept {
    if (--frames_ > 0) return;
    if (hands_over_) return HandOver();
    EndCycle(failed);
    if (abandoned_) Abandon();
  }
  // This cycle is a node's of the tree of owners, which closes what is alive at its end: it is not leaked.
  void OwnCycle() { owned_cycle_ = true; }
  bool is_open() const { return gate_.is_open(); }
  bool is_open_on(const void* thread) const { return gate_.is_open_on(thread); }

  // ---- requests -----------------------------------------------------------------------------
  // On the thread that has the workspace open. Throws by the spill policy; then nothing changed.
  Buffer* Allocate(size_t bytes);
  void Release(Buffer* buffer) noexcept override;  // any thread, as the next
  void Close(Buffer* buffer) noexcept override;
  bool IsOpenHere() const override { return is_open_on(CurrentThreadToken()); }
  std::string DescribeStale(uint64_t stamp) const override;
  std::string DescribeOrigin(const Buffer& buffer) const override;
  std::string WorkspaceId() const override { return id; }
  std::string WhyNoHostCopy() const override;
  int HomeQueue() const override { return queues_.home(); }
  void UsedInQueue(int queue) noexcept override { queues_.Used(queue); }
  void GoesAfter(uint16_t queues) noexcept override;

  // ---- between cycles: of a closed workspace --------------------------------------------------
  // Keeps it closed meanwhile: a thread that wants to enter waits. Throws when it is open, and in a callback that would wait.
  class Maintenance {
   public:
    Maintenance(WorkspaceCore& core, const char* operation);
    ~Maintenance() { core_.EndMaintenance(); }
    Maintenance(const Maintenance&) = delete;
    Maintenance& operator=(const Maintenance&) = delete;

   private:
    WorkspaceCore& core_;
  };
  void Initialize();
  void Destroy();
  void Trim();
  void FinishPlanSearch();
  std::vector<LifetimeBuffer> PlannedRequests();
  void SavePlans(const std::string& path);
  PlansLoaded LoadPlans(const std::string& path);
  std::string PlanReport();
  // The Reclaimer's, on any thread: gives back what `depth` allows, of an open one at its cycle's end. Returns bytes.
  int64_t Reclaim(ReclaimDepth depth) noexcept;
  // The Workspace is gone. Frees the core once no buffer, no scope and no maintenance needs it, which may be further out on
  // this thread's stack. Waits for nobody in a callback.
  void Abandon() noexcept;

  // ---- blocks without records, of containers (cycle_memory.h, workspace_blocks.cc) -------------
  bool may_have_blocks() const {
    return !is_ring_slot_ && !passes_through() && memory_device_ == Host();
  }
  // Null: none. Any thread, as AttachBlocks(): false when there is one already.
  CycleMemory* block_memory() const { return spills_.beside(); }
  bool AttachBlocks(CycleMemory* memory) noexcept { return spills_.SetBeside(memory); }
  bool AsksForItself() noexcept;  // in its cycle, on this thread, for a block (cycle_memory.h)
  // On the thread that has it open. Throws by the spill policy, after what blocks have without using it was given back.
  void CheckBlockBytes(size_t bytes) { limits_together_ ? CheckTogether(bytes, "blocks") : void(); }
  bool GaveForBlocks(size_t bytes) noexcept;  // something that serves arrays went to make room
  bool serves_blocks_on(const void* thread) const { return is_open_on(thread) && serves_blocks_; }
  void AddBlockBytes(int64_t bytes) noexcept {
    account_.AddUsed(bytes);
    if (limits_together_) NoteBlocks(bytes);
  }
  OwnedBytes& owned_bytes() { return owned_; }

  // ---- as the slot of a ring (ring_slot_core.cc) ----------------------------------------------
  // A cycle of a slot begins on the producer's thread, is handed over to leases that belong to no thread, and ends with
  // the last of them. The ring learns for its slots. `name` is the Reclaimer's, which asks `may_reclaim` first.
  static WorkspaceCore* NewRingSlot(std::string id, WorkspaceConfig config, Device device,
                                    const std::string& name, std::function<bool()> may_reclaim);
  // Generations are the ring's: before the cycle is entered.
  void SetGeneration(uint64_t g) noexcept { stamp_.store(2 * g - 2, std::memory_order_relaxed); }
  // The end of the outermost scope hands the cycle over, `writes_down`: with its lifetimes until then recorded.
  void HandOverAtEnd(bool hands_over, bool writes_down = false) noexcept {
    hands_over_ = hands_over, writes_down_ = writes_down;
  }
  void LimitLive() noexcept { limits_live_ = true; }
  EndedCycle Ended() const;  // what was handed over; stays until the last lease is gone
  void EndLease() noexcept;  // the last one is gone
  // Under Maintenance: what the ring has learned, from the next cycle on. Throws for memory; cycles are served all the same then.
  void Follow(const Lesson& lesson);
  void Expect(const LearnedCycle* next) noexcept { follower_.Expect(next); }  // its taker
  void TrimSpills() noexcept { spills_.Trim(); }
  // Between cycles: the initial size is left, and nothing is followed until Follow(). Throws as Maintenance does.
  void GiveBackLearned();

  // For a step budget: a cycle leaves its plan rather than have outside what fits the pages, which do not grow for how arrays lie.
  void KeepWithinPages();
  // Requests, ever; by whoever is inside, or between cycles.
  uint64_t refused() const { return refused_; }

  // ---- as one of a pool's (pooled_core.cc) ------------------------------------------------------
  static WorkspaceCore* NewPooled(std::string id, WorkspaceConfig config, Device device,
                                  std::shared_ptr<PoolState> pool);
  bool is_pooled() const { return pool_ != nullptr; }
  LeaseLinks<StdSync, Workspace>& lease_links() { return lease_links_; }
  // The pool's Trim(), whoever has leased it. Waits for nobody. True: it is closed, and stays so and is there until EndTrimBlocks()
  // has given back what it keeps. False: it is open and does so at its cycle's end, or it is maintained.
  bool BeginTrimBlocks() noexcept;
  void EndTrimBlocks() noexcept;
  // That ended and its pool has not been told of. By who has leased it, while it is closed.
  uint64_t TakeUntoldCycles() noexcept { return std::exchange(untold_cycles_, 0); }

  // Of which device such a workspace's bytes are.
  static DeviceProvider& MemoryOf(const std::string& id, const WorkspaceConfig& config,
                                  Device device);

  // ---- what it is -----------------------------------------------------------------------------
  // Switched off: its scopes allocate from the heap.
  bool passes_through() const { return config.passes_through(); }
  // Where the bytes are: the host's under MirroringPolicy::kHostOnly, whatever `device` is.
  Device memory_device() const { return memory_device_; }
  size_t alignment() const { return alignment_; }  // the configuration's or what the device needs
  uint64_t generation() const { return (stamp_.load(std::memory_order_relaxed) + 1) / 2; }
  CycleDetector& detector() { return findings_.detector(); }
  // Of this one alone, for ever (WorkspaceRef).
  uint64_t number() const { return entry_.number(); }

  const std::string id;
  const WorkspaceConfig config;
  const Device device;
  const OwnerLease owner_lease;  // "workspace <id>", below the owner current at construction
  MemoryOwner& memory_owner;     // its node

  // Any thread may read these; of what changes within a cycle, others than the one that has it open see some earlier value.
  WorkspaceCounters counters;
  size_t CurrentCursor() const;
  size_t CurrentBytesThisCycle() const;
  uint64_t CurrentHits() const;
  WorkspaceStats Stats() const;

 private:
  WorkspaceCore(std::string id, WorkspaceConfig config, Device device,
                std::shared_ptr<PoolState> pool = nullptr);
  ~WorkspaceCore();

  // Cycles (workspace_core.cc).
  void BeginCycle(const void* thread);
  void EnterSlowly(const void* thread);
  void Open();
  void RefuseAfterFinding();
  void EndCycle(bool failed) noexcept;
  void FinishCycle(bool failed) noexcept;
  void EndMaintenance() noexcept;
  void Free() noexcept;
  void LeaveCycle() noexcept;
  void PreparePages();
  void BeginFollowing();
  void PrepareQuickRequests();
  void ExpectQuick() noexcept;
  void EndQuickRequests() noexcept;
  void WatchLimit() noexcept;  // something lies beside the pages: each request looks at it
  void DropLive(bool failed) noexcept;
  uint64_t DropBuffer(Buffer* buffer, bool failed) noexcept;
  void DropAllUnseen() noexcept;
  void EndBlocks(CycleMemory& blocks, bool failed) noexcept;
  void NoteBlocks(int64_t bytes) noexcept;
  void HandOver() noexcept;
  void AccountState() noexcept;
  void TrimState() noexcept;
  void TrimSlots(size_t requests) noexcept;
  bool has_live() const { return account_.used_bytes() > 0; }  // every buffer has bytes
  bool serves_from_pages() const { return ServesFromPages(config); }
  bool learns_lifetimes() const { return LearnsLifetimes(config); }
  bool has_plans() const { return uses_ranges_ && !passes_through(); }
  // Requests of this cycle that have slots.
  uint32_t slotted() const { return std::min<uint32_t>(slot_count_, slots_end_); }
  RequestView made() const {
    return {{slots_.data(), slotted()}, pages_.base(), slot_count_ - slotted()};
  }

  // Learning (workspace_learning.cc).
  void LearnFromCycle() noexcept;
  void LearnFromFailed() noexcept;
  bool EndedRefused() const { return refused_request_.ended(slot_count_); }
  void Teach(bool failed) noexcept;
  void LearnFrom(const EndedCycle& cycle);
  size_t RoomUnderLimits() const;
  void GiveAhead(bool asked) noexcept;
  void FollowLearned();
  void AdoptBetterPlan() noexcept;
  void Forget() noexcept;

  // Of a pool's, and of plans of a file (pooled_core.cc).
  void OpenUndecided() noexcept;
  void DecideByFirst(size_t rounded) noexcept;
  void TakePagesForLoaded(size_t rounded) noexcept;
  void EndPooled(bool failed) noexcept;
  void TellKeeper() noexcept;

  // Requests (workspace_requests.cc).
  void Settle() noexcept {
    if (settled_ != slot_count_) SettleSlowly();
  }
  void SettleSlowly() noexcept;
  [[gnu::noinline]] Buffer* ListAccount(Buffer* made) noexcept;
  Buffer* AllocateAmongMany(size_t bytes);  // quick_requests.cc
  Buffer* AllocateInRanges(size_t bytes);
  Buffer* AllocateInAnyRange(size_t bytes);
  Buffer* Served(Buffer* buffer, uint32_t slot, const PlanLayout::Slot& planned, size_t bytes);
  Buffer* Served(Buffer* buffer, TwoEndedRanges::Range range, size_t at, size_t bytes,
                 size_t rounded);
  Buffer* AllocateSlowly(size_t bytes);
  void ReserveForRequest() {
    const bool has_slot = slot_count_ < slots_.size() || slot_count_ >= slots_end_;
    if (has_slot && records_.next_free() != nullptr && (ranges_.has_reserved() || !uses_ranges_) &&
        follower_.has_reserved() && !findings_.tracing()) {
      return;
    }
    ReserveMore();
  }
  void ReserveMore();
  bool PlaceInPages(size_t rounded, size_t* offset, bool* misses);
  void BeginRanges() noexcept;
  void LeavePlan() noexcept;
  void StopRecording() noexcept;
  void ExpectInRanges() noexcept;
  bool settles_ranges() const { return settled_ >= slots_end_ || follower_.plan() == nullptr; }
  bool LeavesFor(size_t rounded, bool* misses);
  bool LeavesToFit(size_t rounded, bool* misses);
  size_t HeldTooMuch(size_t rounded) const;
  void MakeHolesFor(size_t rounded) noexcept;
  size_t LargestGap();
  void* PlaceInFreeRange(size_t rounded, size_t* offset) noexcept;
  Allocation AllocateOutside(size_t bytes, size_t rounded);  // workspace_refusals.cc
  void LieByThemselvesWhereTight(size_t rounded) noexcept;
  void LieByThemselves() noexcept;
  bool GaveGaps(size_t rounded);
  void NoteRefused(size_t rounded) noexcept;
  void BeginAgain() noexcept;
  void CheckMaySpill(size_t bytes);
  void CheckSpilled(const Allocation& spill, size_t bytes, size_t rounded);
  void CheckTogether(size_t bytes, const char* what);  // workspace_blocks.cc

  // Releases (workspace_release.cc).
  void ReleaseSlowly(Buffer* buffer) noexcept;
  void ReleaseOnOwner(Buffer* buffer) noexcept;
  void ReleaseRange(Buffer* buffer) noexcept;
  bool IsAliveInRange(const Buffer* buffer) const;
  // Of the open cycle, and its bytes are still out. Of older cycles nothing has a token: see DropLive.
  bool IsOut(const Buffer* buffer) const {
    const uint32_t slot = buffer->request.slot;
    if (slot >= slots_end_) return buffer->request.spill != nullptr;
    return slot < slot_count_ && slots_[slot].holds(buffer);
  }
  void GiveBack(Buffer* buffer) noexcept;
  void ReleaseBytes(Buffer* buffer) noexcept;
  void DrainReturned() noexcept {
    if (!records_.returned().empty()) DrainReturnedSlowly();
  }
  void DrainReturnedSlowly() noexcept;
  bool ReleaseLeased(Buffer* buffer) noexcept;
  void CloseLeased(Buffer* buffer) noexcept;
  std::string DescribeStaleSlot(uint64_t now, uint64_t made) const;

  const std::shared_ptr<PoolState> pool_;  // null: none's
  DeviceProvider& memory_;
  internal::WorkspaceEntry entry_{this};
  const Device memory_device_;
  const size_t alignment_;

  const bool uses_ranges_ = serves_from_pages() && learns_lifetimes();
  // Arrays, in the pages and outside, and blocks together have a limit (workspace_blocks.cc).
  const bool limits_together_ =
      (config.policy_spill == SpillPolicy::kFail && config.debug_mode == DebugMode::kDisabled) ||
      (config.policy_spill == SpillPolicy::kReallocate && config.max_size > 0);

  // What the way of a planned request reads.
  alignas(64) std::atomic<uint64_t> stamp_{0};  // 2 * generation, less 1 while a cycle is open
  static constexpr uint64_t kNoQuickStamp = 2;  // no buffer has it
  uint64_t quick_stamp_ = kNoQuickStamp;        // the open cycle's while its requests may be quick
  CycleGate gate_;
  PlanFollower::Quick quick_;        // the learner's follower, while quick_slots_ > 0
  uint64_t first_id_ = 0;            // of this cycle's quick requests
  MappedVector<RequestSlot> slots_;  // this cycle's requests by number
  // It writes one line, from the last word of records_ to the account: stores to one leave a processor together.
  alignas(64) BufferRecords records_;
  static_assert(sizeof(BufferRecords) == 72);
  SingleWriter<uint32_t> slot_count_;
  SingleWriter<uint32_t> settled_;  // the requests before this one are counted
  uint32_t quick_slots_ = 0;  // requests before this one may follow the plan without further ado
  uint32_t free_slots_ = 0;   // or be served from the free ranges, of no plan
  // Requests from this one on have no slots: nobody learns from them (CycleFollower::unrecorded).
  uint32_t slots_end_ = UINT32_MAX;
  MemoryAccount account_;
  OwnedBytes owned_{account_};
  WorkspacePages pages_;
  WorkspaceSpills spills_;
  TwoEndedRanges ranges_{alignment_};  // of the pages, in a cycle with requests that no plan places
  PlanLearner learner_;                // a ring's slot has the ring's instead
  CycleFollower follower_;
  PlanSearch search_;
  CycleFindings findings_{id, config.use_cycle_detector};
  CycleQueues queues_{memory_device_};

  uint64_t next_id_ = 0, ids_end_ = 0, id_slots_ = 0;  // of what comes; so many slots have theirs
  uint64_t misses_ = 0, refused_ = 0;                  // in this cycle; ever
  RefusedRequest refused_request_;
  uint64_t followed_version_ = 0;  // of what was learned
  int64_t block_bytes_ = 0;        // in use by blocks, where limits_together_
  bool watches_limit_ = false;     // in this cycle: more may be alive than the pages have
  bool serves_blocks_ = false;     // in a cycle
  // Now; the most in this cycle; of all, then.
  size_t spilled_bytes_alive_ = 0, most_spilled_bytes_alive_ = 0, most_alive_at_spills_ = 0;
  int frames_ = 0;
  bool abandoned_ = false, owned_cycle_ = false;
  int64_t state_reported_ = 0;  // bytes of records, plans, slots; and how many of these
  size_t slots_reported_ = 0;
  uint64_t plans_reported_ = 0;  // the learner's version then
  std::atomic<bool> reclaim_requested_{false};
  uint64_t stamp_at_periodic_reclaim_ = UINT64_MAX;
  Reclaimer::Registration reclaimer_;

  PoolMemory::Range range_;                          // of pool_, in a cycle
  bool undecided_ = false, loaded_refused_ = false;  // no request was made; of pages for a file's
  uint64_t untold_cycles_ = 0;                       // to the pool's keeper
  LeaseLinks<StdSync, Workspace> lease_links_;       // guarded by the pool's list
  bool limits_live_ = LimitsLive(config);            // a temporary slot's: its ring's
  bool is_ring_slot_ = false, hands_over_ = false, writes_down_ = false,
       keeps_within_pages_ = false;
  LeasedSide<StdSync> leased_;
};

inline WorkspaceRef::WorkspaceRef(const WorkspaceCore& core) : number_(core.number()) {}

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_CORE_H_
