// The state behind a Workspace; for memory/ and the array layer's allocation path only.
//
// A core outlives its Workspace while arrays still hold buffers of it: records of dead buffers are
// returned here from any thread (a lock-free stack) and the last one frees an orphaned core.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_CORE_H_
#define TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_CORE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_tracing.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/buffer.h"
#include "tidepool/memory/planning/background_planner.h"
#include "tidepool/memory/planning/pinned_planner.h"
#include "tidepool/memory/planning/placement_problem.h"
#include "tidepool/memory/provider/guard_pages.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/memory/provider/mapped_file.h"
#include "tidepool/memory/provider/pages.h"
#include "tidepool/memory/provider/poison.h"
#include "tidepool/memory/resource/pool.h"
#include "tidepool/memory/workspace/cycle_detector.h"
#include "tidepool/memory/workspace/plan_set.h"
#include "tidepool/memory/workspace/thread_state.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_config.h"
#include "tidepool/memory/workspace/workspace_plan.h"

namespace tidepool {

class RingCore;

class WorkspaceCore final : public BufferOwner {
 public:
  static WorkspaceCore* New(std::string id, WorkspaceConfig config, Device device) {
    return new WorkspaceCore(std::move(id), std::move(config), device);
  }

  // A scope of `thread` begins: the first one begins a cycle, the last one to leave ends it. Enter
  // throws when the workspace is open on another thread. `failed`: an exception is passing.
  void EnterFrame(const void* thread) {
    if (owner_.load(std::memory_order_relaxed) != thread) BeginCycle(thread);
    ++frames_;
  }
  void LeaveFrame(bool failed) noexcept {
    if (--frames_ > 0) return;
    if (handing_over_) return HandOver();
    EndCycle(failed);
    if (abandoned_) Abandon();
  }

  // This cycle is a node's of the tree of owners: what is alive at its end is closed by that node,
  // not leaked.
  void OwnCycle() { owned_cycle_ = true; }

  // On the thread that has the workspace open. Throws by the spill policy; then nothing changed.
  Buffer* Allocate(size_t bytes);
  // From any thread.
  void Release(Buffer* buffer) noexcept override;
  void Close(Buffer* buffer) noexcept override;
  bool IsOpenHere() const override { return is_open_on(CurrentThreadToken()); }
  std::string DescribeStale(uint64_t stamp) const override;
  std::string DescribeOrigin(const Buffer& buffer) const override;
  std::string WorkspaceId() const override { return id; }
  std::string WhyNoHostCopy() const override;

  void Initialize();
  void Destroy();
  void Trim();
  // The Reclaimer's callback, on any thread: gives back what `depth` allows when the workspace is
  // closed; when it is open it does so itself at the end of its cycle. Returns bytes.
  int64_t Reclaim(ReclaimDepth depth) noexcept;
  void FinishPlanSearch();
  std::vector<LifetimeBuffer> PlannedRequests() const {
    return plans_.empty() ? std::vector<LifetimeBuffer>() : plans_.cycles().front()->requests;
  }
  void SavePlans(const std::string& path) const;
  PlansLoaded LoadPlans(const std::string& path);
  // The Workspace is gone. Frees the core once no buffer and no scope needs it.
  void Abandon() noexcept;

  bool is_open() const {
    const void* owner = owner_.load(std::memory_order_relaxed);
    return owner != nullptr && owner != &kMaintenance;
  }
  bool is_open_on(const void* thread) const {
    return owner_.load(std::memory_order_relaxed) == thread;
  }
  // Switched off: its scopes allocate from the heap.
  bool passes_through() const {
    return config.workspace_mode == WorkspaceMode::kNone ||
           config.debug_mode == DebugMode::kBypassEverything;
  }
  // Where the bytes are: the host's under MirroringPolicy::kHostOnly, whatever `device` is.
  Device memory_device() const { return memory_device_; }
  size_t alignment() const { return alignment_; }  // the configuration's or what the device needs
  uint64_t relocations() const { return pages_.relocations(); }
  uint64_t generation() const { return (stamp_.load(std::memory_order_relaxed) + 1) / 2; }

  const std::string id;
  const WorkspaceConfig config;
  const Device device;
  MemoryOwner& memory_owner;  // "workspace <id>", below the owner current at construction

  // Read by Workspace; written on the owning thread.
  size_t size = 0;
  // Without the requests that merely followed the plan, until Settle() counts those.
  size_t cursor = 0;
  size_t bytes_this_cycle = 0;
  size_t bytes_last_cycle = 0;
  size_t peak_cycle_bytes = 0;
  size_t spilled_bytes = 0;
  size_t spilled_count = 0;
  WorkspaceStats stats;  // hits: like cursor
  size_t CurrentCursor() const;
  size_t CurrentBytesThisCycle() const;
  uint64_t CurrentHits() const { return stats.hits + (slot_count_ - settled_); }
  CycleDetector detector{id, config.use_cycle_detector};

 private:
  friend class RingCore;

  WorkspaceCore(std::string id, WorkspaceConfig config, Device device);
  ~WorkspaceCore();

  void BeginCycle(const void* thread);
  void EndCycle(bool failed) noexcept;

  void PrepareQuickRequests();
  void Settle() noexcept;
  bool has_live() const { return account_.used_bytes() > 0; }  // every buffer has bytes
  int64_t CountRecordsOut() const;
  Buffer* AllocateSlowly(size_t bytes);
  void AddRecords();
  void ReserveRecords();
  void RecordRequest(size_t rounded) noexcept;
  std::byte* AllocateOutsidePlan(size_t bytes, size_t rounded, void** spill);
  void CheckMaySpill(size_t bytes) const;
  std::byte* AllocateSpill(size_t bytes, size_t rounded, void** spill);
  void ReleaseSlowly(Buffer* buffer) noexcept;
  void ReleaseOnOwner(Buffer* buffer) noexcept;
  // Of the open cycle, and its bytes are still out. On the owner.
  bool IsOut(const Buffer* buffer) const {
    return buffer->request.slot < slot_count_ && slots_[buffer->request.slot] == buffer;
  }
  void GiveBack(Buffer* buffer) noexcept;
  void ReleaseBytes(Buffer* buffer) noexcept;
  void DrainRemote() noexcept;
  void CollectLeaks(bool failed) noexcept;
  void DropAll() noexcept;
  void NoteLeak(const Buffer& buffer) noexcept;
  void KeepTrace(const Buffer& buffer) noexcept;
  void ForgetTrace(const Buffer& buffer) noexcept;
  void DetectFaults() noexcept;
  void Learn();
  void Grow(size_t learned_bytes);
  void ShrinkToPlans();

  // Plans (workspace_plans.cc).
  void StartRecording();
  bool PlaceOffPlan(size_t rounded, size_t* offset);
  bool SwitchPlan(size_t rounded);
  bool HasLiveWherePlanned(const LearnedCycle& cycle) const;
  void FollowPlan(LearnedCycle* cycle);
  void LearnPlan();
  void UseExactPlan(uint64_t now);
  void MakePlan();
  void MakePlanOfBeginning();
  void InstallPlan(std::unique_ptr<LearnedCycle> cycle);
  void PlansChanged();
  void ForgetPlans();
  size_t PlanLimit() const;
  void SearchBetterPlan() noexcept;
  void AdoptBetterPlan() noexcept;

  // Pages (workspace_pages.cc).
  void PreparePages();
  void TakeInitialPages();
  void ResizePages(size_t new_size);
  void SetPages(std::byte* base, size_t new_size, size_t capacity);
  void PrefaultPages(size_t bytes) noexcept;
  // Only addresses of the host's own have an AddressSanitizer shadow.
  void Poison(const std::byte* data, size_t bytes) const {
    if (host_readable_) PoisonBlock(data, bytes);
  }
  void Unpoison(const std::byte* data, size_t bytes) const {
    if (host_readable_) UnpoisonBlock(data, bytes);
  }
  void TrimPool();
  void TrimIdleBlocks();
  void AccountOwned();
  void AccountState() noexcept;
  size_t LearnedSize(size_t needed) const;
  void DropPages() noexcept;

  // Keeps a closed workspace closed while it is changed: a thread that wants to enter it waits.
  // Throws when it is open.
  class Maintenance {
   public:
    Maintenance(WorkspaceCore& core, const char* operation);
    ~Maintenance() { core_.owner_.store(nullptr, std::memory_order_release); }

   private:
    WorkspaceCore& core_;
  };
  void RequireClosed(const char* operation) const;
  void TakePagesAgain();
  static constexpr int kRecordsPerSlab = 64;
  static const char kMaintenance;  // its address is owner_ meanwhile
  static const char kReporting;    // likewise while findings are told

  // As a slot of a ring (ring_slot_core.cc). Its cycle begins on the producer's thread, belongs to
  // no thread from HandOver to EndLease, and the ring learns for it.
  void PrepareSlot(uint64_t generation) noexcept;
  void AdoptLearned(size_t bytes, const LearnedCycle* learned);
  void HandOver() noexcept;
  void EndLease() noexcept;
  // Takes a buffer back while the slot is leased; false when it is not.
  bool ReleaseLeased(Buffer* buffer) noexcept;
  void CloseLeased(Buffer* buffer) noexcept;
  std::string DescribeStaleSlot(uint64_t now, uint64_t made) const;

  bool serves_from_pages() const {
    return config.debug_mode == DebugMode::kDisabled &&
           config.policy_allocation != AllocationPolicy::kAlways;
  }
  bool learns_lifetimes() const {
    return config.policy_learning == LearningPolicy::kOptimized ||
           config.policy_learning == LearningPolicy::kTraining;
  }

  // Odd while a cycle is open, even when closed: 2 * generation - 1, then 2 * generation.
  std::atomic<uint64_t> stamp_{0};
  std::atomic<const void*> owner_{nullptr};  // the thread that has it open
  std::atomic<Buffer*> remote_{nullptr};     // released by other threads or while closed
  std::atomic<int64_t> orphans_{0};          // records still out when the Workspace went

  DeviceProvider& memory_;
  const Device memory_device_;
  const size_t alignment_;
  const bool host_readable_;
  Pages pages_;
  std::unique_ptr<MappedFile> file_;  // policy_location kMmap: instead of pages_
  std::byte* base_ = nullptr;         // of either
  size_t capacity_ = 0;               // usable bytes there, a multiple of the alignment
  size_t initial_pages_ = 0;          // what initial_size reserves
  Pool pool_;
  std::unique_ptr<GuardPages> guard_;  // debug_mode kGuard
  MemoryAccount account_;
  int64_t owned_reported_ = 0;

  PlanSet plans_;
  LearnedCycle* learned_ = nullptr;  // what this cycle is expected to be, of plans_; or null
  WorkspacePlan no_plan_;
  WorkspacePlan* plan_ = &no_plan_;  // of learned_
  // What this cycle requested; kept while recording_, which begins where a cycle leaves its plan.
  bool recording_ = false;
  bool tracing_ = false;  // MemoryTracing was on when the cycle began
  std::vector<LifetimeBuffer> record_;
  uint64_t record_signature_ = kNoRequests;
  std::vector<PinnedBuffer> pins_;  // alive where this cycle left its first plan
  int missing_cycles_ = 0;
  int inexact_cycles_ = 0;  // running, that a plan served which is larger than they need
  std::shared_ptr<PlanTicket> search_;        // for a better plan, on another thread; or null
  LearnedCycle* searched_cycle_ = nullptr;    // of plans_ when search_ began
  size_t needed_size_ = 0;  // what the plans need; pages beyond it are given back
  int oversized_cycles_ = 0;
  uint64_t cycles_learned_from_ = 0;
  int cycles_without_spill_ = 0;
  int cycles_keeping_blocks_ = 3;  // then unused blocks are given back
  bool lacks_initial_pages_ = false;  // since Destroy
  bool lacks_pages_ = false;          // reclaimed: the next cycle takes `size` bytes again
  std::atomic<bool> reclaim_requested_{false};
  uint64_t stamp_at_periodic_reclaim_ = UINT64_MAX;
  Reclaimer::Registration reclaimer_;
  uint64_t misses_this_cycle_ = 0;
  std::vector<AllocationTrace> traces_;  // by request number, while tracing
  LeakReport leaks_;                     // of the cycle that ends
  // Of buffers that outlived their cycle, by id, while handles of them are left.
  std::map<uint64_t, AllocationTrace> leaked_traces_;  // guarded by traces_mutex_
  mutable std::mutex traces_mutex_;
  std::atomic<bool> has_leaked_traces_{false};
  int64_t state_reported_ = 0;           // bytes of records, plan, slots
  size_t slots_reported_ = 0;

  std::vector<Buffer*> slots_;  // this cycle's live buffers by request number
  uint32_t slot_count_ = 0;
  uint32_t quick_slots_ = 0;  // requests before this one may follow the plan without further ado
  WorkspacePlan::Quick quick_plan_;  // plan_, while quick_slots_ > 0
  uint32_t settled_ = 0;      // the requests before this one are counted
  uint64_t first_id_ = 0;     // of this cycle's quick requests
  uint64_t next_id_ = 0;      // of later cycles'
  uint64_t ids_end_ = 0;

  // Records of no handle: references 1, no spill, not closed.
  Buffer* free_records_ = nullptr;
  std::vector<std::unique_ptr<Buffer[]>> record_slabs_;
  int frames_ = 0;
  bool abandoned_ = false;
  bool owned_cycle_ = false;

  bool is_ring_slot_ = false;
  bool handing_over_ = false;  // the scope's end hands the slot over instead of ending the cycle
  std::mutex leased_mutex_;    // while leased: held by who takes buffers back
  static inline constinit char leased_token_ = 0;  // its address is the owner_ of leased slots
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_CORE_H_
